"""Downsampling keeps every extreme, never crosses a restart, never sends more than a thousand buckets."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treering.runlog.columns.rows import Series
from treering_dashboard.frames.buckets import MAX_BUCKETS, Envelope, downsample


def frame(values: list[float], segments: list[int] | None = None) -> pd.DataFrame:
    return pd.DataFrame({"segment": segments or [0] * len(values), "step": range(1, len(values) + 1), "loss": values})


@settings(max_examples=60)
@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), min_size=1, max_size=400),
    st.integers(1, 50),
    st.integers(0, 5),
)
def test_extremes_and_counts_survive_any_size(values: list[float], limit: int, seams: int) -> None:
    cuts = np.linspace(0, len(values), seams + 2).astype(int)
    segments = np.repeat(np.arange(seams + 1), np.diff(cuts)).tolist()
    found = downsample(frame(values, segments), ["loss"], limit=limit)
    finite = [value for value in values if math.isfinite(value)]
    assert len(found) <= limit
    assert found["count"].sum() == len(values)
    assert found["loss_bad"].sum() == len(values) - len(finite)
    if finite:
        assert found["loss_hi"].max() == max(finite)
        assert found["loss_lo"].min() == min(finite)
    else:
        assert found["loss"].isna().all()
    assert found["step"].iloc[-1] == len(values)


def test_a_spike_of_one_step_in_a_million_keeps_its_height() -> None:
    values = np.full(1_000_000, 2.0)
    values[123_456] = 9.5
    found = downsample(pd.DataFrame({"segment": 0, "step": np.arange(1, 1_000_001), "loss": values}), ["loss"])
    assert len(found) == MAX_BUCKETS
    spiked = found[found["loss_hi"] > 2]
    assert spiked["loss_hi"].tolist() == [9.5]
    assert spiked["loss_lo"].tolist() == [2.0]
    assert spiked["step"].iloc[0] >= 123_457 > spiked["step"].iloc[0] - 1000


def test_a_bucket_shows_its_last_finite_value() -> None:
    found = downsample(frame([1.0, 5.0, math.nan, 7.0, math.inf, math.nan]), ["loss"], limit=2)
    assert found["loss"].tolist() == [5.0, 7.0]
    assert found["loss_bad"].tolist() == [1, 2]


def test_no_bucket_crosses_a_restart() -> None:
    segments = [0] * 30 + [1] * 70
    found = downsample(frame([float(step) for step in range(100)], segments), ["loss"], limit=10)
    assert len(found) <= 10
    assert found[found["segment"] == 0]["loss_hi"].max() == 29.0
    assert found[found["segment"] == 1]["loss_lo"].min() == 30.0


def test_on_a_log_axis_zero_and_below_are_counted_not_drawn() -> None:
    series = Series(np.array([0.0, -1.0, 3.0, math.nan]), np.array([True, True, True, False]))
    found = Envelope.of(series, np.array([0]), positive=True)
    assert (found.lo.item(), found.hi.item(), found.last.item(), found.bad.item()) == (3.0, 3.0, 3.0, 2)


def test_short_runs_are_drawn_step_by_step() -> None:
    found = downsample(frame([3.0, 2.0, 1.0]), ["loss"])
    assert found["loss"].tolist() == [3.0, 2.0, 1.0]
    assert found["count"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("columns", [["loss"]])
def test_nothing_gives_nothing(columns: list[str]) -> None:
    found = downsample(frame([]), columns)
    assert len(found) == 0
    assert {"loss", "loss_lo", "loss_hi", "loss_bad", "count"} <= set(found.columns)
