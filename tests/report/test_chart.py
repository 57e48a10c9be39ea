"""Thinning keeps what matters."""

from hypothesis import given
from hypothesis import strategies as st

from treering.report.chart import thin

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=400)


@given(VALUES, st.integers(4, 50))
def test_thinning_keeps_order_bounds_and_extremes(values, limit):
    points = list(enumerate(values))
    kept = thin(points, limit)
    assert kept == sorted(kept)
    assert set(kept) <= set(points)
    assert len(kept) <= max(limit + 2, 2)
    assert min(value for _, value in kept) == min(values)
    assert max(value for _, value in kept) == max(values)


def test_a_single_spike_among_many_survives():
    points = [(step, 1.0) for step in range(100_000)]
    points[54_321] = (54_321, 99.0)
    assert (54_321, 99.0) in thin(points)
