"""Where the verdict of a reproduction is shown: `treering show`, MLflow's tags, the run page."""

import json
import shutil

import pytest
import run_writer
from dashboard_page import page, table, texts

from treering.project import Project
from treering.runlog.reproductions import Reproduction
from treering.ship.own_run import OwnRun

SENTENCE = "Same data, numbers differ from step 4 after 3 equal ones: loss 3.9 against 3.8."
FIELDS = {
    "started_at": 1_700_000_000.0,
    "first_step": 1,
    "last_step": 12,
    "from_step": 0,
    "environment": "present",
    "plan": {"items": []},
    "verdict": None,
}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run that was made again twice, the second time not to the end."""
    writer = run_writer.Writer(Project(tmp_path)).start().lay(12).end()
    digest = writer.resolved.recipe.digest
    for number, ended in ((1, {"ended_at": 1_700_003_600.0, "identical": False, "sentence": SENTENCE}), (2, {})):
        folder = writer.run.path / "reproductions" / f"{number:04d}"
        folder.mkdir(parents=True)
        unknown = {"ended_at": None, "identical": None, "sentence": ""}
        record = Reproduction(run=digest, comparison={} if ended else None, **FIELDS, **(unknown | ended))
        record.write(folder / "reproduction.json")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TREERING_ROOT", str(tmp_path))
    return writer.run


def test_show(run, treering):
    _, out, _ = treering("show", run.id)
    assert f"reproduced  {SENTENCE[:-1]} (reproduction 1, 2023-11-14 23:13 UTC)" in out
    assert "reproduced  not compared yet (steps 1 to 12); the same command goes on (reproduction 2" in out
    file = run.path / "reproductions/0001/reproduction.json"
    file.write_text(file.read_text().replace("differ", "agree"))
    assert "reproduction.json: digest sha256:" in treering("show", run.id)[1]


def test_runs(run, treering):
    (line,) = json.loads(treering("runs", "--json")[1])
    expected = {"number": 1, "sentence": SENTENCE, "identical": False, "at": 1_700_003_600.0, "compared": True}
    assert line["reproduction"] == expected
    head, row = treering("runs")[1].splitlines()[:2]
    assert "again" in head.split()
    assert "differs" in row.split()
    (run.path / "reproductions/0001/reproduction.json").unlink()
    assert json.loads(treering("runs", "--json")[1])[0]["reproduction"]["number"] == 2
    assert "not compared" in treering("runs")[1]
    shutil.rmtree(run.path / "reproductions")
    assert json.loads(treering("runs", "--json")[1])[0]["reproduction"] is None
    assert "again" not in treering("runs")[1]


def test_tags_of_mlflow_are_of_the_newest_that_was_compared(run):
    tags = OwnRun(run).changing_tags(run.attempts(), run.path_to())
    assert {name: value for name, value in tags.items() if "reproduction" in name} == {
        "treering.reproduction": "differs",
        "treering.reproduction.verdict": SENTENCE,
        "treering.reproduction.at": "2023-11-14 23:13",
    }
    assert [each.parent.name for each in OwnRun(run).files() if each.name == "reproduction.json"] == ["0001", "0002"]


@pytest.mark.slow
def test_the_run_page(run):
    app = page("run", run=run.path.name)
    rows = table(app, "Verdict")
    assert list(rows["Result"]) == ["not known", "differs"]
    assert list(rows["Verdict"]) == ["not compared yet (steps 1 to 12); the same command goes on", SENTENCE]
    assert f"treering reproduce {run.path.name[:8]}" in texts(app)
