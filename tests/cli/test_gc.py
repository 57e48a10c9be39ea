"""`treering gc`: what is offered, what is never offered, what is lost, and what a kill leaves."""

import json
import os
import shutil
import time

import pytest
from run_writer import run_writers

from treering.project import Project
from treering.runlog.chronicle import record_left, record_set_aside
from treering.runlog.journal import CheckpointRemoved, Promoted
from treering.runlog.lock import acquire
from treering.runlog.removal import rename_for_removal
from treering.runlog.reproductions import Reproduction, ReproductionFolder, reproduction_lines
from treering.runlog.telemetry.ingest import ingest
from treering.runlog.telemetry.live import LiveWriter
from treering.runlog.telemetry.reading import TelemetryFolder


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with run_writers(Project(tmp_path)) as writers:
        yield writers


@pytest.fixture
def rewound(write):
    """Steps 1 to 30 with checkpoints 10, 20 and 30; then from 10 again to step 25, where 20 is written again."""
    writer = write().start()
    for _ in range(3):
        writer.lay(10).save()
    writer.end("interrupted", "by hand")
    run = writer.run
    record_left(run)
    first, second, _ = run.checkpoints()
    record_set_aside(run, second, run.path / "superseded-0001")
    (run.path / "superseded-0001").mkdir()
    second.path.rename(run.path / "superseded-0001" / second.path.name)
    writer.start(first).lay(10).save()
    writer.lay(5).end()
    record_left(run)
    for checkpoint in (*run.checkpoints(), *run.superseded()):
        (checkpoint.path / "layer_00.safetensors").write_bytes(bytes(1000))
    return writer


def asked(treering, *words):
    code, out, err = treering("gc", *words, "--json")
    assert code == 0, err
    return json.loads(out)


def offered(answer):
    return [(each["kind"], "/".join(each["path"].rsplit("/", 2)[1:])) for each in answer["things"]]


ABANDONED = [("superseded", "superseded-0001/step-00000020"), ("abandoned", "checkpoints/step-00000030")]


def test_what_no_path_needs_is_offered_with_what_is_lost(rewound, treering):
    answer = asked(treering, "--dry-run")
    assert offered(answer) == ABANDONED
    assert all(
        each["bytes"] > 1000 and "its weights" in each["lost"] and not each["deleted"] for each in answer["things"]
    )
    assert [each.step for each in rewound.run.checkpoints()] == [10, 20, 30]
    code, out, _ = treering("gc", "--dry-run")
    assert code == 0
    assert "lost with superseded: its weights: it cannot be exported, scored, replayed" in out


def test_what_is_deleted_is_on_record_and_the_audit_knows_it(rewound, treering):
    code, _, err = treering("gc")
    assert (code, "there is no terminal to ask on; give --yes" in err) == (2, True)
    answer = asked(treering, rewound.run.id[:8], "--yes")
    assert all(each["deleted"] for each in answer["things"])
    assert [each.step for each in rewound.run.checkpoints()] == [10, 20]
    assert rewound.run.superseded() == []
    entries = [line.entry for line in rewound.run.journal.lines() if isinstance(line.entry, CheckpointRemoved)]
    assert [(each.step, each.reason) for each in entries] == [
        (20, "treering gc: superseded"),
        (30, "treering gc: abandoned"),
    ]
    assert asked(treering, "--yes")["things"] == []
    code, out, _ = treering("verify", str(rewound.run.path), "--json")
    texts = [finding["text"] for finding in json.loads(out)["findings"]]
    assert [text for text in texts if "is missing" in text and "checkpoint of step" in text] == []


def test_promoted_started_from_and_running_are_kept(rewound, write, treering):
    run = rewound.run
    third = next(each for each in run.checkpoints() if each.step == 30)
    promoted = {"by": "me", "alias": "production", "level": "recorded", "required": "recorded"}
    run.journal.append(Promoted(at=time.time(), step=30, checkpoint=third.digest, **promoted))
    other = write(seed=2).start(run.superseded()[0], origin="start").lay(1).end()
    assert other.run.attempts()[0].header.parent.checkpoint == run.superseded()[0].digest
    answer = asked(treering, "--dry-run")
    assert answer["things"] == []
    assert [text.split(": ", 1)[1] for text in answer["kept"]] == [
        f"run {other.run.path.name} started from it",
        "promoted as production",
    ]
    rewound.hold()
    assert [text.split(": ", 1)[1] for text in asked(treering, "--dry-run")["kept"]] == ["the run is running"]


def test_what_a_killed_process_left_is_offered(rewound, treering):
    run = rewound.run
    (run.checkpoints_folder / ".saving-step-00000040").mkdir()
    (run.conversions_folder / ".converting-step-00000010").mkdir(parents=True)
    rename_for_removal(run, run.superseded()[0], "treering gc: superseded")  # and killed before it was deleted
    assert offered(asked(treering, "--dry-run", "--kind", "unfinished")) == [
        ("unfinished", "checkpoints/.saving-step-00000040"),
        ("unfinished", "universal/.converting-step-00000010"),
        ("unfinished", "superseded-0001/.removing-step-00000020"),
    ]
    asked(treering, "--yes")
    assert [path.name for path in run.path.rglob(".*")] == []


