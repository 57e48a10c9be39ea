"""Downsampling on the server: a chart gets at most a thousand buckets, and no extreme is ever lost.

A bucket is a run of consecutive rows of one segment. It keeps minimum, maximum and last value of every metric, and how
many values were no numbers, so that a spike of one step among a million stays visible at its full height.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from treering.runlog.columns.buckets import Buckets
from treering.runlog.columns.rows import Series

MAX_BUCKETS: Final = 1000

_Floats = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Envelope:
    """A metric in buckets, one array each.

    Attributes:
        last: the last value that can be drawn; NaN if no value can be drawn.
        lo: the smallest value that can be drawn; NaN if no value can be drawn.
        hi: the largest value that can be drawn; NaN if no value can be drawn.
        bad: how many values cannot be drawn: not finite, or not above zero on a log axis.
    """

    last: _Floats
    lo: _Floats
    hi: _Floats
    bad: Positions

    @classmethod
    def of(cls, series: Series, starts: Positions, *, positive: bool = False) -> "Envelope":
        """The buckets of a series.

        Args:
            series: one value a row; a row without the value is not a bad one.
            starts: position of the first row of each bucket, rising, from 0 on.
            positive: whether it is drawn on a log axis, where zero and below count as no numbers.
        """
        drawn = series.known & np.isfinite(series.values)
        if positive:
            drawn &= series.values > 0
        if drawn.all():  # most metrics, in a third of the time
            values, ends = series.values, last_rows(starts, len(drawn))
            lo, hi = (choose.reduceat(values, starts) for choose in (np.minimum, np.maximum))
            return cls(values[ends], lo, hi, np.zeros(len(starts), np.int64))
        values = np.where(drawn, series.values, math.nan)
        positions = np.maximum.reduceat(np.where(drawn, np.arange(len(values)), -1), starts)
        return cls(
            np.where(positions >= 0, values[positions], math.nan),
            np.fmin.reduceat(values, starts),
            np.fmax.reduceat(values, starts),
            np.add.reduceat((series.known & ~drawn).astype(np.int64), starts),
        )

    @classmethod
    def of_buckets(cls, buckets: Buckets, *, positive: bool = False) -> "Envelope | None":
        """The same from buckets of the columns; None where these do not tell, and the rows must be read.

        They count infinity and values below zero as numbers.
        """
        some = buckets.count > buckets.nans
        edges = (buckets.minimum[some], buckets.maximum[some], buckets.last[some])
        if not all(np.isfinite(edge).all() for edge in edges) or (positive and (edges[0] <= 0).any()):
            return None
        last = np.where(some, buckets.last, math.nan)
        return cls(last, buckets.minimum, buckets.maximum, buckets.nans)


def downsample(frame: pd.DataFrame, metrics: Sequence[str], *, limit: int = MAX_BUCKETS) -> pd.DataFrame:
    """Cuts a frame into at most `limit` buckets.

    Args:
        frame: rows in order, with a column `segment` that no bucket crosses.
        metrics: columns to aggregate.
        limit: most buckets.

    Returns:
        One row a bucket: every other column's last value, `count`, and for each metric `m` its last finite value `m`,
        `m_lo`, `m_hi` (NaN where no value is finite) and `m_bad`, the number of values that cannot be drawn.
    """
    if frame.empty:
        return frame.assign(count=[], **{f"{m}{part}": [] for m in metrics for part in ("_lo", "_hi", "_bad")})
    starts = bucket_starts(frame["segment"].to_numpy(), limit)
    ends = last_rows(starts, len(frame))
    facts = [name for name in frame.columns if name not in metrics]
    result = frame.iloc[ends][facts].reset_index(drop=True).assign(count=ends - starts + 1)
    for metric in metrics:
        values = frame[metric].to_numpy(dtype=np.float64)
        found = Envelope.of(Series(values, np.ones(len(values), bool)), starts)
        parts = {"": found.last, "_lo": found.lo, "_hi": found.hi, "_bad": found.bad}
        result = result.assign(**{f"{metric}{part}": each for part, each in parts.items()})
    return result


def bucket_starts(segments: Positions, limit: int) -> Positions:
    """First row of every bucket; segments are kept apart unless there are more of them than buckets."""
    rows = len(segments)
    seams = np.flatnonzero(np.diff(segments)) + 1
    if len(seams) >= limit:
        seams = seams[:0]
    size = math.ceil(rows / (limit - len(seams))) if rows > limit else 1
    edges = [0, *seams.tolist(), rows]
    return np.concatenate([np.arange(a, b, size, dtype=np.int64) for a, b in pairwise(edges)])


def last_rows(starts: Positions, rows: int) -> Positions:
    """Last row of every bucket."""
    return np.append(starts[1:], rows) - 1
