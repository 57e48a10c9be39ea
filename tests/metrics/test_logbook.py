"""The logbook of a run: what happened in order, what restarts cost, where no step came, and as Markdown."""

import json

import numpy as np
import pytest
from run_writer import STARTED_AT, run_writers

import treering as api
from treering.metrics.logbook import logbook
from treering.metrics.logbook_text import loss_text, markdown_of, span
from treering.metrics.lost_work import AttemptTimes, Loss, losses, silences
from treering.project import Project
from treering.runlog.journal import Noted, Tagged
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering.runlog.telemetry.events import append_event


@pytest.fixture
def write(tmp_path):
    with run_writers(Project(tmp_path)) as writer:
        yield writer


def restarted(write):
    """Four attempts: killed, rewound behind two attempts, started over; a step a second."""
    writer = write().start().lay(40).save()
    (kept,) = writer.run.checkpoints()
    writer.lay(30).befall("rank_killed", text="signal 9", rank=1, host="node-2").die()
    writer.start(parent=kept).lay(50).end("interrupted", "SIGTERM").die()
    writer.start(parent=kept).lay(5).end("failed", "no [space](x) left").die()
    return writer.start().lay(12).end()


def test_each_end_has_what_its_restart_cost(write) -> None:
    """Lost are the steps that the next attempt went back behind, of all attempts since; the time has the start-up."""
    book = logbook(restarted(write).run)
    ends = {event.attempt: event for event in book.events if event.kind == "end"}
    assert ends[1].lost == Loss(30, 30.0, 971.0, 2)
    assert ends[2].lost == Loss(50, 90.0, 951.0, 2)
    assert ends[3].lost == Loss(5 + 40, 45.0 + 40.0, 956.0, 2)
    assert ends[4].lost is None
    assert [ends[number].title for number in (1, 2, 3, 4)] == [
        "attempt 1 broke off", "attempt 2 interrupted", "attempt 3 failed", "attempt 4 finished",
    ]  # fmt: skip
    assert (book.lost_steps, book.lost_s, book.down_s) == (125, 205.0, 2878.0)
    assert book.lost_device_hours == pytest.approx((205 + 2878) * 2 / 3600)
    assert book.missing == ()


def test_events_are_in_order_and_as_the_records_say(write) -> None:
    writer = restarted(write)
    writer.run.journal.append(Noted(at=STARTED_AT + 1041.5, by="ann", text="lr *looks* high"))
    writer.run.journal.append(Tagged(at=STARTED_AT + 1041.6, by="ann", added=("keep",)))
    folder = writer.run.attempts()[1].telemetry.path
    append_event(folder, 0, {"time": STARTED_AT, "host": "dgx1"})
    append_event(folder, 0, {"time": STARTED_AT + 2060.0, "xids": [{"device": 3, "code": 79}]})
    book = logbook(writer.run)
    assert [event.at for event in book.events] == sorted(event.at for event in book.events)
    told = [(event.kind, event.title, event.text, event.step) for event in book.short() if event.kind != "alarm"]
    assert told[1:4] == [
        ("note", "note of ann", "lr *looks* high", None),
        ("note", "tags of ann", "+keep", None),
        ("end", "attempt 1 broke off", "its processes died without a record of their end", 70),
    ]
    assert told[4][:3] == ("incident", "a rank was killed", "signal 9 (on node-2)")
    assert told[5][1] == "attempt 2 resumes after step 40"
    assert told[6][:3] == ("device", "XID 79", "device 3 of dgx1")
    assert told[-2][1] == "attempt 4 starts over"
    text = markdown_of(book, book.short(), STARTED_AT)
    assert "3 restarts cost 125 steps (3.4 min) done again and 48 min between attempts: 1.71 device-hours" in text
    assert "(step 70): its processes died without a record of their end. Cost: 30 steps (30 s) done again" in text
    assert "**attempt 3 failed** (step 45): no \\[space\\](x) left" in text
    assert "lr \\*looks\\* high" in text


