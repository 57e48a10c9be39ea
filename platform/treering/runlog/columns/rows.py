"""Rows of the columns: the numbers of consecutive rings, one array for each metric."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

METRIC_PREFIX: Final = "metric/"
"""In the Parquet file, what stands before a metric's name: a trainer may report a metric called `step`."""

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Series:
    """One number of every row; a row without the number is not 0 but unknown.

    Attributes:
        values: the numbers; NaN where there is none.
        known: whether the row has the number; the number itself may be NaN.
    """

    values: Floats
    known: Flags

    @classmethod
    def missing(cls, rows: int) -> "Series":
        """A series without any number."""
        return cls(np.full(rows, np.nan), np.zeros(rows, bool))

    @classmethod
    def of_arrow(cls, column: Any) -> "Series":
        """The numbers of an Arrow column; null is unknown."""
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        known = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), bool)
        values = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)  # null becomes NaN
        return cls(np.array(values, np.float64), known)

    @classmethod
    def joined(cls, parts: Iterable["Series"]) -> "Series":
        """Series one after the other."""
        found = [cls.missing(0), *parts]
        if len(found) == 2:
            return found[1]
        return cls(np.concatenate([each.values for each in found]), np.concatenate([each.known for each in found]))

    def to_arrow(self) -> Any:
        """An Arrow column with null where the number is unknown."""
        return pa.array(self.values, mask=~self.known)


@dataclass(frozen=True, slots=True)
class Rows:
    """Consecutive rings in columns.

    Attributes:
        steps: step of each ring.
        ends: bytes of `rings.jsonl` up to the end of each ring's line.
        ended_at: when each step ended, Unix seconds.
        tokens: tokens of each step as the ring has them: consumed up to the step (`Ring`), or of the step alone
            (`RecordedRing`).
        metrics: series by name; a name may be missing where no row has the metric.
    """

    steps: Integers
    ends: Integers
    ended_at: Floats
    tokens: Series
    metrics: dict[str, Series]

    def __len__(self) -> int:
        return len(self.steps)

    def series(self, name: str) -> Series:
        """One metric, without any number where no row has it."""
        return self.metrics[name] if name in self.metrics else Series.missing(len(self))

    @classmethod
    def joined(cls, parts: Sequence["Rows"]) -> "Rows":
        """Rows one after the other; a metric that a part does not have is unknown there."""
        names = dict.fromkeys(name for part in parts for name in part.metrics)
        return cls(
            np.concatenate([part.steps for part in parts]),
            np.concatenate([part.ends for part in parts]),
            np.concatenate([part.ended_at for part in parts]),
            Series.joined(part.tokens for part in parts),
            {name: Series.joined(part.series(name) for part in parts) for name in names},
        )

    def cut(self, start: int, end: int) -> "Rows":
        """The rows from `start` to before `end`."""
        metrics = {name: Series(each.values[start:end], each.known[start:end]) for name, each in self.metrics.items()}
        return Rows(
            self.steps[start:end],
            self.ends[start:end],
            self.ended_at[start:end],
            Series(self.tokens.values[start:end], self.tokens.known[start:end]),
            {name: each for name, each in metrics.items() if each.known.any()},
        )

    def to_arrow(self) -> Any:
        """The rows as an Arrow table, the form of the Parquet files."""
        columns: dict[str, Any] = {
            "step": pa.array(self.steps),
            "end": pa.array(self.ends),
            "ended_at": pa.array(self.ended_at),
            "tokens": self.tokens.to_arrow(),
        }
        columns |= {f"{METRIC_PREFIX}{name}": each.to_arrow() for name, each in sorted(self.metrics.items())}
        return pa.table(columns)

    @classmethod
    def of_arrow(cls, table: Any) -> "Rows":
        """The rows of a table that `to_arrow` made."""
        return cls(
            table["step"].to_numpy(),
            table["end"].to_numpy(),
            table["ended_at"].to_numpy(),
            Series.of_arrow(table["tokens"]),
            {
                name.removeprefix(METRIC_PREFIX): Series.of_arrow(table[name])
                for name in table.column_names
                if name.startswith(METRIC_PREFIX)
            },
        )
