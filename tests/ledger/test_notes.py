"""`treering note` of a person who cannot reach the run's folder goes to the ledger, and stays there."""

from pathlib import Path

import pytest
from ledger_rows import rows

from treering.runlog.mirror import Mirror
from treering.ship.ledger import target
from treering.store.ledger.models import NoteRow, RunRow, TagRow


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    folder = tmp_path / "laptop"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("USER", "ada")


def ship(project, run):
    target(project).shipper(run).ship()


@pytest.mark.usefixtures("elsewhere")
def test_a_note_from_elsewhere_is_kept_in_the_ledger(project, write_run, database, treering):
    writer = write_run().start().lay(10).save()
    ship(project, writer.run)
    code, out, err = treering("note", writer.resolved.run_id[:6], "Looks good", "--tag", "keep", "--untag", "tmp")
    assert (code, err) == (0, "")
    assert f"added to run {writer.resolved.run_id} of project here; its folder {writer.run.path} on " in out
    writer.lay(3).end()
    ship(project, writer.run)
    (note,) = rows(database, NoteRow)
    assert (note["text"], note["folded"], note["by"], note["origin"]) == ("Looks good", "looks good", "ada", "ledger")
    assert {(tag["tag"], tag["given"], tag["origin"]) for tag in rows(database, TagRow)} == {
        ("keep", True, "ledger"), ("tmp", False, "ledger"),
    }  # fmt: skip
    assert not (writer.run.path / "journal.jsonl").exists()


@pytest.mark.usefixtures("elsewhere")
def test_a_run_that_nobody_knows_is_an_error_that_names_both_places(project, write_run, database, treering):
    ship(project, write_run().start().lay(1).run)
    code, _, err = treering("note", "ffff", "text")
    assert code == 2
    assert "no project with runs" in err
    assert "no run starts with 'ffff'; `treering ship` adds those of a project" in err
    assert rows(database, NoteRow) == []


@pytest.mark.usefixtures("elsewhere")
def test_without_a_ledger_the_error_is_the_folders(treering, monkeypatch):
    monkeypatch.delenv("TREERING_DATABASE_URL", raising=False)
    code, _, err = treering("note", "0123", "text")
    assert code == 2
    assert "no project with runs" in err
    assert not Path("treering.db").exists()


@pytest.mark.usefixtures("elsewhere")
def test_a_note_on_a_mirror_goes_to_the_ledger(project, write_run, database, treering, monkeypatch):
    writer = write_run().start().lay(1).end()
    ship(project, writer.run)
    before = rows(database, RunRow)
    mark = {"store": "s3://b", "project": "here", "state": "finished", "written_at": 1.0, "complete": True}
    Mirror(**mark, rewritten={}).write(writer.run.mirror_file)
    assert target(project).shipper(writer.run) is None
    monkeypatch.chdir(project.root)
    code, out, _ = treering("note", writer.resolved.run_id, "from the mirror")
    assert code == 0
    assert "added to run" in out
    assert [note["text"] for note in rows(database, NoteRow)] == ["from the mirror"]
    assert rows(database, RunRow) == before
