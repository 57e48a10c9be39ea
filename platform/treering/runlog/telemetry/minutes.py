"""The roll-up: of each metric and minute the mean, the lowest and the highest reading, and whose they were.

A part has a file of them, so that a chart of weeks reads no single reading. A minute at the border of two parts has a
row in each; `Minutes.joined` makes one of them.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from treering.runlog.telemetry.parts import PartName, parquet, read_table
from treering.runlog.telemetry.readings import NONE, Readings

MINUTES: Final = "minutes"
_MINUTE_S: Final = 60


@dataclass(frozen=True, slots=True)
class Place:
    """Where a reading was taken.

    Attributes:
        node: number of the node.
        rank: global rank, `NONE` for the node's own readings.
        device: NVML's index, `NONE` without a device.
    """

    node: int
    rank: int
    device: int

    def __str__(self) -> str:
        if self.rank == NONE:
            return f"node {self.node}"
        return f"rank {self.rank}" if self.device == NONE else f"rank {self.rank}, device {self.device}"


@dataclass(frozen=True, slots=True)
class Minute:
    """The readings of a metric in a minute.

    Attributes:
        metric: key of the metric catalog.
        began: Unix seconds of the minute's start.
        count: how many readings.
        mean: over all of them.
        low: the lowest; `low_place` has it.
        low_place: where it was taken.
        high: the highest; `high_place` has it.
        high_place: where it was taken.
    """

    metric: str
    began: int
    count: int
    mean: float
    low: float
    low_place: Place
    high: float
    high_place: Place

    def joined(self, other: "Minute") -> "Minute":
        """One row of two of the same minute and metric."""
        count = self.count + other.count
        low, high = (self if self.low <= other.low else other), (self if self.high >= other.high else other)
        mean = (self.mean * self.count + other.mean * other.count) / count
        return Minute(self.metric, self.began, count, mean, low.low, low.low_place, high.high, high.high_place)


def minutes_of(readings: Readings) -> list[Minute]:
    """The roll-up of readings, by metric and time."""
    found = []
    of_row = np.floor_divide(readings.times, _MINUTE_S).astype(np.int64)
    for began in np.unique(of_row):
        rows = np.flatnonzero(of_row == began)
        for metric, column in readings.values.items():
            own = column[rows]
            known = np.isfinite(own)
            if not known.any():
                continue
            places, values = rows[known], own[known]
            low, high = int(np.argmin(values)), int(np.argmax(values))
            found.append(
                Minute(
                    metric,
                    int(began) * _MINUTE_S,
                    len(values),
                    float(values.mean()),
                    float(values[low]),
                    _place(readings, places[low]),
                    float(values[high]),
                    _place(readings, places[high]),
                )
            )
    return joined(found)


def joined(every: Iterable[Minute]) -> list[Minute]:
    """One row for each metric and minute, by metric and time."""
    found: dict[tuple[str, int], Minute] = {}
    for minute in every:
        key = (minute.metric, minute.began)
        found[key] = found[key].joined(minute) if key in found else minute
    return [found[key] for key in sorted(found)]


def encode_minutes(minutes: Collection[Minute]) -> bytes:
    """The file of a roll-up."""
    columns: dict[str, Any] = {
        "metric": pa.array([each.metric for each in minutes], pa.string()).dictionary_encode(),
        "began": pa.array([each.began for each in minutes], pa.int64()),
        "count": pa.array([each.count for each in minutes], pa.int64()),
    }
    columns |= {name: pa.array([getattr(each, name) for each in minutes], pa.float64()) for name in _VALUES}
    for end in ("low", "high"):
        places = [getattr(each, f"{end}_place") for each in minutes]
        columns |= {f"{end}_{name}": pa.array([getattr(each, name) for each in places], pa.int64()) for name in _PLACE}
    return parquet(pa.table(columns))


def read_minutes(folder: Path, name: PartName, metrics: Collection[str] | None = None) -> list[Minute]:
    """The roll-up of a part.

    Args:
        folder: the attempt's `telemetry/`.
        name: of the part.
        metrics: the metrics to read; None: all.

    Raises:
        DamagedPartError: the file is not whole.
        FileNotFoundError: there is none.
    """
    rows = read_table(folder / MINUTES / str(name)).to_pylist()
    return [
        Minute(
            **{key: row[key] for key in ("metric", "began", "count", *_VALUES)},
            low_place=Place(*(row[f"low_{field}"] for field in _PLACE)),
            high_place=Place(*(row[f"high_{field}"] for field in _PLACE)),
        )
        for row in rows
        if metrics is None or row["metric"] in metrics
    ]


_VALUES: Final = ("mean", "low", "high")
_PLACE: Final = ("node", "rank", "device")


def _place(readings: Readings, row: Any) -> Place:
    return Place(int(readings.nodes[row]), int(readings.ranks[row]), int(readings.devices[row]))