def test_alarms_stand_at_the_time_of_their_step(write) -> None:
    loss = {"loss": lambda step: 40.0 if step == 150 else 4.0 + 0.01 * (step % 7)}
    book = logbook(write().start().lay(200, **loss).end().run)
    (spike,) = (event for event in book.events if event.kind == "alarm")
    assert (spike.title, spike.step, spike.at) == ("spike of the loss", 150, STARTED_AT + 1000 + 150)


def times(gaps: list[float], pauses: dict[int, float] | None = None) -> AttemptTimes:
    ended_at = np.cumsum(gaps, dtype=np.float64)
    known = np.zeros(len(gaps))
    for step, seconds in (pauses or {}).items():
        known[step - 1] = seconds
    return AttemptTimes(1, 0.0, 1, (0, 0), np.arange(1, len(gaps) + 1), ended_at, known)


def test_a_time_without_a_step_is_a_stall_and_validation_is_not() -> None:
    gaps = [2.0] * 100
    gaps[49], gaps[69], gaps[89] = 120.0, 90.0, 29.0
    (found,) = silences(times(gaps, {70: 88.0}))
    assert (found.after, found.began, found.seconds, found.usual) == (49, 98.0, 120.0, 2.0)


def test_steps_that_grow_with_the_batch_are_no_stall() -> None:
    assert silences(times([10.0] * 40 + [45.0] * 40 + [200.0] * 40)) == []
    assert [each.after for each in silences(times([10.0] * 60 + [51.0] + [10.0] * 9))] == [60]
    assert silences(times([1.0, 500.0])) == []


def test_losses_of_attempts_without_steps() -> None:
    none = np.zeros(0)
    first = times([1.0] * 10)
    dead = AttemptTimes(2, 50.0, 4, (1, 6), none.astype(int), none, none)
    third = AttemptTimes(3, 100.0, 4, (1, 6), np.array([7, 8]), np.array([130.0, 131.0]), np.zeros(2))
    assert losses([first, dead, third]) == {1: Loss(4, 4.0, 40.0, 1), 2: Loss(0, 0.0, 80.0, 4)}
    assert losses([first]) == {}
    assert loss_text(Loss(0, 0.0, 80.0, 4)) == "no step done again, 1.3 min until the next step, 0.0889 device-hours"
    assert [span(each) for each in (0.0, 42.0, 210.0, 75_600.0)] == ["0 s", "42 s", "3.5 min", "21 h"]


def test_what_cannot_be_read_is_named_and_the_rest_is_told(write) -> None:
    writer = restarted(write)
    rings = writer.run.attempts()[1].rings_file
    rings.write_bytes(rings.read_bytes().replace(b'"loss":', b'"lost":', 1))
    book = logbook(writer.run)
    assert any("attempts/0002/rings.jsonl" in text for text in book.missing)
    assert {event.attempt for event in book.events if event.kind == "start"} == {1, 2, 3, 4}


def test_the_command_prints_text_json_and_markdown_of_any_trainer(tmp_path, monkeypatch, treering) -> None:
    monkeypatch.chdir(tmp_path)
    with api.start("demo", config={"lr": 0.1}) as run:
        for step in range(1, 5):
            run.step(loss=1 / step)
        run.note("seems *fine*")
        run.score(4, "cloze", {"acc": 0.5})
    found = RecordedRunDirectory(run.path).id
    code, out, _ = treering("logbook", found)
    assert code == 0
    assert "attempt 1 starts" in out
    assert "checkpoints and evaluations left out: 1; --all shows them" in out
    assert "score of cloze" in treering("logbook", found, "--all")[1]
    told = json.loads(treering("logbook", found, "--json")[1])
    assert [event["kind"] for event in told["events"]] == ["start", "note", "evaluation", "end"]
    assert (told["experiment"], told["lost_steps"], told["missing"]) == ("demo", 0, [])
    assert "seems \\*fine\\*" in treering("logbook", found, "--markdown")[1]
