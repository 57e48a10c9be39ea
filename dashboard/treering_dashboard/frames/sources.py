"""Where the rows of an attempt come from: its columns, or rows in memory.

Large parts of the columns, and the buckets of the parts drawn last, stay in memory, because a live page reads the same
million rows again after every ring. The name of a part has the digest of its last ring, so it stands for all rings of
the part.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import streamlit as st

from treering.runlog.columns.attempt import AttemptColumns
from treering.runlog.columns.buckets import Buckets
from treering.runlog.columns.head import Part
from treering.runlog.columns.parts import read_buckets
from treering.runlog.columns.ranks import RankedColumns
from treering.runlog.columns.rows import METRIC_PREFIX, Rows, Series
from treering.runlog.columns.store import Store
from treering_dashboard.frames.buckets import Positions

KEPT_ROWS: Final = 1 << 16
"""Parts of that many rows stay in memory; smaller ones are merged soon."""
_MOST_KEPT: Final = 128
"""Reads of parts in memory, 2 to 4 MB each."""
_MOST_NAMES: Final = 2
"""Columns of a read that stays in memory; more at once are a zoom's, which shows few rows."""


class _ReplacedError(Exception):
    """The columns were built again while a part of them was read."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive rows of an attempt.

    Attributes:
        steps: of the rows.
        series: columns at these steps, by name.
        part: file of the rings and name of the part whose rows these are, all of them; None: of other rows.
    """

    steps: Positions
    series: dict[str, Series]
    part: tuple[str, str] | None = None

    def __len__(self) -> int:
        return len(self.steps)

    def cut(self, start: int, end: int) -> "Piece":
        """The rows from `start` to before `end`."""
        if (start, end) == (0, len(self)):
            return self
        cut = {name: Series(each.values[start:end], each.known[start:end]) for name, each in self.series.items()}
        return Piece(self.steps[start:end], cut)


class ColumnSource:
    """The columns of an attempt."""

    def __init__(self, columns: AttemptColumns) -> None:
        self._columns = columns

    def pieces(self, names: Sequence[str], after: int, last_step: int) -> list[Piece]:
        """The rows between two steps, in the parts that stay in memory and the rest; see `AttemptColumns.series`."""
        found: list[Piece] = []
        until = after
        # A part of rank 0 does not stand for other ranks.
        summed = isinstance(self._columns, RankedColumns) and self._columns.sums_tokens
        try:
            for part in () if summed else self._columns.head().parts:
                if part.rows < KEPT_ROWS or part.last_step > last_step or len(names) > _MOST_NAMES:
                    break
                if part.last_step <= after:
                    continue
                of = (str(self._columns.rings_file), part.name, part.first_step, part.last_step)
                whole = Piece(*_kept(*of, tuple(names), self._columns), of[:2])
                found.append(whole.cut(int(np.searchsorted(whole.steps, after, "right")), len(whole)))
                until = part.last_step
        except _ReplacedError:
            return [Piece(*self._columns.series(names, after, last_step))]
        return [*found, Piece(*self._columns.series(names, until, last_step))]

    def series(self, names: Sequence[str], after: int, last_step: int) -> tuple[Positions, dict[str, Series]]:
        """The rows between two steps."""
        found = self.pieces(names, after, last_step)
        if len(found) == 1:
            return found[0].steps, found[0].series
        joined = {name: Series.joined(piece.series[name] for piece in found) for name in names}
        return np.concatenate([piece.steps for piece in found]), joined

    def many_buckets(self, metrics: Sequence[str], count: int, last_step: int) -> dict[str, Buckets]:
        """Buckets of metrics; see `AttemptColumns.many_buckets`."""

        def read(store: Store, part: Part, names: Sequence[str], level: int) -> dict[str, Buckets]:
            return _kept_buckets(str(self._columns.rings_file), part.pyramid, tuple(names), level, store, part)

        return self._columns.many_buckets(metrics, count, last_step, read)

    def has_tokens(self, last_step: int) -> bool | None:
        """Whether a row up to a step reports tokens; None where the head does not say."""
        head = self._columns.head()
        if head.tokens is None and not (isinstance(self._columns, RankedColumns) and self._columns.sums_tokens):
            return False
        return True if head.last_step <= last_step and head.tokens is not None else None

    def names(self) -> list[str]:
        """The metrics of the head."""
        return list(self._columns.head().metrics)

    def newest(self, name: str, last_step: int) -> float | None:
        """The newest value of a metric, None where the head does not say."""
        found = self._columns.head().metrics.get(name)
        return found.last if found is not None and found.last_step <= last_step else None


