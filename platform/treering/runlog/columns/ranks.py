"""The columns of attempts whose tokens several ranks report: the tokens of a step are those of all ranks.

The ring of a rank has the tokens of that rank alone. The columns of each rank are kept as those of rank 0, in
`ranks/rank-00001/columns/`; here they are added up.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from treering.errors import EvidenceError
from treering.runlog.columns.attempt import COLUMNS, Attempt, AttemptColumns
from treering.runlog.recorded_directory import RecordedAttempt

if TYPE_CHECKING:
    from treering.runlog.columns.rows import Integers, Series

SUMMED_RANKS: Final = 16
"""Most ranks whose tokens are added up: every reader of a live run looks at the rings of each."""

_TOKENS: Final = "tokens"


class RankedColumns(AttemptColumns):
    """The columns of an attempt: everything of rank 0, but the tokens of all ranks.

    Steps that not all ranks have reported yet have no tokens.

    Args:
        attempt: the attempt.
    """

    def __init__(self, attempt: RecordedAttempt) -> None:
        super().__init__(attempt)
        self._recorded = attempt
        ranks = range(1, attempt.header.world_size)
        self._others = [AttemptColumns(attempt.rank_rings(rank)) for rank in ranks]

    @property
    def sums_tokens(self) -> bool:
        """Whether the tokens are those of several ranks."""
        return bool(self._others)

    def are_whole(self, last_step: int | None) -> bool:
        """Whether every rank reports its tokens, up to the same step where the attempt has left that step behind.

        Args:
            last_step: the last step that counts; None: the newest.
        """
        head = self.head()
        if not self._others or not head.rings:
            return True
        try:
            if any(columns.head().tokens is None for columns in (self, *self._others)):
                return False
            end = self._recorded.end
        except EvidenceError:
            return False
        if last_step is None and (end is None or end.status != "finished"):
            return True
        return self._reported(last_step) == (head.last_step if last_step is None else last_step)

    def tokens(self, last_step: int | None = None) -> int | None:
        """Tokens of all ranks up to a step that all have reported; see `AttemptColumns.tokens`."""
        if not self._others:
            return super().tokens(last_step)
        end = self._reported(last_step)
        found = [super().tokens(end), *(columns.tokens(end) for columns in self._others)]
        known = [tokens for tokens in found if tokens is not None]
        return sum(known) if known else None

    def series(
        self, names: Sequence[str], after: int = 0, last_step: int | None = None
    ) -> "tuple[Integers, dict[str, Series]]":
        """Steps, and columns of the rows at these steps; see `AttemptColumns.series`."""
        steps, found = super().series(names, after, last_step)
        if not self._others or _TOKENS not in found:
            return steps, found

        import numpy as np  # noqa: PLC0415 - a list that finds its heads needs no numpy

        from treering.runlog.columns.rows import Series  # noqa: PLC0415 - see above

        end = self._reported(last_step)
        values, known = np.nan_to_num(found[_TOKENS].values), found[_TOKENS].known.copy()
        for columns in self._others:
            their_steps, theirs = columns.series([_TOKENS], after, end)
            rows = np.searchsorted(steps, their_steps)  # a step that rank 0 did not report counts to its next one
            inside = theirs[_TOKENS].known & (rows < len(steps))
            np.add.at(values, rows[inside], theirs[_TOKENS].values[inside])
            known[rows[inside]] = True
        known &= steps <= end
        values[~known] = np.nan
        return steps, found | {_TOKENS: Series(values, known)}

    def _reported(self, last_step: int | None) -> int:
        """The last step that all ranks have reported, up to a step."""
        ends = [self.head().last_step, *(columns.head().last_step for columns in self._others)]
        return min(ends if last_step is None else [last_step, *ends])


def columns_of_path(attempts: Sequence[tuple[RecordedAttempt, int | None]]) -> tuple[list[AttemptColumns], bool]:
    """The columns of the attempts of a path, and whether their tokens are those of all ranks; else of rank 0 alone.

    Args:
        attempts: each with the last step that counts; None: the newest.

    Raises:
        EvidenceError: a header, or a ring of rank 0, was changed, removed or put in.
    """
    if all(attempt.header.world_size <= SUMMED_RANKS for attempt, _ in attempts):
        ranked = [RankedColumns(attempt) for attempt, _ in attempts]
        if all(columns.are_whole(last_step) for columns, (_, last_step) in zip(ranked, attempts, strict=True)):
            return [*ranked], True
    return [AttemptColumns(attempt) for attempt, _ in attempts], False


def columned(attempt: Attempt) -> list[Attempt]:
    """An attempt and those of its other ranks that have columns: everything that is built again with it."""
    if not isinstance(attempt, RecordedAttempt):
        return [attempt]
    others = [attempt.rank_rings(rank) for rank in attempt.ranks() if rank]
    return [attempt, *(each for each in others if (each.path / COLUMNS).is_dir())]
