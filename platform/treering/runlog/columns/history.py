"""A series as numpy arrays."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from treering.runlog.columns.rows import Floats, Integers


@dataclass(frozen=True, slots=True)
class History:
    """A metric at every step that has it.

    Attributes:
        steps: the steps.
        values: the values, which may be NaN or infinite.
    """

    steps: Integers
    values: Floats

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Series one after the other."""
        if len(parts) == 1:
            return parts[0]
        steps = [np.zeros(0, np.int64), *(part.steps for part in parts)]
        return cls(np.concatenate(steps), np.concatenate([np.zeros(0), *(part.values for part in parts)]))

    def after(self, step: int) -> "History":
        """What is behind a step."""
        start = int(np.searchsorted(self.steps, step, "right"))
        return History(self.steps[start:], self.values[start:]) if start else self
