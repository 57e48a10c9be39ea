"""The rows of a path in pieces, as the columns keep them: a live page of a long run joins no million numbers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from treering.runlog.columns.rows import Series
from treering_dashboard.frames.buckets import Positions
from treering_dashboard.frames.sources import Piece

STORED: Final = ("ended_at", "tokens")
"""What is read of each row beside its step."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Before:
    """The row before others of one attempt.

    Attributes:
        step: of the row.
        ended_at: Unix seconds.
    """

    step: int
    ended_at: float


@dataclass(frozen=True, slots=True)
class RowsOfStretch:
    """Consecutive rows of a stretch.

    Attributes:
        before: the row before them; None where they begin the stretch.
        steps: of the rows.
        ended_at: Unix seconds.
        tokens: as the columns hold them.
    """

    before: Before | None
    steps: Positions
    ended_at: Floats
    tokens: Series


class PathRows:
    """The rows of stretches, one after the other.

    Args:
        stretches: number and attempt of each, and its pieces with `STORED`.
    """

    def __init__(self, stretches: Iterable[tuple[int, int, Sequence[Piece]]]) -> None:
        every = list(stretches)
        self.by_stretch = [[piece for piece in pieces if len(piece)] for _number, _attempt, pieces in every]
        self.lengths = [sum(map(len, pieces)) for pieces in self.by_stretch]
        self.pieces = [piece for pieces in self.by_stretch for piece in pieces]
        of = [index for index, pieces in enumerate(self.by_stretch) for _ in pieces]
        self._labels = {
            "segment": np.array([every[index][0] for index in of], np.int64),
            "attempt": np.array([every[index][1] for index in of], np.int64),
        }
        self.starts = np.array([0, *accumulate(map(len, self.pieces))], np.int64)
        self.rising = all(first.steps[-1] < second.steps[0] for first, second in pairwise(self.pieces))
        self._whole: dict[str, Any] = {}

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __contains__(self, name: str) -> bool:
        return name in ("step", "ended_at", "reported", *self._labels)

    def whole(self, name: str) -> Any:
        """One fact of every row: `step`, `segment`, `attempt`, `ended_at`, or `reported`, the tokens of the columns."""
        if name not in self._whole:
            self._whole[name] = self._joined(name)
        return self._whole[name]

    def _joined(self, name: str) -> Any:
        if name in self._labels:
            return np.repeat(self._labels[name], np.diff(self.starts))
        kind = np.int64 if name == "step" else np.float64
        return np.concatenate([np.zeros(0, kind), *(_values(piece, name) for piece in self.pieces)])

    def at(self, name: str, rows: Positions) -> Any:
        """One fact of some rows, by their numbers."""
        if name in self._whole:
            return self._whole[name][rows]
        of = np.searchsorted(self.starts, rows, "right") - 1
        if name in self._labels:
            return self._labels[name][of]
        found = np.empty(len(rows), np.int64 if name == "step" else np.float64)
        for number in np.unique(of):
            here = of == number
            found[here] = _values(self.pieces[number], name)[rows[here] - self.starts[number]]
        return found

    def extent(self, name: str) -> tuple[float, float]:
        """The smallest and the largest value of a fact of all rows; there must be one."""
        if name == "step" and self.rising:
            return float(self.pieces[0].steps[0]), float(self.pieces[-1].steps[-1])
        values = [_values(piece, name) for piece in self.pieces]
        return float(np.min([each.min() for each in values])), float(np.max([each.max() for each in values]))

    def seams(self, window: slice) -> list[int]:
        """The first rows of stretches in a window, behind its first row."""
        ends = (end - window.start for end in accumulate(self.lengths) if window.start < end < window.stop)
        return list(dict.fromkeys(ends))  # a stretch may have no row

    def search(self, steps: Any, *, right: bool = False) -> Any:
        """How many rows are before steps, or up to and with them, of rows whose steps rise."""
        side: Literal["left", "right"] = "right" if right else "left"
        return sum((np.searchsorted(piece.steps, steps, side) for piece in self.pieces), np.zeros_like(steps, np.int64))

    def of_stretch(self, number: int, after: int, last_step: int) -> RowsOfStretch:
        """The rows of a stretch behind a step up to another one.

        Args:
            number: of the stretch, from 0.
            after: the step after which they begin.
            last_step: the last one.
        """
        before, parts = None, []
        for piece in self.by_stretch[number]:
            start, end = (int(np.searchsorted(piece.steps, step, "right")) for step in (after, last_step))
            if start:
                before = Before(int(piece.steps[start - 1]), float(piece.series["ended_at"].values[start - 1]))
            if start < end:
                parts.append(piece.cut(start, end))
        steps = [part.steps for part in parts] or [np.zeros(0, np.int64)]
        ended_at, tokens = (Series.joined(part.series[name] for part in parts) for name in STORED)
        return RowsOfStretch(before, steps[0] if len(steps) == 1 else np.concatenate(steps), ended_at.values, tokens)


def _values(piece: Piece, name: str) -> Any:
    if name == "step":
        return piece.steps
    return piece.series["tokens" if name == "reported" else name].values