class RowSource:
    """Rows in memory: of the rings before a fault, which columns do not hold.

    Args:
        rows: of the attempt.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def names(self) -> list[str]:
        """The metrics of the rows."""
        return list(self._rows.metrics)

    def pieces(self, names: Sequence[str], after: int, last_step: int) -> list[Piece]:
        """The rows between two steps, in one piece."""
        rows = self._rows
        every = {"tokens": rows.tokens, "ended_at": Series(rows.ended_at, np.ones(len(rows), bool))}
        found = {name: every.get(name) or rows.series(name.removeprefix(METRIC_PREFIX)) for name in names}
        start, end = (int(np.searchsorted(rows.steps, step, "right")) for step in (after, last_step))
        return [Piece(rows.steps, found).cut(start, max(start, end))]

    def series(self, names: Sequence[str], after: int, last_step: int) -> tuple[Positions, dict[str, Series]]:
        """The rows between two steps."""
        (piece,) = self.pieces(names, after, last_step)
        return piece.steps, piece.series

    def many_buckets(self, metrics: Sequence[str], count: int, last_step: int) -> dict[str, Buckets]:
        """Buckets of the rows."""
        del count
        steps, found = self.series([f"{METRIC_PREFIX}{name}" for name in metrics], 0, last_step)
        return {name.removeprefix(METRIC_PREFIX): Buckets.of_rows(steps, series) for name, series in found.items()}

    def newest(self, name: str, last_step: int) -> None:
        """None: the caller reads the rows."""
        del name, last_step

    def has_tokens(self, last_step: int) -> None:
        """None: the caller reads the rows."""
        del last_step


@st.cache_resource(max_entries=_MOST_KEPT, show_spinner=False)
def computed_of_part(rings: str, part: str, metric: str, begin: float | None, _compute: Callable[[], Series]) -> Series:
    """A computed metric at the rows of a part.

    Args:
        rings: the file of the rings, a part of the key alone.
        part: its name, a part of the key alone.
        metric: what is computed and with what, a part of the key alone.
        begin: when the attempt began, where the part begins the rows; a part of the key alone.
        _compute: computes it.
    """
    del rings, part, metric, begin  # part of the key alone
    return _compute()


@st.cache_resource(max_entries=_MOST_KEPT, show_spinner=False)
def _kept_buckets(
    rings: str, pyramid: str, names: tuple[str, ...], level: int, _store: Store, _part: Part
) -> dict[str, Buckets]:
    """Buckets of a part.

    Args:
        rings: the file of the rings, a part of the key alone.
        pyramid: the name of the buckets' file, a part of the key alone.
        names: of the metrics.
        level: rings in a bucket.
        _store: where the part is kept.
        _part: of the columns.
    """
    del rings, pyramid  # part of the key alone
    return read_buckets(_store, _part, names, level)


@st.cache_resource(max_entries=_MOST_KEPT, show_spinner=False)
def _kept(
    rings: str, part: str, first_step: int, last_step: int, names: tuple[str, ...], _columns: AttemptColumns
) -> tuple[Positions, dict[str, Series]]:
    """The steps of a part, and columns at these steps.

    Args:
        rings: the file of the rings, a part of the key alone.
        part: its name.
        first_step: the first step of the part.
        last_step: the last one.
        names: of the columns.
        _columns: of the attempt.

    Raises:
        _ReplacedError: the columns were built again from other rings.
    """
    del rings  # part of the key alone
    found = _columns.series(names, first_step - 1, last_step)
    if all(each.name != part for each in _columns.head().parts):
        raise _ReplacedError
    return found
