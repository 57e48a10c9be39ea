"""Which points of a long run are kept: a bounded number, every extreme, the same however the run grew."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treering.runlog.columns.rows import Series
from treering.ship.decimation import BUCKETS, WHOLE, buckets_of, kept


def starts_of(count, first=0):
    return np.flatnonzero(np.diff(buckets_of(np.arange(first, first + count)), prepend=-1))


def test_buckets_grow_with_each_doubling():
    numbers = np.arange(200_000)
    sizes = np.bincount(buckets_of(numbers))
    assert sizes[:WHOLE].tolist() == [1] * WHOLE
    assert sizes[WHOLE : WHOLE + BUCKETS].tolist() == [4] * BUCKETS
    assert sizes[WHOLE + BUCKETS : WHOLE + 2 * BUCKETS].tolist() == [8] * BUCKETS
    assert (np.diff(buckets_of(numbers)) >= 0).all()
    far = np.array([WHOLE * 2**40, WHOLE * 2**40 + (4 << 40)])
    assert np.diff(buckets_of(far)).tolist() == [1]


@pytest.mark.parametrize(("rings", "most"), [(10_000, 10_000), (20_000, 15_000), (1_000_000, 43_000)])
def test_a_metric_has_a_bounded_number_of_points(rings, most):
    values = np.random.default_rng(1).normal(size=rings)
    series = Series(values, np.ones(rings, bool))
    count = int(kept(series, np.isfinite(values), starts_of(rings)).sum())
    assert most * 0.98 < count <= most


numbers = st.one_of(st.sampled_from([0.0, 1.0, -1.0, math.nan, math.inf, -math.inf, 1e301]), st.floats(-5, 5))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.none(), numbers), min_size=1, max_size=60), st.integers(0, 40_000))
def test_every_bucket_keeps_its_extremes_and_its_first_undrawable_number(values, first):
    known = np.array([value is not None for value in values])
    array = np.array([math.nan if value is None else value for value in values])
    drawable = np.abs(array) < 1e300
    starts = starts_of(len(values), first)
    found = kept(Series(array, known), drawable, starts)
    for start, end in zip(starts, [*starts[1:], len(values)], strict=True):
        rows = range(start, end)
        drawn = [row for row in rows if known[row] and drawable[row]]
        rest = [row for row in rows if known[row] and not drawable[row]]
        wanted = {min(drawn, key=lambda row: array[row]), max(drawn, key=lambda row: array[row])} if drawn else set()
        wanted |= {rest[0]} if rest else set()
        assert set(np.flatnonzero(found[start:end]) + start) == wanted
