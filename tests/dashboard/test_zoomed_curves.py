"""A part of a long run is cut anew from the columns, with every spike of the part and none of the rest."""

from pathlib import Path

import numpy as np
import pytest

import treering
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering_dashboard.frames.curves import Curves
from treering_dashboard.frames.recorded import read_recorded

LOSS = "train/loss"
STEPS, LIMIT = 10_000, 50


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Curves:
    folder: Path = tmp_path_factory.mktemp("long")
    with treering.start("long", folder=folder) as run:
        for step in range(1, STEPS + 1):
            run.step(loss={2000: 99.0, 6000: 42.0, 8999: 17.0}.get(step, 2.0 + step / STEPS))
    return read_recorded(RecordedRunDirectory(run.path)).path


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
