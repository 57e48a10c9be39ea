"""Readings in memory: one row for a rank's device, a rank or a node at a moment, one column a metric."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

NONE: Final = -1
"""Rank of a row that belongs to a node, and device of a row without one."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Readings:
    """Readings; all arrays have one entry a row.

    Attributes:
        times: Unix seconds.
        nodes: number of the node, the lowest rank on it.
        ranks: global rank, `NONE` for a node's own readings.
        devices: NVML's index on the node, `NONE` without a device.
        values: by key of the metric catalog; NaN where there is no reading.
    """

    times: Floats
    nodes: Ints
    ranks: Ints
    devices: Ints
    values: Mapping[str, Floats]

    def __len__(self) -> int:
        return len(self.times)

    @classmethod
    def empty(cls) -> Self:
        """No row and no column."""
        return cls.of([], [], [], [], {})

    @classmethod
    def of(
        cls,
        times: Sequence[float],
        nodes: Sequence[int],
        ranks: Sequence[int],
        devices: Sequence[int],
        values: Mapping[str, Sequence[Any]],
    ) -> Self:
        """Readings of lists; None, and what is no number, is no reading."""
        return cls(
            np.asarray(times, np.float64),
            np.asarray(nodes, np.int64),
            np.asarray(ranks, np.int64),
            np.asarray(devices, np.int64),
            {name: _floats(column) for name, column in values.items()},
        )

    @classmethod
    def joined(cls, parts: Iterable[Self]) -> Self:
        """All rows of several, in this order; a column that one does not have holds no reading there."""
        every = [part for part in parts if len(part)]
        if not every:
            return cls.empty()
        if len(every) == 1:
            return every[0]
        names = dict.fromkeys(name for part in every for name in part.values)
        return cls(
            np.concatenate([part.times for part in every]),
            np.concatenate([part.nodes for part in every]),
            np.concatenate([part.ranks for part in every]),
            np.concatenate([part.devices for part in every]),
            {name: np.concatenate([part.column(name) for part in every]) for name in names},
        )

    def column(self, name: str) -> Floats:
        """A metric; without a reading where it is not there."""
        found = self.values.get(name)
        return np.full(len(self), np.nan) if found is None else found

    def only(self, columns: Collection[str] | None) -> Self:
        """The same rows with some columns; None: all."""
        if columns is None:
            return self
        kept = {name: column for name, column in self.values.items() if name in columns}
        return type(self)(self.times, self.nodes, self.ranks, self.devices, kept)

    def take(self, rows: Any) -> Self:
        """Some rows, by numbers or by a mask."""
        return type(self)(
            self.times[rows],
            self.nodes[rows],
            self.ranks[rows],
            self.devices[rows],
            {name: column[rows] for name, column in self.values.items()},
        )

    def between(self, since: float, until: float) -> Self:
        """The rows after `since`, up to and with `until` (Unix seconds)."""
        inside = (self.times > since) & (self.times <= until)
        return self if inside.all() else self.take(inside)

    def sorted(self) -> Self:
        """By node, rank and device, then by time: each series in one piece."""
        return self.take(np.lexsort((self.times, self.devices, self.ranks, self.nodes)))


def _floats(column: Sequence[Any]) -> Floats:
    try:
        return np.asarray(column, np.float64)
    except (ValueError, TypeError, OverflowError):
        return np.asarray([value if isinstance(value, int | float) else np.nan for value in column], np.float64)
