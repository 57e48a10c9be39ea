"""Frames of runs that other trainers reported, and curves by the pyramid against the same curves by rows."""

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from run_writer import run_writers

from treering.errors import UserError
from treering.metrics.lines.read import run_line
from treering.project import Project
from treering.record.start import start
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering_dashboard.frames.buckets import Envelope
from treering_dashboard.frames.reads import compare_reads
from treering_dashboard.frames.recorded import read_recorded
from treering_dashboard.panels.axis import axis_of


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def directory(run) -> RecordedRunDirectory:
    return RecordedRunDirectory(run.path)


def interrupted(steps: int, **options):
    """A run that reported steps and a checkpoint after the third one, and whose process was interrupted."""
    run = start("loop", **options)
    for step in range(1, steps + 1):
        run.step(loss=10.0 - step, tokens=np.full((2, 8), step))
        if step == 3:
            Path("ckpt").mkdir()
            run.checkpoint("ckpt")
    run.interrupt("by the test")
    return run


def test_what_the_trainer_calls_a_metric_of_the_catalog_has_its_title_and_no_unit() -> None:
    with start("names") as run:
        run.step(loss=2.0, lr=1e-3, grad_norm=1.0, **{"layer.0/norm": 5.0, "speed/tokens_per_second": 9.0})
        run.step(loss=1.0, train_loss=7.0)
    path = read_recorded(directory(run)).path
    assert path.latest("train/loss") == 1.0
    assert path.latest("train_loss") == 7.0, "a second name of one key keeps its own"
    assert (path.describe("train/loss").title, path.describe("train/loss").unit) == ("Loss", "")
    assert path.describe("optim/learning_rate").title == "Learning rate"
    assert path.describe("layer.0/norm").title == "layer.0/norm"
    assert path.describe("speed/tokens_per_second").unit == "tokens/s", "the catalog's own name has its unit"
    assert "speed/reported_tokens_per_second" not in path, "the trainer reports its speed itself"


def test_a_restart_keeps_what_it_replaced_and_counts_on() -> None:
    run = interrupted(5)
    with start("loop") as resumed:
        for step in (4, 5, 6):
            resumed.step(loss=1.0, tokens=np.full((2, 8), step))
    frames = read_recorded(directory(run))
    assert frames.path.fact("step").tolist() == [1, 2, 3, 4, 5, 6]
    assert frames.path.fact("attempt").tolist() == [1, 1, 1, 2, 2, 2]
    assert frames.path.fact("tokens").tolist() == [16, 32, 48, 64, 80, 96]
    assert frames.replaced.fact("step").tolist() == [4, 5]
    assert frames.replaced.fact("tokens").tolist() == [64, 80]
    assert [(each.step, each.attempt, each.replaced_steps) for each in frames.restarts] == [(4, 2, 2)]
    assert (np.diff(frames.path.fact("process_s")) > 0).all()
    summary = run_line(directory(run))
    assert (summary.state, summary.step, summary.checkpoint_step, summary.at_risk_steps) == ("finished", 6, 3, 3)
    assert (summary.consumed_tokens, summary.num_steps, summary.recorded) == (96, None, True)


def test_time_and_speed_follow_from_the_reports() -> None:
    run = interrupted(3)
    rings = list(directory(run).attempts()[0].rings())
    path = read_recorded(directory(run)).path
    seconds = [second.ended_at - first.ended_at for first, second in pairwise(rings)]
    positions, values = path.points("time/report")
    assert positions.tolist() == [1, 2], "before the first report there is no other"
    assert values.tolist() == pytest.approx(seconds)
    assert path.points("speed/reported_tokens_per_second")[1].tolist() == pytest.approx([16 / s for s in seconds])


