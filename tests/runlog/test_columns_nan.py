"""Columns of a run whose newest loss is NaN, which equals nothing: as equal and as mendable as any others."""

import math

import numpy as np

from treering.record.start import start
from treering.runlog.columns.attempt import AttemptColumns
from treering.runlog.columns.compare import columns_difference
from treering.runlog.recorded_directory import RecordedRunDirectory


def test_columns_whose_newest_number_is_nan_are_equal_and_built_again_where_damaged(tmp_path):
    with start("diverged", folder=tmp_path) as run:
        run.step(loss=1.0)
        run.step(loss=math.nan)
    (attempt,) = RecordedRunDirectory(run.path).attempts()
    assert AttemptColumns(attempt).head().metrics["loss"].nans == 1
    assert columns_difference(attempt) is None
    (part,) = (attempt.path / "columns").glob("rows-*")
    part.write_bytes(b"torn")
    assert "found a damaged part" in columns_difference(attempt)[0]
    assert np.array_equal(AttemptColumns(attempt).history("loss").values, [1.0, math.nan], equal_nan=True)
    assert columns_difference(attempt) is None
