"""`treering show --full` prints published scores beside the run's own, with citation and caveat."""

import json

import pytest
from typer.testing import CliRunner

from treering.cli import app
from treering.runlog.find import find_runs

OTHER = """model: Somebody 1B
citation: arXiv 0000.00000
caveat: own prompts
scores:
  - {{task: {task}, shots: 0, metric: acc, value: 0.5}}
  - {{task: {task}, shots: 7, metric: acc, value: 0.75}}
"""


@pytest.mark.slow
def test_show_prints_the_published_score_of_the_same_task_and_shots(copy, monkeypatch):
    monkeypatch.chdir(copy.root)
    (run,) = find_runs(copy.runs)
    final = run.evaluations()[-1]
    task = next(name for name, by_shots in final.scores.items() if "acc" in by_shots["0"])
    copy.references.mkdir(parents=True)
    (copy.references / "other.yaml").write_text(OTHER.format(task=task))
    page = json.loads(CliRunner().invoke(app, ["show", run.id, "--json"], catch_exceptions=False).stdout)
    assert page["published"] == [
        {
            "model": "Somebody 1B",
            "task": task,
            "shots": 0,
            "metric": "acc",
            "published": 0.5,
            "own": final.scores[task]["0"]["acc"],
            "step": final.step,
            "citation": "arXiv 0000.00000",
            "caveat": "own prompts",
        }
    ]
    text = CliRunner().invoke(app, ["show", run.id, "--full"], catch_exceptions=False).stdout
    assert "Somebody 1B: arXiv 0000.00000; own prompts" in text
    (copy.references / "other.yaml").unlink()
    assert "published" not in CliRunner().invoke(app, ["show", run.id, "--full"], catch_exceptions=False).stdout