def test_of_several_ranks_the_tokens_of_one_are_no_speed() -> None:
    run = start("ranks", rank=0, world_size=2)
    run.step(loss=1.0, tokens=np.zeros((2, 8), int))
    run.interrupt("by the test")
    frames = read_recorded(directory(run))
    assert "speed/reported_tokens_per_second" not in frames.path
    assert (frames.all_ranks, frames.path.fact("tokens").tolist()) == (False, [16])
    assert not run_line(directory(run)).all_ranks
    assert axis_of("tokens", [frames]).title == "Consumed tokens, of rank 0 alone"


def test_the_tokens_of_several_ranks_are_added_up() -> None:
    ranks = [start("ranks", rank=rank, world_size=2) for rank in (0, 1)]
    for _ in range(2):
        for run in ranks:
            run.step(loss=1.0, tokens=np.zeros((2, 8), int))
    for run in ranks[::-1]:
        run.finish()
    frames = read_recorded(directory(ranks[0]))
    assert (frames.all_ranks, frames.path.fact("tokens").tolist()) == (True, [32, 64])
    assert "speed/reported_tokens_per_second" in frames.path
    assert axis_of("tokens", [frames]).title == "Consumed tokens"
    assert axis_of("step", [frames]).title == "Step"
    part = read_recorded(directory(interrupted(3)))
    assert axis_of("tokens", [frames, replace(part, all_ranks=False)]).title == (
        "Consumed tokens, of some runs of rank 0 alone"
    )


def test_runs_without_a_common_step_with_samples_are_both_named(tmp_path: Path) -> None:
    with start("plain") as run:
        run.step(loss=1.0)
    with run_writers(Project(tmp_path)) as write:
        own = write().start().lay(2).end().run
        expected = f"runs {run.id} and {own.id}: found no step whose samples both runs report, expected at least one; "
        with pytest.raises(UserError, match=expected + "pass tokens= to run.step in the recorded run"):
            compare_reads(directory(run), own)


def test_a_changed_ring_ends_the_path_and_is_named() -> None:
    run = interrupted(5)
    rings = directory(run).attempts()[0].rings_file
    rings.write_text(rings.read_text().replace('"loss":7.0', '"loss":6.0'))
    frames = read_recorded(directory(run))
    assert frames.path.fact("step").tolist() == [1, 2]
    assert "rings.jsonl line 3" in str(frames.problems[0])
    assert run_line(directory(run)).state == "damaged"


def test_the_pyramid_draws_what_the_rows_say() -> None:
    random = np.random.default_rng(1)
    losses = 2 + random.normal(0, 0.1, 7000)
    losses[4321], losses[100] = 42.0, math.nan
    norms = np.exp(random.normal(0, 1, 7000))
    norms[6000] = -1.0
    with start("long") as run:
        for loss, norm in zip(losses.tolist(), norms.tolist(), strict=True):
            run.step({"loss": loss, "grad_norm": norm} | ({"rare": loss} if norm > 5 else {}))
    path = read_recorded(directory(run)).path
    keys = ["train/loss", "train/grad_norm", "rare", "time/report"]
    drawn = path.drawn(keys, ["wall_s"], limit=100)
    assert len(drawn.rows) <= 100
    starts = np.searchsorted(path.fact("step"), np.append([1], drawn.rows["step"].to_numpy()[:-1] + 1))
    assert set(np.diff(starts)) == {128, 64}, "whole buckets of the pyramid"
    for key in keys:
        expected = Envelope.of(path.series(key), starts, positive=path.describe(key).logarithmic)
        for name in ("last", "lo", "hi", "bad"):
            found = getattr(drawn.envelopes[key], name)
            assert np.array_equal(found, getattr(expected, name), equal_nan=True), (key, name)
    assert drawn.envelopes["train/loss"].hi.max() == 42.0
    assert drawn.envelopes["train/loss"].bad.sum() == 1
    assert drawn.envelopes["train/grad_norm"].bad.sum() == 1
    newest = path.last(100)
    assert newest.drawn(["train/loss"]).envelopes["train/loss"].last.tolist() == losses[-100:].tolist()
    assert newest.fact("process_s")[0] > 0, "time before the window counts"