def lay_reproduction(run, number, **changes):
    folder = ReproductionFolder(run.path / f"reproductions/{number:04d}")
    (folder.runs / "new/attempts").mkdir(parents=True)
    (folder.runs / "new/attempts/rings.jsonl").write_bytes(bytes(500))
    (folder.runs / "new/corpora").symlink_to(run.path)
    (folder.path / "notes.txt").write_bytes(bytes(30))
    fields = {"run": run.resolved.recipe.digest, "started_at": 1.0, "first_step": 1, "last_step": 2, "from_step": 0}
    fields |= {"environment": "present", "plan": {}, "comparison": {}, "verdict": {}, "identical": True}
    Reproduction(**(fields | {"ended_at": 2.0, "sentence": f"Identical {number}."} | changes)).write(folder.file)
    return folder


def test_finished_reproductions_but_the_newest_are_offered_and_their_records_stay(rewound, treering):
    run = rewound.run
    first, held, damaged, newest = (lay_reproduction(run, number) for number in range(1, 5))
    going_on = lay_reproduction(run, 5, ended_at=None)
    damaged.file.write_text(damaged.file.read_text().replace("Identical", "Different"))
    descriptor = acquire(held.lock)
    words = ("--kind", "reproduction")
    answer = asked(treering, *words, "--dry-run")
    assert [(each["path"], each["bytes"]) for each in answer["things"]] == [(str(first.path), 530)]
    assert "lists and pages keep its verdict" in answer["things"][0]["lost"]
    of_damaged, of_held = answer["kept"]
    assert ("digest sha256" in of_damaged, of_held) == (True, f"{held.path}: a process makes it")
    os.close(descriptor)
    assert [each["deleted"] for each in asked(treering, *words, "--yes")["things"]] == [True, True]
    assert [sorted(path.name for path in each.path.iterdir()) for each in (first, held)] == [
        ["lock", "reproduction.json"]
    ] * 2
    assert all((each.runs / "new/attempts/rings.jsonl").exists() for each in (damaged, newest, going_on))
    assert [each["sentence"] for each in reproduction_lines(run)][:2] == ["Identical 1.", "Identical 2."]
    assert asked(treering, *words, "--yes")["things"] == []


def test_columns_and_indexes_are_deleted_where_they_are_named(rewound, treering, tmp_path):
    assert treering("show", rewound.run.id)[0] == 0
    columns = rewound.directory / "columns"
    columns.mkdir(exist_ok=True)
    (tmp_path / ".treering/index/books").mkdir(parents=True)
    assert offered(asked(treering, "--kind", "columns", "--kind", "index", "--yes"))[-1] == ("index", "index/books")
    assert not columns.exists()
    assert not any((tmp_path / ".treering/index").iterdir())
    assert treering("show", rewound.run.id)[0] == 0


@pytest.mark.parametrize("command", [["gc", "--yes"], ["archive"]])
def test_a_published_copy_is_refused(rewound, treering, tmp_path, command):
    published = tmp_path / "published"
    shutil.copytree(rewound.run.path, published)
    code, _, err = treering(command[0], str(published), *command[1:])
    expected = f"{published}: a published copy, which DVC tracks; expected the run itself: `treering {command[0]} "
    assert (code, expected + rewound.run.id in " ".join(err.split())) == (2, True), err
    assert (published / "superseded-0001/step-00000020").is_dir()


def test_the_readings_of_a_finished_run_are_deleted_and_the_roll_up_stays(rewound, treering):
    folder = rewound.directory / "telemetry"
    collector = LiveWriter(folder, 0)
    for second in range(90):
        collector.append(1_764_000_000.0 + second, [0], [0], {"device/power": [300.0]})
    collector.close_segment()
    ingest(folder, {0})
    rewound.end("interrupted", "by hand")
    assert asked(treering, "--kind", "telemetry", "--yes")["things"] == [], "the run may go on"
    rewound.end("finished")
    (minutes,) = (folder / "minutes").iterdir()
    whole = minutes.read_bytes()
    minutes.write_bytes(b"torn")
    answer = asked(treering, "--kind", "telemetry", "--yes")
    assert (answer["things"], "the roll-up of 00000000" in answer["kept"][0]) == ([], True)
    minutes.write_bytes(whole)
    energy = str(TelemetryFolder(folder).energy()[0].devices)
    answer = asked(treering, "--kind", "telemetry", "--yes")
    assert offered(answer) == [("telemetry", "telemetry/parts")]
    assert answer["things"][0]["lost"].startswith("the sensors' single readings: ")
    assert not (folder / "parts").exists()
    assert [each.count for each in TelemetryFolder(folder).minutes()] == [60, 30]
    assert str(TelemetryFolder(folder).energy()[0].devices) == energy != "{}"
    (folder / ".parts.deleted").mkdir()  # of a call that was killed
    assert offered(asked(treering, "--kind", "telemetry", "--yes")) == [("telemetry", "telemetry/.parts.deleted")]
    assert not (folder / ".parts.deleted").exists()


@pytest.mark.usefixtures("rewound")
def test_an_unknown_kind_is_named(treering):
    code, _, err = treering("gc", "--kind", "rings")
    assert (code, "found --kind rings, expected one of unfinished, superseded" in err) == (2, True)


def test_a_damaged_journal_keeps_all_of_its_run(rewound, treering):
    journal = rewound.run.path / "journal.jsonl"
    journal.write_text(journal.read_text().replace("checkpoint_set_aside", "checkpoint_removed", 1))
    answer = asked(treering, "--dry-run")
    assert answer["things"] == []
    assert "journal.jsonl line" in answer["kept"][0]
