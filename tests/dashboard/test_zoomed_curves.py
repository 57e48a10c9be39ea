"""A part of a long run is cut anew from the columns, with every spike of the part and none of the rest."""

import math
import shutil
from pathlib import Path

import numpy as np
import pytest

import treering
from treering.metrics.lines.read import run_line
from treering.runlog.columns.attempt import AttemptColumns
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering_dashboard.frames import sources
from treering_dashboard.frames.curves import Curves
from treering_dashboard.frames.recorded import read_recorded

LOSS = "train/loss"
STEPS, LIMIT = 10_000, 50


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RecordedRunDirectory:
    folder: Path = tmp_path_factory.mktemp("long")
    with treering.start("long", folder=folder) as run:
        for step in range(1, STEPS + 1):
            run.step(loss={2000: 99.0, 6000: 42.0, 8999: 17.0}.get(step, 2.0 + step / STEPS))
    return RecordedRunDirectory(run.path)


@pytest.fixture(scope="module")
def path(run: RecordedRunDirectory) -> Curves:
    return read_recorded(run).path


def test_a_part_has_its_own_buckets_of_the_columns(path: Curves) -> None:
    part = path.between(4001, 9000)
    drawn = part.drawn([LOSS], limit=LIMIT)
    assert len(part) == 5000
    found = drawn.envelopes[LOSS]
    assert LIMIT - 2 <= len(found.last) <= LIMIT + 2
    assert sorted(found.hi)[-2:] == [17.0, 42.0]
    assert found.lo.min() == pytest.approx(2.4, abs=0.02)
    steps = drawn.rows["step"].to_numpy()
    assert (np.diff(steps) > 0).all()
    assert steps[-1] == 9000
    whole = path.drawn([LOSS], limit=LIMIT)
    assert whole.envelopes[LOSS].hi.max() == 99.0
    assert np.diff(whole.rows["step"]).mean() > 1.8 * np.diff(steps).mean(), "the part is cut finer"


def test_a_short_part_has_every_row(path: Curves) -> None:
    part = path.between(5990, 6010)
    drawn = part.drawn([LOSS, "time/report"], limit=LIMIT)
    assert drawn.rows["step"].tolist() == list(range(5990, 6011))
    assert drawn.envelopes[LOSS].last[10] == 42.0
    assert len(drawn.envelopes["time/report"].last) == 21
    assert part.fact("wall_s")[0] == path.fact("wall_s")[5989]
    assert (part.last_step, part.last_drawn) == (STEPS, 6010)
    assert len(path.between(STEPS + 1, STEPS + 9)) == 0


def test_parts_in_memory_hold_what_the_columns_hold(
    run: RecordedRunDirectory, path: Curves, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "KEPT_ROWS", 1000)
    source = path.stretches[0].source
    columns = AttemptColumns(run.attempts()[0])
    names = ["ended_at", "metric/loss"]
    for after, last_step in ((0, STEPS), (0, STEPS), (1, STEPS - 1), (4321, 8765), (STEPS - 1, STEPS), (STEPS, STEPS)):
        steps, found = source.series(names, after, last_step)
        wanted, expected = columns.series(names, after, last_step)
        assert steps.tolist() == wanted.tolist()
        for name in names:
            np.testing.assert_array_equal(found[name].values, expected[name].values)
            np.testing.assert_array_equal(found[name].known, expected[name].known)


def test_a_new_ring_shows_though_parts_are_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "KEPT_ROWS", 10)
    with treering.start("live", folder=tmp_path) as run:
        for step in range(1, 101):
            run.step(loss=float(step), tokens=np.ones((1, 8), np.int64))
        before = read_recorded(RecordedRunDirectory(run.path)).path
        assert (len(before), before.latest(LOSS), before.fact("tokens")[-1]) == (100, 100.0, 800)
        run.step(loss=0.5, tokens=np.ones((1, 80), np.int64))
        after = read_recorded(RecordedRunDirectory(run.path)).path
        assert (len(after), after.series(LOSS).values[-1], after.fact("tokens")[-1]) == (101, 0.5, 880)
        assert after.series(LOSS).values[:100].tolist() == before.series(LOSS).values.tolist()


def test_a_run_that_is_written_anew_in_the_same_folder_shows_its_own_rings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "KEPT_ROWS", 10)
    seen = []
    for loss in (1.0, 2.0):
        with treering.start("anew", folder=tmp_path / "project") as run:
            for _ in range(50):
                run.step(loss=loss)
        place = tmp_path / "place"
        run.path.rename(place)
        path = read_recorded(RecordedRunDirectory(place)).path
        seen.append(set(path.series(LOSS).values.tolist()))
        shutil.rmtree(place)
    assert seen == [{1.0}, {2.0}]


def test_no_rows_have_the_columns_of_rows(path: Curves) -> None:
    none, one = path.frame([]), path.frame([0])
    assert none.dtypes.to_dict() == one.dtypes.to_dict()
    assert (len(none), len(path.at([STEPS + 1]))) == (0, 0)


def test_the_sparkline_of_a_long_run_keeps_every_spike(run: RecordedRunDirectory) -> None:
    curve = run_line(run).loss_curve
    assert len(curve) == 24
    assert [curve[step * 24 // STEPS] for step in (2000, 6000, 8999)] == [99.0, 42.0, 17.0]
    assert sum(each > 4 for each in curve) == 3


def test_the_sparkline_leaves_out_an_infinite_loss(tmp_path: Path) -> None:
    with treering.start("infinite", folder=tmp_path) as run:
        for step in range(1, 3001):
            run.step(loss=math.inf if step == 1500 else 7.0 if step == 1501 else 2.0)
    curve = run_line(RecordedRunDirectory(run.path)).loss_curve
    assert (len(curve), max(curve), min(curve)) == (24, 7.0, 2.0)
