"""From real run directories to frames: restarts, spikes, what a crash would cost, evidence that does not hold."""

import os
import shutil

import pandas as pd
import pytest

from treering.metrics.lines.read import run_line
from treering.runlog.directory import RunDirectory
from treering.runlog.lock import acquire
from treering_dashboard.frames.curves import Curves
from treering_dashboard.frames.rings import read_run


def rows(curves: Curves) -> pd.DataFrame:
    """All rows with their facts, and the metrics by key."""
    return curves.frame(slice(None)).assign(**{key: curves.series(key).values for key in curves.metrics})


def test_a_restart_cuts_the_path_and_keeps_what_it_replaced(lay_run) -> None:
    run = RunDirectory(lay_run(restart_after=100, lost_steps=17))
    frames = read_run(run)
    path, replaced = rows(frames.path), rows(frames.replaced)
    assert path["step"].tolist() == list(range(1, 307))
    assert path.groupby("segment")["step"].agg(["min", "max"]).to_numpy().tolist() == [[1, 100], [101, 306]]
    assert replaced["step"].tolist() == list(range(101, 118))
    (restart,) = frames.restarts
    assert (restart.step, restart.attempt, restart.origin, restart.replaced_steps) == (101, 2, "resume", 17)
    assert frames.problems == ()
    # Replaced steps stand beside the path where they were done, on every axis.
    for name in ("wall_s", "process_s", "tokens", "samples"):
        at_return = path[name].iloc[99]
        assert at_return < replaced[name].iloc[0] < at_return + (path[name].iloc[101] - at_return) + 60


def test_every_axis_rises_along_the_path(lay_run) -> None:
    path = rows(read_run(RunDirectory(lay_run(restart_after=100))).path)
    for name in ("step", "samples", "tokens", "wall_s", "process_s"):
        assert (path[name].diff().iloc[1:] > 0).all(), name
    # The clock counts the pause between two attempts, process time does not.
    assert path["wall_s"].iloc[-1] - path["process_s"].iloc[-1] > 45


def test_values_are_those_of_the_rings(lay_run) -> None:
    run = RunDirectory(lay_run())
    frames = read_run(run)
    ring = list(run.path_rings())[41]
    row = rows(frames.path).iloc[41]
    assert (row["train/loss"], row["train/grad_norm"], row["tokens"], row["samples"]) == (
        ring.loss,
        ring.grad_norm,
        ring.consumed_tokens,
        ring.consumed_samples,
    )
    assert row["time/data_wait"] == ring.time_s["data_wait"]


def test_held_out_losses_are_rows_of_their_own(lay_run) -> None:
    run = RunDirectory(lay_run())
    frames = read_run(run)
    assert sorted(frames.held_out_corpora) == ["factbook", "pubmed", "python"]
    assert frames.held_out()["step"].tolist() == list(range(25, 307, 25))
    measured = {ring.step: ring.validation for ring in run.path_rings() if ring.validation}
    of_python = frames.held_out("python")
    assert of_python[of_python["step"] == 250]["loss"].item() == measured[250]["by_corpus"]["python"]


def test_spikes_are_found_where_they_were_laid(lay_run) -> None:
    frames = read_run(RunDirectory(lay_run(spike_at=190)))
    assert 191 in [alarm.step for alarm in frames.alarms if alarm.metric == "train/grad_norm"]
    assert {alarm.step for alarm in frames.alarms} <= {190, 191, 192}
    assert read_run(RunDirectory(lay_run(spike_at=0, seed=9))).alarms == ()


def test_work_at_risk_is_what_stands_behind_the_last_checkpoint(lay_run) -> None:
    run = RunDirectory(lay_run(stop_at=240, status="interrupted"))
    frames = read_run(run)
    path = rows(frames.path)
    summary = run_line(run, now=path["ended_at"].iloc[-1] + 90)
    assert (summary.state, summary.reason) == ("interrupted", "interrupted after step 240: interrupted by the test")
    assert (summary.step, summary.num_steps, summary.checkpoint_step, summary.at_risk_steps) == (240, 306, 200, 40)
    assert summary.age_s == pytest.approx(90)
    assert summary.at_risk_s == pytest.approx(path["time/step"].iloc[200:].sum())
    assert summary.consumed_tokens == path["tokens"].iloc[-1]


