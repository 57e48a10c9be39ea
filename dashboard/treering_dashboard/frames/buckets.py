"""Downsampling on the server: a chart gets at most a thousand buckets, and no extreme is ever lost.

A bucket is a run of consecutive rows of one segment. It keeps minimum, maximum and last value of every metric, and how
many values were no numbers, so that a spike of one step among a million stays visible at its full height.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

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
    def joined(cls, parts: Sequence["Envelope"]) -> "Envelope":
        """Buckets one after the other."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("last", "lo", "hi", "bad")))

    def merged(self, starts: Positions) -> "Envelope":
        """Consecutive buckets as one.

        Args:
            starts: number of the first bucket of each new one, rising, from 0 on.
        """
        if len(starts) == len(self.last):
            return self
        newest = np.maximum.reduceat(np.where(np.isnan(self.last), -1, np.arange(len(self.last))), starts)
        return Envelope(
            np.where(newest >= 0, self.last[newest], math.nan),
            np.fmin.reduceat(self.lo, starts),
            np.fmax.reduceat(self.hi, starts),
            np.add.reduceat(self.bad, starts),
        )

    @classmethod
    def of_buckets(cls, buckets: Buckets, *, positive: bool = False) -> "Envelope | None":
        """The same from buckets of the columns; None where these do not say, and the rows must be read.

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
    columns: dict[str, npt.NDArray[Any]] = {}
    for metric in metrics:
        values = frame[metric].to_numpy(dtype=np.float64)
        found = Envelope.of(Series(values, np.ones(len(values), bool)), starts)
        parts = {"": found.last, "_lo": found.lo, "_hi": found.hi, "_bad": found.bad}
        columns |= {f"{metric}{part}": each for part, each in parts.items()}
    return pd.concat([result, pd.DataFrame(columns)], axis=1)


def bucket_starts(segments: Positions, limit: int) -> Positions:
    """First row of every bucket; segments are kept apart unless there are more of them than buckets."""
    return starts_between((np.flatnonzero(np.diff(segments)) + 1).tolist(), len(segments), limit)


def starts_between(seams: Sequence[int], rows: int, limit: int) -> Positions:
    """First row of every bucket.

    Args:
        seams: first rows of the segments behind the first one, which are kept apart unless there are too many.
        rows: how many there are.
        limit: most buckets.
    """
    if len(seams) >= limit:
        seams = ()
    size = math.ceil(rows / (limit - len(seams))) if rows > limit else 1
    edges = [0, *seams, rows]
    return np.concatenate([np.arange(a, b, size, dtype=np.int64) for a, b in pairwise(edges)])


def last_rows(starts: Positions, rows: int) -> Positions:
    """Last row of every bucket."""
    return np.append(starts[1:], rows) - 1
