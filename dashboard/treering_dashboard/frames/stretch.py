"""A stretch of a path: the rows of one attempt that are drawn as one line."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from treering.runlog.columns.rows import Series
from treering_dashboard.frames.sources import ColumnSource, RowSource

if TYPE_CHECKING:
    from treering_dashboard.frames.curves import Curves

Offset = Callable[[str], float]
"""What a path had consumed before a stretch, by fact."""
Compute = Callable[["Curves", "Stretch", int, int], Series]
"""Computes a metric that no ring holds, at every row of a stretch behind a step up to another one; its `repr` names it
with all that it computes with."""


@dataclass(frozen=True)
class Stretch:
    """The rows of one attempt that are drawn as one line.

    Attributes:
        number: tells stretches apart.
        attempt: number of the attempt.
        source: of the rows.
        last_step: the last step that counts.
        after: the step after which the rows begin.
        started_at: when the attempt began, Unix seconds.
        offset: what was consumed before; None: as the stretch before ended.
        computed: metrics that are computed, by key.
    """

    number: int
    attempt: int
    source: ColumnSource | RowSource
    last_step: int
    after: int = 0
    started_at: float = 0.0
    offset: Offset | None = None
    computed: dict[str, Compute] | None = None
