"""Run folders become rows: once in effect, whatever is killed, repeated, abandoned, copied or done at the same time."""

import os
import re
import shutil
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy
from ledger_rows import all_rows, rows, settle
from run_writer import BATCH, SEQUENCE, STARTED_AT

from treering.data.order.treering1 import DataOrder
from treering.errors import EvidenceError, StoreError
from treering.project import Project
from treering.record.start import start
from treering.runlog.journal import CheckpointSaved, Noted, Tagged
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering.ship.ledger import LedgerTarget, target
from treering.ship.target import Projection
from treering.store.ledger.database import Database
from treering.store.ledger.models import (
    AttemptRow,
    CheckpointRow,
    NoteRow,
    ReadRow,
    RunRow,
    ScoreRow,
    SourceRow,
    TagRow,
    UnreadRow,
)
from treering.store.ledger.records import Extent


def ship(project, run, url=None):
    """One pass of a new process, as far as it can tell."""
    made = target(project) if url is None else LedgerTarget(project, url)
    report = made.shipper(run).ship()
    made.ledger.database.close()
    return report


def test_a_run_becomes_rows(project, write_run, database):
    writer = write_run().start().lay(10).save().lay(10).save().evaluate(10, 0.75).end()
    writer.run.journal.append(Noted(at=5.0, by="ada", text="Ärger at 7"))
    writer.run.journal.append(Tagged(at=6.0, by="ada", added=("keep", "tmp")))
    writer.run.journal.append(Tagged(at=7.0, by="bob", removed=("tmp",)))
    report = ship(project, writer.run)
    (run,) = rows(database, RunRow)
    assert (report.target, report.stored_as, report.sent["checkpoint"]) == ("ledger", run["key"], 2)
    expected = {"project": "here", "experiment": "tiny", "state": "finished", "step": 20, "trainer": "treering"}
    assert {name: run[name] for name in expected} == expected
    assert (run["id"], run["tokens"], run["corpora"]) == (writer.resolved.run_id, 20 * BATCH * SEQUENCE, True)
    assert (run["started_at"], run["updated_at"]) == (STARTED_AT + 1000, STARTED_AT + 1900)
    (attempt,) = rows(database, AttemptRow)
    assert (attempt["host"], attempt["status"], attempt["world_size"], attempt["on_path"]) == (
        "node-1", "finished", 2, True,
    )  # fmt: skip
    assert attempt["commit"] == "c" * 40
    checkpoints = {row["step"]: row for row in rows(database, CheckpointRow)}
    assert [(c["status"], c["tokens"], c["bytes"], c["place"]) for c in checkpoints.values()] == [
        ("saved", step * BATCH * SEQUENCE, 1000, f"checkpoints/step-{step:08d}") for step in checkpoints
    ]
    assert sorted(checkpoints) == [10, 20]
    order = DataOrder(writer.resolved.blend)
    read = {(row["checkpoint"], row["name"]): row for row in rows(database, ReadRow)}
    for step, checkpoint in checkpoints.items():
        for position, part in enumerate(writer.resolved.blend.components):
            row, count = read[checkpoint["key"], part.corpus], order.count(position, step * BATCH)
            assert (row["samples"], row["tokens"], row["corpus"]) == (count, count * SEQUENCE, part.digest)
            assert row["epochs"] == pytest.approx(count / ((part.num_tokens - 1) // SEQUENCE))
    scores = {
        (row["task"], row["metric"], row["shots"]): (row["value"], row["stderr"]) for row in rows(database, ScoreRow)
    }
    assert scores == {
        ("cloze", "accuracy", 0): (0.75, 0.05),
        ("heldout/books", "loss", -1): (3.0, None),
        ("heldout/books", "perplexity", -1): (20.0855, None),
        ("validation", "loss", -1): (3.1, None),
    }
    (note,) = rows(database, NoteRow)
    assert (note["text"], note["folded"], note["by"], note["origin"]) == ("Ärger at 7", "ärger at 7", "ada", "run")
    assert {row["tag"]: row["given"] for row in rows(database, TagRow)} == {"keep": True, "tmp": False}
    (source,) = rows(database, SourceRow)
    assert (source["project"], source["folder"]) == ("here", str(project.root))
    assert source["seen_at"] == pytest.approx(time.time(), abs=60)


def test_a_pass_over_a_folder_that_did_not_change_reads_none_of_it(project, write_run, database, monkeypatch):
    writer = write_run().start().lay(10).save().end()
    settle(writer.run.path)
    first = ship(project, writer.run)
    made = target(project)
    shipper = made.shipper(writer.run)
    with monkeypatch.context() as patch:
        patch.setattr(type(shipper._reader), "record", lambda *_: pytest.fail("the folder was read"))
        for _ in range(2):
            report = shipper.ship()
            assert (report.stored_as, report.news) == (first.stored_as, False)
    before = all_rows(database, passes=True)["ledger_run"]
    assert ship(project, writer.run).news is False
    assert all_rows(database, passes=True)["ledger_run"] == before


def test_what_is_new_arrives_once_and_the_rest_stays(project, write_run, database):
    writer = write_run().hold().start().lay(3)
    made = target(project)
    shipper = made.shipper(writer.run)
    shipper.ship()
    (unsaved,) = rows(database, CheckpointRow)
    assert (unsaved["status"], unsaved["step"], unsaved["digest"]) == ("unsaved", 3, None)
    assert rows(database, RunRow)[0]["state"] == "running"
    writer.lay(7).save()
    shipper.ship()
    (saved,) = rows(database, CheckpointRow)
    assert (saved["status"], saved["step"]) == ("saved", 10)
    writer.evaluate(10, 0.5)
    shipper.ship()
    assert {row["value"] for row in rows(database, ScoreRow) if row["task"] == "cloze"} == {0.5}
    writer.evaluate(10, 0.6)
    shipper.ship()
    assert {row["value"] for row in rows(database, ScoreRow) if row["task"] == "cloze"} == {0.6}
    writer.die()
    shipper.ship()
    assert rows(database, RunRow)[0]["state"] == "broken"


def test_what_a_restart_left_behind_is_abandoned_and_what_was_removed_stays_known(project, write_run, database):
    writer = write_run().start().lay(10).save().lay(10).save().evaluate(20, 0.9).die()
    ship(project, writer.run)
    first, second = writer.run.checkpoints()
    manifest, digest = second.manifest, second.digest
    writer.run.journal.append(CheckpointSaved(at=1.0, step=20, attempt=1, checkpoint=digest))
    writer.start(first).lay(5).save().end()
    ship(project, writer.run)
    assert {row["step"]: row["status"] for row in rows(database, CheckpointRow)} == {
        10: "saved", 15: "saved", 20: "abandoned",
    }  # fmt: skip
    assert [(row["number"], row["on_path"], row["parent_step"]) for row in rows(database, AttemptRow)] == [
        (1, True, None), (2, True, 10),
    ]  # fmt: skip
    assert {row["value"] for row in rows(database, ScoreRow) if row["metric"] == "accuracy"} == {0.9}
    shutil.rmtree(second.path)
    writer.run.journal.append(
        CheckpointSaved(at=1.0, step=15, attempt=2, checkpoint=writer.run.checkpoints()[-1].digest)
    )
    shutil.rmtree(writer.run.checkpoints()[-1].path)
    ship(project, writer.run)
    assert {row["step"]: (row["status"], row["tokens"]) for row in rows(database, CheckpointRow)} == {
        10: ("saved", 10 * BATCH * SEQUENCE),
        15: ("removed", 15 * BATCH * SEQUENCE),
        20: ("abandoned", manifest.consumed_tokens),
    }


def test_a_recorded_run_becomes_rows_and_its_abandoned_scores_are_known(project, database, monkeypatch):
    project.root.mkdir()
    monkeypatch.chdir(project.root)
    Path("one").mkdir()
    Path("one/weights.bin").write_bytes(b"12345")
    run = start("plain", config={"lr": 1}, tags=["owner=ada"], notes="first try")
    for _ in range(3):
        run.step(loss=2.0, tokens=np.arange(12).reshape(3, 4))
    run.checkpoint("one")
    run.score(3, "hellaswag", {"acc": 0.5, "acc_stderr": 0.01})
    run.step(loss=1.0)
    run.score(4, "hellaswag", {"acc": 0.6})
    run._end("failed", "a reason")
    run.score(3, "arc", {"acc": 0.3})
    run.score(4, "arc", {"acc": 0.4})
    run = start("plain", config={"lr": 1})
    assert run.resumed_step == 3
    run.step(loss=1.5)
    run.step(loss=1.4)
    run.score(5, "hellaswag", {"acc": 0.7})
    run.score(3, "hellaswag", {"acc": 0.55, "acc_stderr": 0.02})
    directory = RecordedRunDirectory(run.path)
    ship(project, directory)
    run.finish()
    ship(project, directory)
    (row,) = rows(database, RunRow)
    assert (row["trainer"], row["state"], row["step"], row["tokens"], row["corpora"]) == (
        "recorded", "finished", 5, 36, False,
    )  # fmt: skip
    checkpoints = rows(database, CheckpointRow)
    assert {(c["step"], c["status"], c["bytes"]) for c in checkpoints} == {
        (3, "saved", 5), (4, "abandoned", None), (5, "scored", None),
    }  # fmt: skip
    step_of = {c["key"]: c["step"] for c in checkpoints}
    assert {(step_of[s["checkpoint"]], s["task"]): (s["value"], s["stderr"]) for s in rows(database, ScoreRow)} == {
        (3, "hellaswag"): (0.55, 0.02), (4, "hellaswag"): (0.6, None), (5, "hellaswag"): (0.7, None),
        (3, "arc"): (0.3, None), (4, "arc"): (0.4, None),
    }  # fmt: skip
    assert [(tag["tag"], tag["origin"]) for tag in rows(database, TagRow)] == [("owner=ada", "run")]
    assert [note["text"] for note in rows(database, NoteRow)] == ["first try"]


def test_a_ledger_that_is_made_again_is_equal(project, write_run, database, tmp_path):
    for seed in (1, 2):
        writer = write_run(seed).start().lay(10).save().evaluate(10)
        ship(project, writer.run)
        ship(project, writer.lay(10).save().end().run)
        writer.run.journal.append(Tagged(at=7.0, by="bob", added=("x",)))
        ship(project, writer.run)
    again = f"sqlite:///{tmp_path}/again.db"
    for path in sorted(project.runs.iterdir(), reverse=True):
        ship(project, type(writer.run)(path), again)
    assert all_rows(Database(again)) == all_rows(database)


def test_an_older_copy_changes_nothing_until_it_is_forced(project, write_run, database, url, tmp_path):
    writer = write_run().hold().start().lay(10).save()
    old = Project(tmp_path / "copy")
    shutil.copytree(project.root, old.root)
    copied = type(writer.run)(old.runs / writer.run.path.name)
    ship(project, writer.lay(10).save().run)
    before = all_rows(database)["ledger_run"]
    report = ship(old, copied)
    assert "older copy" in report.note
    assert all_rows(database)["ledger_run"] == before
    shutil.rmtree(old.root)
    shutil.copytree(project.root, old.root)
    assert ship(old, copied).news is False  # nobody trains there, and that is not taken over
    assert all_rows(database)["ledger_run"] == before
    assert LedgerTarget(old, url).rebuild(copied) == ""
    (row,) = rows(database, RunRow)
    assert (row["project"], row["state"], row["folder"]) == ("copy", "broken", str(copied.path))


def test_an_extent_is_behind_only_where_nothing_is_ahead():
    assert Extent(1, 5, 0, 0).is_behind(Extent(2, 0, 0, 0))
    assert Extent(1, 5, 0, 0).is_behind(Extent(1, 6, 0, 0))
    assert not Extent(1, 5, 9, 0).is_behind(Extent(1, 6, 0, 0))
    assert not Extent(2, 1, 0, 0).is_behind(Extent(1, 6, 0, 0))
    assert not Extent(1, 5, 0, 0).is_behind(Extent(1, 5, 0, 0))


def test_the_same_recipe_trained_in_two_places_is_two_runs(project, write_run, database, tmp_path):
    from run_writer import run_writers

    ship(project, write_run().start().lay(3).end().run)
    other = Project(tmp_path / "there")
    with run_writers(other) as write:
        ship(other, write().start(host="node-9").lay(4).end().run)
    assert {(row["project"], row["step"]) for row in rows(database, RunRow)} == {("here", 3), ("there", 4)}
    assert len({row["id"] for row in rows(database, RunRow)}) == 1


def test_a_damaged_run_keeps_its_rows_and_its_problem_is_known_until_it_is_read_again(project, write_run, database):
    writer = write_run().start().lay(10).save().end()
    ship(project, writer.run)
    before = all_rows(database)["ledger_checkpoint"]
    header = writer.directory / "header.json"
    text = header.read_text()
    header.write_text(text.replace("node-1", "node-2"))
    with pytest.raises(EvidenceError, match=r"header\.json"):
        ship(project, writer.run)
    assert all_rows(database)["ledger_checkpoint"] == before
    (problem,) = rows(database, UnreadRow)
    assert problem["name"] == writer.run.path.name
    assert "header.json" in problem["problem"]
    header.write_text(text)
    ship(project, writer.run)
    assert rows(database, UnreadRow) == []


def test_what_could_not_be_read_is_known_until_it_is_read_or_gone(project, write_run, database):
    good, bad = write_run().start().lay(3).end(), write_run(seed=2).start().lay(3).end()
    header = bad.directory / "header.json"
    text = header.read_text()
    header.write_text(text.replace("node-1", "node-2"))
    with pytest.raises(EvidenceError, match=r"header\.json"):
        ship(project, bad.run)
    ship(project, good.run)  # alone, as `treering ship RUN` does
    assert [row["name"] for row in rows(database, UnreadRow)] == [bad.run.path.name]
    header.write_text(text)
    made = target(project)
    for run in (good.run, bad.run):
        made.shipper(run).ship()
    assert rows(database, UnreadRow) == []
    header.write_text("{}")
    with pytest.raises(EvidenceError, match=r"header\.json"):
        ship(project, bad.run)
    shutil.rmtree(bad.run.path)
    ship(project, good.run)
    assert rows(database, UnreadRow) == []


def test_two_shippers_at_once_do_it_once(project, write_run, database, url, tmp_path):
    writer = write_run().start().lay(10).save().evaluate(10).lay(10).save().end()
    begin, errors = threading.Barrier(4), []

    def work():
        begin.wait()
        try:
            for _ in range(5):
                ship(project, writer.run, url)
        except StoreError as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert errors == []
    again = f"sqlite:///{tmp_path}/again.db"
    ship(project, writer.run, again)
    assert all_rows(Database(again)) == all_rows(database)


@pytest.mark.slow
def test_a_shipper_killed_at_any_moment_leaves_a_ledger_that_the_next_pass_completes(
    project, write_run, database, url, tmp_path
):
    writer = write_run().start()
    for _ in range(6):
        writer.lay(10).save().evaluate(writer.step)
    writer.end()
    began = time.monotonic()
    for kill in range(8):
        child = os.fork()
        if child == 0:
            ship(project, writer.run, url)
            os._exit(0)
        time.sleep(0.02 * kill)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert time.monotonic() - began < 60
    ship(project, writer.run, url)
    again = f"sqlite:///{tmp_path}/again.db"
    ship(project, writer.run, again)
    assert all_rows(Database(again)) == all_rows(database)


def test_a_ledger_that_is_down_is_an_error_that_a_later_pass_makes_good(project, write_run, tmp_path, monkeypatch):
    monkeypatch.setenv("TREERING_DATABASE_URL", "postgresql://u:p@127.0.0.1:9/d")
    writer = write_run().start().lay(3).end()
    with pytest.raises(StoreError, match=r"`treering ship` goes on once it answers"):
        ship(project, writer.run)
    monkeypatch.setenv("TREERING_DATABASE_URL", f"sqlite:///{tmp_path}/up.db")
    assert ship(project, writer.run).sent["run row"] == 1


def test_a_locked_ledger_is_waited_for_and_then_an_error(project, write_run, database, monkeypatch):
    database.make()
    monkeypatch.setattr("treering.store.ledger.database.PATIENCE_S", 1)
    writer = write_run().start().lay(3).end()
    key = target(project).shipper(writer.run)._reader.key()
    with database.writing(int(key, 16) >> 1), pytest.raises(StoreError, match="lock"):
        ship(project, writer.run)
    assert ship(project, writer.run).sent["run row"] == 1


def test_a_run_without_an_attempt_is_not_in_the_ledger(project, write_run, database):
    report = ship(project, write_run().run)
    assert (report.stored_as, report.state) == (None, "empty")
    assert rows(database, RunRow) == []


def test_a_rebuild_finds_what_differs_and_makes_it_equal(project, write_run, database, url):
    made = LedgerTarget(project, url)
    assert isinstance(made, Projection)
    writer = write_run().start().lay(10).save().evaluate(10)
    assert made.difference(write_run(2).run) is None
    found = made.difference(writer.run)
    assert (found.text.split(",")[0][:12], found.behind) == ("found no run", True)
    made.shipper(writer.run).ship()
    assert made.difference(writer.run) is None
    writer.lay(10).save().end()
    assert made.difference(writer.run).behind
    made.shipper(writer.run).ship()
    for statement, message in (
        ("UPDATE ledger_run SET step = 7", "ledger_run: step is 7, expected 20"),
        ("UPDATE ledger_score SET value = 0.9 WHERE task = 'cloze'", r"ledger_score: found .*0\.9.*, expected .*0\.5"),
        ("DELETE FROM ledger_read", r"ledger_read: found None, expected \{"),
    ):
        with database.writing() as connection:
            connection.execute(sqlalchemy.text(statement))
        found = made.difference(writer.run)
        assert re.search(message, found.text)
        assert not found.behind
        made.rebuild(writer.run)
        assert made.difference(writer.run) is None
