"""Which numbers of a long run a store gets that takes nothing back: few of them, every extreme among them.

The first 10,000 rings of a path are kept whole. The rings after them are put in buckets, and of each bucket and metric
the lowest, the highest and the first number that is not finite are kept. Each doubling of the rings has 2,500 buckets:
4 rings a bucket from ring 10,000 on, 8 from 20,000 on, 512 at ring 1,280,000. So a metric has at most 10,000 points and
about 5,000 more for each doubling: 43,000 after a million rings.

A bucket is a function of a ring's number on the path alone. So what was kept of a shorter path is kept of the longer
one, and a run that is sent again gives the same points.
"""

from typing import Final

import numpy as np

from treering.runlog.columns.rows import Flags, Integers, Series

WHOLE: Final = 10_000
"""Rings at the beginning of a path that are kept whole."""
BUCKETS: Final = 2_500
"""Buckets of each doubling after them."""

_FAR: Final = np.iinfo(np.int64).max


def buckets_of(numbers: Integers) -> Integers:
    """The bucket of each ring.

    Args:
        numbers: of rings on the path, from 0.

    Returns:
        Numbers of buckets, rising with the rings.
    """
    doubling = np.maximum(np.frexp(numbers // WHOLE)[1] - 1, 0).astype(np.int64)
    inside = (numbers - (WHOLE << doubling)) // ((WHOLE // BUCKETS) << doubling)
    return np.where(numbers < WHOLE, numbers, WHOLE + doubling * BUCKETS + inside)


def kept(series: Series, drawable: Flags, starts: Integers) -> Flags:
    """Which numbers of a metric are kept: of each bucket the lowest, the highest and the first undrawable one.

    Args:
        series: the metric.
        drawable: of each row, whether the store can draw the number.
        starts: the first row of each bucket, rising, from 0 on.
    """
    sizes = np.diff(starts, append=len(drawable))
    rows = np.arange(len(drawable))
    found = np.zeros(len(drawable), bool)
    numbers = series.known & drawable
    of_each = [series.known & ~drawable]
    for choose, neutral in ((np.minimum, np.inf), (np.maximum, -np.inf)):
        values = np.where(numbers, series.values, neutral)
        of_each.append(numbers & (values == np.repeat(choose.reduceat(values, starts), sizes)))
    for candidates in of_each:
        first = np.minimum.reduceat(np.where(candidates, rows, _FAR), starts)
        found[first[first < _FAR]] = True
    return found
