"""A search for causes that is stopped: the comparison stays, and the same reproduction goes on."""

import pytest
import run_writer

from treering.errors import RunLockedError
from treering.project import Project
from treering.reproduce.make import begin, conclude, held
from treering.reproduce.plan import Plan
from treering.runlog.reproductions import reproduction_lines

LAYOUT = run_writer.LAYOUT.model_copy(update={"data": 1})
PLAN = Plan("run", 1, 12, 0, None, None, ())


@pytest.fixture
def runs(tmp_path):
    """A run, and one in another layout that has other losses from step 8."""
    found = []
    for name in ("first", "second"):
        second = name == "second"
        with run_writer.run_writers(Project(tmp_path / name)) as writer:
            start = writer().start(layout=LAYOUT) if second else writer().start()
            start.lay(12, **({"loss": lambda step: 3.0 if step >= 8 else 4.0 - 0.001 * step} if second else {})).end()
            found.append(start.run)
    return found, Project(tmp_path)


def begun(run):
    return begin(run, run.resolved.recipe.digest, PLAN, recorded_python=False, present_code=False)


def test_the_comparison_is_kept_and_the_same_reproduction_goes_on(runs, monkeypatch):
    (run, again), project = runs
    folder = begun(run)

    def stopped(*_, **__):
        raise KeyboardInterrupt("by a person")

    monkeypatch.setattr("treering.reproduce.search.train_again", stopped)
    with pytest.raises(KeyboardInterrupt, match="by a person"):
        conclude(run, again, folder, project)
    record = folder.record
    assert (record.ended_at, record.identical, record.verdict["first_step"]) == (None, False, 8)
    assert record.comparison["numbers"]["first_step"] == 8
    (line,) = reproduction_lines(run)
    assert line["sentence"] == f"{record.sentence} The search for its cause has not ended; the same command goes on."
    assert line["compared"]
    assert begun(run).path == folder.path
    ended = conclude(run, again, folder, project, trials=False)
    assert ended.ended_at is not None
    assert reproduction_lines(run)[0]["sentence"] == ended.sentence
    assert begun(run).number == 2


def test_two_processes_make_the_same_reproduction(runs):
    (run, _), _ = runs
    folder = begun(run)
    expected = "0001: another process group makes this reproduction"
    with held(folder), pytest.raises(RunLockedError, match=expected), held(folder):
        pass
