"""When a run is stalled: multiples of the step time, validation, saving, starting; and which ranks are silent."""

import json
import os

import pytest
import run_records
from audited_project import lay_project

from treering.metrics.lines.read import run_line
from treering.metrics.state import SAVE_S, START_S, condition, rank_names
from treering.runlog.directory import RunDirectory
from treering.runlog.find import find_runs
from treering.runlog.lock import acquire
from treering.runlog.ring import Ring
from treering.runlog.writer import RingWriter


@pytest.fixture
def begin(tmp_path, request):
    """Begins an attempt whose steps end a second apart at full batch, and holds the run's lock."""
    lay_project(tmp_path)
    (run,) = find_runs(tmp_path / "runs")
    resolved = run.resolved

    def lay(steps: int, step_s: float = 0.6, at: float = 1000.0, **changed) -> RunDirectory:
        attempt = run.path / "attempts" / "0003"
        attempt.mkdir()
        digest = run_records.header(resolved, 3, started_at=at).write(attempt / "header.json")
        with RingWriter(attempt / "rings.jsonl", Ring, digest) as writer:
            for step in range(1, steps + 1):
                lo, hi = resolved.schedule.sample_range(step)
                times = {"step": step_s * (hi - lo) / 16, **changed.get(f"step_{step}", {})}
                writer.append(
                    **run_records.ring_values(
                        step, (lo, hi), resolved.blend.sequence_length, time_s=times, ended_at=at + step
                    )
                )
        held = acquire(run.lock)
        request.addfinalizer(lambda: os.close(held))
        return run

    return lay


def telemetry(run: RunDirectory, newest: dict[int, float]) -> None:
    folder = run.path / "attempts" / "0003" / "telemetry"
    folder.mkdir()
    for rank, at in newest.items():
        rows = [{"time": moment, "rank": rank, "values": {"process/rss": 1}} for moment in (at - 1, at)]
        (folder / f"rank-{rank}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_run_of_short_steps_is_stalled_after_30_seconds(begin):
    run = begin(5)
    assert condition(run, 1005 + 30).state == "running"
    stalled = condition(run, 1005 + 50)
    assert (stalled.state, stalled.step, stalled.silent_s, stalled.limit_s) == ("stalled", 5, 50, 30)
    assert stalled.stall == "no step for 50 s after step 5, expected one within 30 s; no rank has telemetry"


def test_long_steps_have_five_of_them_and_a_ramp_makes_them_longer(begin):
    run = begin(4, step_s=40)  # of 4 samples each, 10 s; the next step has 4 or more
    schedule = run.resolved.schedule
    start, end = schedule.sample_range(5)
    assert condition(run, 1100).limit_s == pytest.approx(5 * 40 / 16 * (end - start))
    start, end = schedule.sample_range(4)
    assert condition(run, 1100).limit_s >= 5 * 40 / 16 * (end - start)


def test_a_step_with_a_checkpoint_has_time_to_save(begin):
    run = begin(15)  # a checkpoint every fifteen steps, none measured
    assert condition(run, 1100).limit_s == 30 + SAVE_S


def test_a_measured_save_replaces_the_allowance(begin):
    run = begin(15, step_7={"checkpoint": 20.0})
    assert condition(run, 1100).limit_s == 30 + 2 * 20


def test_an_attempt_has_half_an_hour_to_begin(begin):
    run = begin(0)
    assert condition(run, 1000 + START_S).state == "running"
    found = condition(run, 1001 + START_S)
    assert found.stall == "no step for 1,801 s since the attempt began, expected one within 1,800 s; " + (
        "no rank has telemetry"
    )


def test_a_line_carries_the_stall(begin):
    run = begin(5)
    line = run_line(run)
    assert (line.state, bool(line.stall)) == ("stalled", True)
    assert "stalled" in json.dumps(line.to_json())


@pytest.mark.parametrize(
    ("newest", "said"),
    [
        ({0: 1099, 1: 1007, 2: 1099}, "silent: rank 1 of 3 ranks"),
        ({0: 1099, 1: 1007, 10: 1006, 2: 1099}, "silent: ranks 1, 10 of 4 ranks"),
        ({0: 1099, 1: 1099}, "the telemetry of all 2 ranks goes on"),
        ({0: 1008, 1: 1007}, "all 2 ranks are silent"),
    ],
)
def test_the_silent_rank_is_named(begin, newest, said):
    run = begin(5)
    telemetry(run, newest)
    assert condition(run, 1100).stall.endswith(said)


def test_many_ranks_are_counted():
    assert rank_names([3]) == "rank 3"
    assert rank_names(range(2240)) == "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2,232 more"


def test_a_rank_that_was_stopped_before_its_first_reading_is_silent(begin):
    run = begin(5)
    world_size = run.attempts()[-1].header.layout.world_size
    telemetry(run, {0: 1099.0})
    found = condition(run, 1100)
    assert (found.silent_ranks, found.ranks) == (tuple(range(1, world_size)), world_size)
    assert world_size > 1
