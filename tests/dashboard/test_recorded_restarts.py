"""Frames and panels of recorded runs that started several times, and of what they report rarely."""

import json
import shutil
from pathlib import Path

import pytest
from dashboard_page import page, table

from treering.record.start import start
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering_dashboard.frames.curves import Curves
from treering_dashboard.frames.recorded import read_recorded
from treering_dashboard.frames.telemetry import read_telemetry
from treering_dashboard.panels.axis import Placement, axis_of
from treering_dashboard.panels.training import restart_marks


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TREERING_ROOT", str(tmp_path))


def attempt(steps: range, checkpoint: int | None, name: str = "loop") -> RecordedRunDirectory:
    """An interrupted attempt: the loss of a step is the step's number, a checkpoint is behind one of the steps."""
    run = start(name)
    for step in steps:
        run.step(step=step, loss=float(step))
        if step == checkpoint:
            Path(f"ckpt-{step}").mkdir()
            run.checkpoint(f"ckpt-{step}")
    run.interrupt("by the test")
    return RecordedRunDirectory(run.path)


@pytest.fixture
def thrice() -> RecordedRunDirectory:
    """To step 100, back to 50 and to 90, back to 60 and to 165."""
    attempt(range(1, 101), 50)
    attempt(range(51, 91), 60)
    return attempt(range(61, 166), None)


def drawn(curves: Curves, limit: int) -> list[float]:
    return curves.drawn(["train/loss"], ["wall_s"], limit).envelopes["train/loss"].last.tolist()


def test_a_window_of_replaced_steps_takes_part_of_each_attempt(thrice) -> None:
    frames = read_recorded(thrice)
    assert len(frames.replaced) == 80
    replaced = frames.last(100).replaced
    wanted = [*range(66, 101), *range(66, 91)]
    assert replaced.fact("step").tolist() == wanted
    assert drawn(replaced, 1000) == wanted
    assert drawn(frames.replaced.between(95, 97), 1000) == [95, 96, 97]


def test_a_window_of_a_broken_path_takes_part_of_each_attempt(thrice) -> None:
    shutil.rmtree(thrice.attempts()[1].path)
    frames = read_recorded(thrice)
    assert frames.problems
    assert drawn(frames.last(100).path, 1000) == [*range(66, 101), *range(66, 166)]
    assert frames.path.at([61, 100, 165, 166])["step"].tolist() == [61, 100, 165]
    assert frames.path.at([61])["attempt"].tolist() == [1]


@pytest.mark.slow
def test_the_pyramid_places_a_window_of_several_attempts() -> None:
    attempt(range(1, 7001), 1000)
    attempt(range(1001, 6001), 2000)
    run = attempt(range(2001, 2003), None)
    found = read_recorded(run).replaced.between(2401, None).drawn(["train/loss"], ["wall_s"], 128)
    ends = found.rows["step"].tolist()
    assert found.envelopes["train/loss"].last.tolist() == ends
    assert ends[ends.index(7000) + 1] < 2600, "the second attempt begins its window anew"
    assert set(found.rows["count"]) > {64}, "whole buckets of the pyramid"


def test_a_restart_at_a_step_that_reported_nothing_is_marked_at_the_next_one() -> None:
    attempt(range(10, 601, 10), 500)
    frames = read_recorded(attempt(range(510, 601, 10), None))
    assert [each.step for each in frames.restarts] == [501]
    marks = restart_marks(frames, Placement.of(axis_of("step", [frames]), [frames.path]))
    assert marks["x"].tolist() == [510]
    assert marks["label"].tolist() == ["attempt 2 (resume) from step 501, 100 steps done again"]


def test_readings_stay_where_a_first_step_has_no_time() -> None:
    run = start("timed")
    for step in range(1, 4):
        run.step({"loss": 1.0} | ({"time/step": 0.5} if step > 1 else {}))
    run.finish()
    folder = run.path / "attempts" / "0001" / "telemetry"
    folder.mkdir(exist_ok=True)
    directory = RecordedRunDirectory(run.path)
    rows = [
        {"time": ring.ended_at, "rank": 0, "values": {"device/power": 300.0 + ring.step}}
        for ring in directory.attempts()[0].rings()
    ]
    (folder / "rank-0.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    steps = read_telemetry(directory, read_recorded(directory).path).steps
    assert dict(zip(steps["step"], steps["device_power"], strict=True)) == {1: 301.0, 2: 302.0, 3: 303.0}


def test_an_attempt_that_has_just_started_is_not_abandoned() -> None:
    attempt(range(1, 6), 3)
    run = start("loop")
    assert table(page("run", run=run.path.name), "Command")["Counts"].tolist() == ["no step yet", "to step 3"]
    run.interrupt("by the test")
    assert table(page("run", run=run.path.name), "Command")["Counts"].tolist() == ["no step", "to step 3"]


def test_a_path_is_one_word_of_a_command() -> None:
    run = start("loop")
    run.step(loss=1.0)
    Path("my ckpt; rm").mkdir()
    run.checkpoint("my ckpt; rm")
    run.finish()
    checkpoint = RecordedRunDirectory(run.path).checkpoint_files()[0].stem
    app = page("audit", run=run.path.name, checkpoint=checkpoint)
    assert app.code[-1].value == "treering audit 'my ckpt; rm'"
