"""Makes the points of one call to MLflow of rows: what is kept of each bucket, and the numbers that are not drawn."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from treering.metrics.alarms import Alarm
from treering.ship.decimation import kept
from treering.ship.projection import alarm_series
from treering.ship.windows import Window
from treering.store.values import LARGEST_VALUE, MAX_METRICS, Point


@dataclass(frozen=True, slots=True)
class Batch:
    """The points of consecutive whole buckets.

    Attributes:
        points: about as many as one call takes; more where one bucket has more.
        rings: how many rings they are of.
        last_step: of the last ring.
        non_finite: the numbers that MLflow stores as NaN, those that are not among the points too.
    """

    points: Sequence[Point]
    rings: int
    last_step: int
    non_finite: list[dict[str, Any]]


def batches(window: Window, alarms: Sequence[Alarm]) -> Iterator[Batch]:
    """The points of a window.

    Args:
        window: the rows.
        alarms: of these steps and of others.
    """
    judged = alarm_series(alarms, window.steps)
    metrics = dict(window.metrics) | judged
    drawable = {name: np.abs(each.values) < LARGEST_VALUE for name, each in metrics.items()}
    masks = {name: kept(each, drawable[name], window.starts) for name, each in sorted(metrics.items())}
    count = len(window.steps)
    per_row = np.sum(list(masks.values()), axis=0) if masks else np.zeros(count, np.int64)
    ends = np.append(window.starts[1:], count)
    totals = np.cumsum(per_row)[ends - 1]
    timestamps = np.round(window.ended_at * 1000).astype(np.int64)
    first = 0
    while first < len(ends):
        before = int(totals[first - 1]) if first else 0
        after = max(first + 1, int(np.searchsorted(totals, before + MAX_METRICS, "right")))
        start, end = (int(ends[first - 1]) if first else 0), int(ends[after - 1])
        points = [
            Point(name, value, step, timestamp)
            for name, mask in masks.items()
            for rows in [start + np.flatnonzero(mask[start:end])]
            for value, step, timestamp in zip(
                metrics[name].values[rows].tolist(),
                window.steps[rows].tolist(),
                timestamps[rows].tolist(),
                strict=True,
            )
        ]
        bad = [
            (int(window.steps[row]), name, float(metrics[name].values[row]))
            for name in masks
            if name not in judged
            for row in start + np.flatnonzero(metrics[name].known[start:end] & ~drawable[name][start:end])
        ]
        listed = [{"step": step, "metric": name, "value": value} for step, name, value in sorted(bad, key=_place)]
        yield Batch(points, end - start, int(window.steps[end - 1]), listed)
        first = after


def _place(entry: tuple[int, str, float]) -> tuple[int, str]:
    return entry[0], entry[1]
