"""Downsampling on the server: a chart gets at most a thousand buckets, and no extreme is ever lost.

A bucket is a run of consecutive rows of one segment. It keeps minimum, maximum and last value of every metric, and how
many values were no numbers, so that a spike of one step among a million stays visible at its full height.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

MAX_BUCKETS: Final = 1000

_Floats = npt.NDArray[np.float64]
_Starts = npt.NDArray[np.int64]


def downsample(
    frame: pd.DataFrame, metrics: Sequence[str], *, positive: Sequence[str] = (), limit: int = MAX_BUCKETS
) -> pd.DataFrame:
    """Cuts a frame into at most `limit` buckets.

    Args:
        frame: rows in order, with a column `segment` that no bucket crosses.
        metrics: columns to aggregate.
        positive: those of them that are drawn on a log axis, where zero and below count as no numbers.
        limit: most buckets.

    Returns:
        One row a bucket: every other column's last value, `count`, and for each metric `m` its last finite value `m`,
        `m_lo`, `m_hi` (NaN where no value is finite) and `m_bad`, the number of values that cannot be drawn.
    """
    if frame.empty:
        return frame.assign(count=[], **{f"{m}{part}": [] for m in metrics for part in ("_lo", "_hi", "_bad")})
    starts = _bucket_starts(frame["segment"].to_numpy(), limit)
    ends = np.append(starts[1:], len(frame)) - 1
    facts = [name for name in frame.columns if name not in metrics]
    result = frame.iloc[ends][facts].reset_index(drop=True).assign(count=ends - starts + 1)
    for metric in metrics:
        values = frame[metric].to_numpy(dtype=np.float64, copy=True)
        bad = ~np.isfinite(values) | ((values <= 0) if metric in positive else False)
        values[bad] = math.nan
        result[metric] = _last_finite(values, starts)
        result[f"{metric}_lo"] = np.fmin.reduceat(values, starts)
        result[f"{metric}_hi"] = np.fmax.reduceat(values, starts)
        result[f"{metric}_bad"] = np.add.reduceat(bad.astype(np.int64), starts)
    return result


def _bucket_starts(segments: npt.NDArray[np.int64], limit: int) -> _Starts:
    """First row of every bucket; segments are kept apart unless there are more of them than buckets."""
    rows = len(segments)
    seams = np.flatnonzero(np.diff(segments)) + 1
    if len(seams) >= limit:
        seams = seams[:0]
    size = math.ceil(rows / (limit - len(seams))) if rows > limit else 1
    edges = [0, *seams.tolist(), rows]
    return np.concatenate([np.arange(a, b, size, dtype=np.int64) for a, b in pairwise(edges)])


def _last_finite(values: _Floats, starts: _Starts) -> _Floats:
    positions = np.where(np.isnan(values), -1, np.arange(len(values)))
    last = np.maximum.reduceat(positions, starts)
    return np.where(last >= 0, values[last], math.nan)
