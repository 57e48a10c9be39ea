"""What a live page draws from parts in memory is what all rows give: of new rings, of a restart, of a branch."""

import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from audited_project import lay_attempt, start_run
from run_records import parent

from treering.record.start import start
from treering.runlog.find import find_runs
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering_dashboard.frames import sources
from treering_dashboard.frames.buckets import Envelope
from treering_dashboard.frames.curves import FACTS, Curves
from treering_dashboard.frames.recorded import read_recorded
from treering_dashboard.frames.rings import read_run

LIMIT = 20
NEVER = 1 << 60


@dataclass
class Seen:
    """What a page asks of a path, and whether parts of the path were in memory."""

    kept: bool
    rows: list[pd.DataFrame]
    numbers: list[Any]


def seen(path: Curves) -> Seen:
    """All metrics together and each alone, the newest values, extents, and rows of steps."""
    kept = any(piece.part for piece in path._rows.pieces)
    facts = [name for name in FACTS if name != "samples" or path.cumulative]
    rows, numbers = [], []
    for keys in (list(path.metrics), *([key] for key in path.metrics)):
        drawn = path.drawn(keys, facts, LIMIT)
        rows.append(drawn.rows)
        numbers += [getattr(drawn.envelopes[key], part) for key in keys for part in ("last", "lo", "hi", "bad")]
    steps = [1, 5, 7, 8, 1500, 1907, 1908, path.last_step, path.last_step + 1]
    rows.append(path.at(steps, facts))
    every = path.fact("step")
    assert rows[-1]["step"].tolist() == [step for step in steps if step in every]
    numbers += [path.extent(fact) for fact in ("step", "wall_s", "process_s")]
    numbers += [path.latest(key) for key in path.metrics]
    numbers.append([path.first_from(step) or 0 for step in steps])
    return Seen(kept, rows, numbers)


def assert_of_all_rows(path: Curves) -> None:
    """The buckets of each metric are those of its series."""
    for keys in (list(path.metrics), *([key] for key in path.metrics)):
        drawn = path.drawn(keys, (), LIMIT)
        starts = np.append(0, np.cumsum(drawn.rows["count"])[:-1])
        for key in keys:
            found = Envelope.of(path.series(key), starts, positive=path.describe(key).logarithmic)
            for part in ("last", "lo", "hi", "bad"):
                np.testing.assert_array_equal(getattr(drawn.envelopes[key], part), getattr(found, part))
    assert path.extent("step") == (path.fact("step").min(), path.fact("step").max())


def assert_live_as_whole(monkeypatch: pytest.MonkeyPatch, read: Callable[[], Curves], rows: int) -> None:
    """A path is drawn the same, bit by bit, with parts of so many rows in memory and without."""
    found = []
    for least in (rows, rows, NEVER):
        monkeypatch.setattr(sources, "KEPT_ROWS", least)
        found.append(seen(read()))
        assert_of_all_rows(read())
    assert [each.kept for each in found] == [True, True, False]
    for live in found[:2]:
        for one, other in zip(live.rows, found[2].rows, strict=True):
            pd.testing.assert_frame_equal(one, other, check_exact=True)
        for one, other in zip(live.numbers, found[2].numbers, strict=True):
            np.testing.assert_array_equal(one, other)


def report(run, steps: range, random: np.random.Generator, *, tokens: bool) -> None:
    """Steps with gaps; the loss is at times infinite, another metric rare, at times NaN, and below zero."""
    for step in steps:
        if step % 50 != 7:
            values = {"loss": math.inf if step % 701 == 0 else float(random.normal(2, 1))}
            if step % 3 == 0:
                values["rare"] = math.nan if step % 9 == 0 else float(random.normal())
            run.step(values, step=step, **({"tokens": np.full((1, 1 + step % 5), 1)} if tokens else {}))


def assert_run(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """The path of a recorded run, and the steps off the path."""
    assert_live_as_whole(monkeypatch, lambda: read_recorded(RecordedRunDirectory(folder)).path, 100)
    if len(read_recorded(RecordedRunDirectory(folder)).replaced):
        assert_live_as_whole(monkeypatch, lambda: read_recorded(RecordedRunDirectory(folder)).replaced, 100)


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [True, False])
def test_new_rings_and_a_restart_that_replaces_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, tokens: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(6)
    run = start("loop")
    report(run, range(1, 1901), random, tokens=tokens)
    Path("ckpt").mkdir()
    run.checkpoint("ckpt")
    for steps in (range(1901, 2600), range(2600, 2602), range(2602, 3300)):
        report(run, steps, random, tokens=tokens)
        assert_run(monkeypatch, run.path)
    run.interrupt("by the test")
    run = start("loop")
    for first in (1901, 2601):
        report(run, range(first, first + 700), random, tokens=tokens)
        assert_run(monkeypatch, run.path)
    replaced = read_recorded(RecordedRunDirectory(run.path)).replaced
    assert (replaced.fact("step")[0], replaced.last_step) == (1901, 3299)
    run.interrupt("by the test")


@pytest.mark.slow
def test_a_branch(audited, monkeypatch: pytest.MonkeyPatch) -> None:
    first = find_runs(audited.runs)[0]
    origin = (f"start_from.run='{first.id}'", "start_from.step=6", "start_from.schedule=continue")
    branch = start_run(audited, "blend.components.0.weight='0.1'", "blend.components.2.weight='0.6'", *origin)
    begin = parent(first.checkpoints()[0])
    for last in (8, 9):
        shutil.rmtree(branch.path / "attempts", ignore_errors=True)
        lay_attempt(audited, branch, 1, range(7, last + 1), begin)
        assert read_run(branch).path.fact("step").tolist() == list(range(1, last + 1))
        assert_live_as_whole(monkeypatch, lambda: read_run(branch).path, 2)