def test_states(lay_run) -> None:
    def state(run) -> str:
        return run_line(run).state

    assert state(RunDirectory(lay_run(seed=1))) == "finished"
    assert state(RunDirectory(lay_run(seed=2, status="failed"))) == "failed"
    running = RunDirectory(lay_run(seed=3, stop_at=50, status=None))
    assert state(running) == "broken"
    held = acquire(running.lock)
    assert state(running) == "stalled"
    assert run_line(running).remaining_s is None
    ended_at = list(running.path_rings())[-1].ended_at
    alive = run_line(running, now=ended_at + 29)
    assert (alive.state, alive.remaining_s > 0) == ("running", True)
    os.close(held)
    assert state(running) == "broken"
    empty = RunDirectory(lay_run(seed=4))
    shutil.rmtree(empty.path / "attempts")
    shutil.rmtree(empty.path / "checkpoints")
    assert state(empty) == "empty"
    assert run_line(empty).loss is None


def edit_ring(run, line: int) -> None:
    path = run / "attempts" / "0001" / "rings.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    lines[line - 1] = lines[line - 1].replace('"loss":', '"loss":1', 1)
    path.write_text("".join(lines))


def test_an_edited_ring_ends_the_path_and_is_named(lay_run) -> None:
    path = lay_run()
    edit_ring(path, 150)
    run = RunDirectory(path)
    frames = read_run(run)
    assert frames.path.last_step == 149
    (problem,) = frames.problems
    assert "rings.jsonl line 150: ring of step 150" in str(problem)
    assert (problem.file, problem.line) == (path / "attempts" / "0001" / "rings.jsonl", 150)
    assert run_line(run).state == "damaged"


def test_an_edited_ring_before_the_point_of_return_still_shows_its_attempt(lay_run) -> None:
    path = lay_run(restart_after=100)
    edit_ring(path, 50)
    frames = read_run(RunDirectory(path))
    assert "line 50" in str(frames.problems[0])
    assert frames.path.fact("step")[48] == 49


def test_a_missing_header_is_named(lay_run) -> None:
    path = lay_run()
    (path / "attempts" / "0001" / "header.json").unlink()
    frames = read_run(RunDirectory(path))
    assert frames.num_steps == 0
    assert "there is no header.json beside it" in str(frames.problems[0])
    assert frames.problems[0].file == path / "attempts" / "0001" / "header.json"


def test_an_edited_header_is_named(lay_run) -> None:
    path = lay_run()
    header = path / "attempts" / "0001" / "header.json"
    header.write_text(header.read_text().replace("node-17", "node-18"))
    run = RunDirectory(path)
    frames = read_run(run)
    assert frames.num_steps == 0
    assert any("header.json" in str(problem) and "the file was changed" in str(problem) for problem in frames.problems)
    assert run_line(run).state == "damaged"


def test_an_edited_config_is_named(lay_run) -> None:
    path = lay_run()
    resolved = path / "resolved.json"
    resolved.write_text(resolved.read_text().replace('"seed": 7', '"seed": 8'))
    run = RunDirectory(path)
    summary = run_line(run)
    assert summary.state == "damaged"
    assert any("resolved.json" in str(problem) for problem in summary.problems)
    assert summary.step == 306


def test_an_edited_manifest_is_named(lay_run) -> None:
    path = lay_run()
    manifest = path / "checkpoints" / "step-00000200" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"step": 200', '"step": 201'))
    run = RunDirectory(path)
    assert run_line(run).state == "finished", "a list reads the newest manifest alone"
    summary = run_line(run).with_problems(read_run(run).problems)
    assert summary.state == "damaged"
    assert any("step-00000200" in str(problem) for problem in summary.problems)


def test_a_window_keeps_the_newest_steps_alone(lay_run) -> None:
    frames = read_run(RunDirectory(lay_run(restart_after=100, spike_at=190))).last(100)
    assert rows(frames.path)["step"].tolist() == list(range(207, 307))
    assert frames.held_out()["step"].tolist() == [225, 250, 275, 300]
    assert (frames.alarms, frames.restarts, len(frames.replaced)) == ((), (), 0)
