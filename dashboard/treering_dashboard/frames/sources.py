"""Where the rows of an attempt come from: its columns, or rows in memory."""

from collections.abc import Sequence

import numpy as np

from treering.runlog.columns.attempt import AttemptColumns
from treering.runlog.columns.buckets import Buckets
from treering.runlog.columns.rows import METRIC_PREFIX, Rows, Series
from treering_dashboard.frames.buckets import Positions


class ColumnSource:
    """The columns of an attempt."""

    def __init__(self, columns: AttemptColumns) -> None:
        self._columns = columns
        self.series = columns.series
        self.many_buckets = columns.many_buckets

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
