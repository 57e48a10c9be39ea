"""The page Search: what the ledger holds of all projects, as `treering search` finds it."""

from pathlib import Path

import pytest
from dashboard_page import page, table, texts

from treering.project import Project
from treering.record.start import start
from treering.runlog.find import find_recorded_runs
from treering.ship.ledger import LedgerTarget

HOSTILE = "<b>bold</b> $x$"


def shipped(root: Path, url: str, name: str, accuracy: float) -> str:
    """Records a run in a project and ships it to the ledger; returns the run's id."""
    with start(name, folder=root / "runs", tags=("keep", HOSTILE), notes=f"{name} is {HOSTILE}") as run:
        run.step(loss=1.0)
        run.score(1, "hellaswag", {"acc": accuracy, "acc_stderr": 0.01})
    target = LedgerTarget(Project(root), url)
    for each in find_recorded_runs(root / "runs"):
        target.shipper(each).ship()
    target.ledger.database.close()
    return run.path.name


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """A ledger with a run of this project and one of another project."""
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    monkeypatch.setenv("TREERING_DATABASE_URL", url)
    monkeypatch.setenv("TREERING_ROOT", str(tmp_path / "here"))
    for name in ("here", "elsewhere"):
        (tmp_path / name).mkdir()
    return shipped(tmp_path / "here", url, "mine", 0.6), shipped(tmp_path / "elsewhere", url, "theirs", 0.8)


@pytest.mark.slow
def test_runs_of_all_projects_are_found_and_only_those_here_can_be_opened(ledger) -> None:
    mine, theirs = ledger
    app = page("search", sort="project")
    rows = table(app, "Project")
    assert rows[["Project", "Run", "Here"]].to_numpy().tolist() == [["elsewhere", theirs, ""], ["here", mine, "✔"]]
    assert "2 runs" in texts(app)
    assert "Its folder is not in this project" in texts(app)
    assert not app.get("page_link")
    assert table(app, "Note")["Note"].tolist() == [f"theirs is {HOSTILE}"]
    app = page("search", q="experiment:mine")
    (link,) = app.get("page_link")
    assert (link.proto.label, link.proto.query_string) == ("Open the run", f"run={mine}")


@pytest.mark.slow
@pytest.mark.usefixtures("ledger")
def test_scores_that_were_asked_for_are_columns_in_the_order_of_the_sort() -> None:
    app = page("search", q="score.hellaswag>0.5 tag:keep", sort="-score.hellaswag")
    assert table(app, "Project")["hellaswag"].tolist() == ["0.800 hellaswag.acc", "0.600 hellaswag.acc"]
    assert "2 checkpoints" in texts(app)
    assert table(app, "Score")[["Score", "Value", "±"]].to_numpy().tolist() == [["hellaswag.acc", "0.800", "0.0100"]]
    assert "treering search --sort=-score.hellaswag -- 'score.hellaswag>0.5 tag:keep'" in texts(app)
    assert "0 checkpoints" in texts(page("search", q="score.hellaswag>0.9"))


@pytest.mark.slow
@pytest.mark.usefixtures("ledger")
def test_a_query_that_cannot_be_read_names_the_column() -> None:
    found = texts(page("search", q="corpora:code"))
    assert "query, column 1: found 'corpora:code', expected one of the fields project, experiment" in found
    assert "--sort: found 'loss', expected one of updated" in texts(page("search", sort="loss"))


@pytest.mark.slow
def test_a_ledger_that_is_empty_or_away_says_so(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TREERING_ROOT", str(tmp_path))
    monkeypatch.setenv("TREERING_DATABASE_URL", f"sqlite:///{tmp_path / 'none.db'}")
    assert "The ledger is empty." in texts(page("search"))
    monkeypatch.setenv("TREERING_DATABASE_URL", "postgresql://nobody@127.0.0.1:9/none")
    assert "The ledger has no answer." in texts(page("search"))
