"""Where the rows of an attempt come from: its columns, or rows in memory.

Large parts of the columns stay in memory, because a live page reads the same million rows again after every ring. The
name of a part has the digest of its last ring, so it stands for all rings of the part.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import streamlit as st

from treering.runlog.columns.attempt import AttemptColumns
from treering.runlog.columns.buckets import Buckets
from treering.runlog.columns.ranks import RankedColumns
from treering.runlog.columns.rows import METRIC_PREFIX, Rows, Series
from treering_dashboard.frames.buckets import Positions

KEPT_ROWS: Final = 1 << 16
"""Parts of that many rows stay in memory; smaller ones are merged soon."""
_MOST_KEPT: Final = 128
"""Reads of parts in memory, 2 to 4 MB each."""


class _ReplacedError(Exception):
    """The columns were built again while a part of them was read."""


class ColumnSource:
    """The columns of an attempt."""

    def __init__(self, columns: AttemptColumns) -> None:
        self._columns = columns
        self.many_buckets = columns.many_buckets

    def series(self, names: Sequence[str], after: int, last_step: int) -> tuple[Positions, dict[str, Series]]:
        """The rows between two steps; see `AttemptColumns.series`."""
        if isinstance(self._columns, RankedColumns) and self._columns.sums_tokens:
            return self._columns.series(names, after, last_step)  # a part of rank 0 does not stand for other ranks
        steps: list[Positions] = []
        found: dict[str, list[Series]] = {name: [] for name in names}
        until = after
        try:
            for part in self._columns.head().parts:
                if part.rows < KEPT_ROWS or part.last_step > last_step:
                    break
                if part.last_step <= after:
                    continue
                of = (str(self._columns.rings_file), part.name, part.first_step, part.last_step)
                whole, columns = _kept(*of, tuple(names), self._columns)
                start = int(np.searchsorted(whole, after, "right"))
                steps.append(whole[start:])
                for name in names:
                    found[name].append(Series(columns[name].values[start:], columns[name].known[start:]))
                until = part.last_step
        except _ReplacedError:
            return self._columns.series(names, after, last_step)
        rest, newest = self._columns.series(names, until, last_step)
        if not steps:
            return rest, newest
        joined = {name: Series.joined([*each, newest[name]]) for name, each in found.items()}
        return np.concatenate([*steps, rest]), joined

    def names(self) -> list[str]:
        """The metrics of the head."""
        return list(self._columns.head().metrics)

    def newest(self, name: str, last_step: int) -> float | None:
        """The newest value of a metric, None where the head does not tell."""
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

    def series(self, names: Sequence[str], after: int, last_step: int) -> tuple[Positions, dict[str, Series]]:
        """The rows between two steps."""
        rows = self._rows
        start, end = (int(np.searchsorted(rows.steps, step, "right")) for step in (after, last_step))
        every = {"tokens": rows.tokens, "ended_at": Series(rows.ended_at, np.ones(len(rows), bool))}
        found = {name: every.get(name) or rows.series(name.removeprefix(METRIC_PREFIX)) for name in names}
        return rows.steps[start:end], {n: Series(s.values[start:end], s.known[start:end]) for n, s in found.items()}

    def many_buckets(self, metrics: Sequence[str], count: int, last_step: int) -> dict[str, Buckets]:
        """Buckets of the rows."""
        del count
        steps, found = self.series([f"{METRIC_PREFIX}{name}" for name in metrics], 0, last_step)
        return {name.removeprefix(METRIC_PREFIX): Buckets.of_rows(steps, series) for name, series in found.items()}

    def newest(self, name: str, last_step: int) -> None:
        """None: the rows tell."""
        del name, last_step


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
