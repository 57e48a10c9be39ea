"""Buckets of a series: minimum, maximum and last value of consecutive rings, so that a chart hides no extreme."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np

from treering.runlog.columns.rows import Flags, Floats, Integers, Series

STATISTICS: Final = ("count", "nans", "minimum", "min_step", "maximum", "max_step", "last")
"""Rows of a pyramid for each bucket, in this order."""

_NO_STEP: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Buckets:
    """A series in buckets, one array a statistic.

    Attributes:
        first_step: step of the first ring of each bucket, whether it has the number or not.
        last_step: step of the last ring.
        count: rings that have the number.
        nans: those among them whose number is NaN; it is in neither minimum nor maximum. Infinity is.
        minimum: smallest number, NaN where there is none.
        min_step: first step that has it, 0 where there is none.
        maximum: largest number, NaN where there is none.
        max_step: first step that has it, 0 where there is none.
        last: the last number, NaN where there is none.
    """

    first_step: Integers
    last_step: Integers
    count: Integers
    nans: Integers
    minimum: Floats
    min_step: Integers
    maximum: Floats
    max_step: Integers
    last: Floats

    def __len__(self) -> int:
        return len(self.first_step)

    @classmethod
    def of_rows(cls, steps: Integers, series: Series) -> "Buckets":
        """A bucket for each ring."""
        nans = series.known & np.isnan(series.values)
        at = np.where(series.known & ~nans, steps, 0)
        values = series.values
        return cls(steps, steps, series.known.astype(np.int64), nans.astype(np.int64), values, at, values, at, values)

    @classmethod
    def joined(cls, parts: Sequence["Buckets"]) -> "Buckets":
        """Buckets one after the other."""
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))

    def without_numbers(self) -> "Buckets":
        """The same buckets of a series that no ring has."""
        zeros, missing = np.zeros(len(self), np.int64), np.full(len(self), np.nan)
        return Buckets(self.first_step, self.last_step, zeros, zeros, missing, zeros, missing, zeros, missing)

    def merged(self, starts: Integers) -> "Buckets":
        """Consecutive buckets as one.

        Args:
            starts: number of the first bucket of each new one, rising, from 0 on.
        """
        sizes = np.diff(starts, append=len(self))
        groups = _Groups(self.count > self.nans, starts, sizes)
        minimum, min_step = groups.extreme(np.minimum, self.minimum, self.min_step)
        maximum, max_step = groups.extreme(np.maximum, self.maximum, self.max_step)
        newest = np.maximum.reduceat(np.where(self.count > 0, np.arange(len(self)), -1), starts)
        return Buckets(
            self.first_step[starts],
            self.last_step[starts + sizes - 1],
            np.add.reduceat(self.count, starts),
            np.add.reduceat(self.nans, starts),
            minimum,
            min_step,
            maximum,
            max_step,
            np.where(newest >= 0, self.last[newest], np.nan),
        )

    def in_groups_of(self, size: int) -> "Buckets":
        """Every `size` buckets as one, the last ones may be fewer."""
        return self.merged(np.arange(0, len(self), size))

    def at_most(self, count: int) -> "Buckets":
        """The whole in at most `count` buckets of about equal numbers of rings."""
        if len(self) <= count:
            return self
        return self.merged((np.arange(count) * len(self)) // count)

    def between(self, first_step: int, last_step: int) -> "Buckets":
        """The buckets that hold a step from one to another; those at the ends may hold more steps."""
        inside = (self.last_step >= first_step) & (self.first_step <= last_step)
        return Buckets(*(getattr(self, field.name)[inside] for field in fields(self)))

    def to_rows(self) -> Floats:
        """The statistics one after the other in one array, as a pyramid stores them."""
        return np.concatenate([getattr(self, name).astype(np.float64) for name in STATISTICS])

    @classmethod
    def from_rows(cls, first_step: Integers, last_step: Integers, values: Any) -> "Buckets":
        """The buckets that `to_rows` wrote.

        Args:
            first_step: of each bucket.
            last_step: of each bucket.
            values: the statistics, `len(STATISTICS)` times as many.
        """
        by_name = dict(zip(STATISTICS, np.asarray(values).reshape(len(STATISTICS), -1), strict=True))
        counts = {name: by_name[name].astype(np.int64) for name in ("count", "nans", "min_step", "max_step")}
        return cls(first_step, last_step, **(by_name | counts))


@dataclass(frozen=True, slots=True)
class _Groups:
    """Groups of consecutive buckets: which have numbers, where each group starts, how many it has."""

    numbers: Flags
    starts: Integers
    sizes: Integers

    def extreme(self, choose: Any, values: Floats, steps: Integers) -> tuple[Floats, Integers]:
        """The extreme of each group and the first step that has it."""
        neutral = np.inf if choose is np.minimum else -np.inf
        known = np.where(self.numbers, values, neutral)
        found = choose.reduceat(known, self.starts)
        there = self.numbers & (known == np.repeat(found, self.sizes))
        at = np.minimum.reduceat(np.where(there, steps, _NO_STEP), self.starts)
        some = at != _NO_STEP
        return np.where(some, found, np.nan), np.where(some, at, 0)
