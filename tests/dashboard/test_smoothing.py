"""The moving average: unbiased at its start, blind to density, cut at restarts."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treering_dashboard.frames.smoothing import smooth


def flat(n: int) -> np.ndarray:
    return np.zeros(n, dtype=np.int64)


@given(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=50), st.floats(-5, 5))
def test_a_constant_stays_itself(gaps: list[float], value: float) -> None:
    found = smooth(np.cumsum(gaps), np.full(len(gaps), value), flat(len(gaps)))
    assert found == pytest.approx([value] * len(gaps))


def test_two_points_weigh_by_their_distance() -> None:
    found = smooth(np.array([0.0, 1.0]), np.array([1.0, 2.0]), flat(2), weight=0.5)
    assert found.tolist() == [1.0, pytest.approx((0.5 * 1 + 2) / 1.5)]


def test_each_attempt_starts_anew_and_gaps_are_passed_over() -> None:
    values = np.array([1.0, math.nan, 1.0, 9.0, 9.0])
    found = smooth(np.arange(5.0), values, np.array([0, 0, 0, 1, 1]))
    assert found[[0, 2, 3, 4]].tolist() == pytest.approx([1.0, 1.0, 9.0, 9.0])
    assert math.isnan(found[1])
