"""The columns along the path of a run: of each attempt up to the step from which the next one goes on.

What an attempt did after that step is off the path; `AttemptColumns` of the attempt alone has it.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

from treering.errors import EvidenceError
from treering.runlog.ancestry import PathSegment, broken_seam
from treering.runlog.columns.attempt import AttemptColumns
from treering.runlog.columns.ranks import columns_of_path
from treering.runlog.recorded_directory import RecordedSegment
from treering.runlog.ring import Ring

if TYPE_CHECKING:
    from treering.runlog.columns.buckets import Buckets
    from treering.runlog.columns.history import History


class PathColumns:
    """The columns of a path.

    Args:
        stretches: the columns of each attempt with the last step that counts, oldest first; None: all its steps.
        all_ranks: whether the tokens are those of all ranks; else of rank 0 alone.
    """

    def __init__(self, stretches: Sequence[tuple[AttemptColumns, int | None]], *, all_ranks: bool = True) -> None:
        self._stretches = tuple(stretches)
        self.all_ranks = all_ranks

    @classmethod
    def of_recorded(cls, segments: Iterable[RecordedSegment]) -> Self:
        """The columns of the path of another trainer's run.

        Raises:
            EvidenceError: a header, or a ring of rank 0, was changed, removed or put in.
        """
        stretches = [(segment.attempt, segment.last_step) for segment in segments]
        columns, all_ranks = columns_of_path(stretches)
        ends = [last_step for _, last_step in stretches]
        return cls(list(zip(columns, ends, strict=True)), all_ranks=all_ranks)

    @classmethod
    def of_run(cls, segments: Sequence[PathSegment], *, whole: bool = True) -> Self:
        """The columns of the path of a run of Treering's trainer, the chain checked across attempts.

        Args:
            segments: of the path.
            whole: whether the first segment begins at the root; else what came before it is unknown.

        Raises:
            EvidenceError: a ring was changed, removed or put in, or an attempt goes on from another ring.
        """
        found = cls([(_of(segment), segment.last_step) for segment in segments])
        last: Ring | None = None
        for number, (segment, (columns, last_step)) in enumerate(zip(segments, found._stretches, strict=True)):
            if (whole or number) and (broken := broken_seam(segment.attempt, last)):
                raise EvidenceError(broken)
            head = columns.head()
            first = segment.attempt.first_step()
            if number and head.rings and first != (last.step if last else 0) + 1:
                raise EvidenceError(
                    f"{segment.attempt.rings_file}: step {first} follows step {last and last.step}",
                    file=segment.attempt.rings_file,
                    step=first,
                    found=first,
                    expected=(last.step if last else 0) + 1,
                )
            end = head.last_step if last_step is None else last_step
            newest = columns.ring(end) if head.rings else None
            if newest is None and last_step is not None:
                raise EvidenceError(
                    f"{segment.attempt.rings_file}: the rings end at step {head.last_step}, the path needs them to "
                    f"step {last_step}",
                    file=segment.attempt.rings_file,
                    step=last_step,
                    found=head.last_step,
                    expected=last_step,
                )
            last = newest or last
        return found

    @property
    def stretches(self) -> tuple[tuple[AttemptColumns, int | None], ...]:
        """The columns of each attempt with the last step that counts, oldest first; None: all its steps."""
        return self._stretches

    def newest(self, count: int) -> list[Any]:
        """The last rings of the path, at most `count`, oldest first."""
        found: list[Any] = []
        for columns, last_step in reversed(self._stretches):
            found[:0] = columns.newest(count - len(found), last_step)
            if len(found) >= count:
                break
        return found

    def histories(self, metrics: Sequence[str], after: int = 0) -> "dict[str, History]":
        """Whole series along the path, by name.

        Args:
            metrics: their names; one that no ring has gives an empty series.
            after: the step after which they begin.
        """
        from treering.runlog.columns.history import History  # noqa: PLC0415 - a list that finds its heads needs no numpy

        found = [
            columns.histories(metrics, last_step)
            for columns, last_step in self._stretches
            if last_step is None or last_step > after
        ]
        return {name: History.joined([each[name] for each in found]).after(after) for name in metrics}

    def history(self, metric: str) -> "History":
        """One whole series along the path."""
        return self.histories([metric])[metric]

    def chart(self, metric: str, count: int = 1000) -> "Buckets":
        """The envelope of a series along the path: at most `count` buckets, so that no extreme is hidden."""
        from treering.runlog.columns.buckets import Buckets  # noqa: PLC0415 - see above

        found = [columns.buckets(metric, count, last_step) for columns, last_step in self._stretches]
        return Buckets.joined(found).at_most(count)

    def last(self, metric: str) -> float | None:
        """The newest value of a metric on the path, None where no ring has it."""
        for columns, last_step in reversed(self._stretches):
            head = columns.head()
            summary = head.metrics.get(metric)
            if summary is None:
                continue
            if last_step is None or summary.last_step <= last_step:
                return summary.last
            values = columns.history(metric, last_step).values
            if len(values):
                return float(values[-1])
        return None

    def tokens(self) -> int | None:
        """The sum of the tokens that the attempts of another trainer report, None where none reports tokens."""
        known = [tokens for columns, last_step in self._stretches if (tokens := columns.tokens(last_step)) is not None]
        return sum(known) if known else None

    @property
    def last_step(self) -> int:
        """The newest step of the path, 0 before the first."""
        ends = (last_step or columns.head().last_step for columns, last_step in reversed(self._stretches))
        return next((end for end in ends if end), 0)

    def digest(self, step: int) -> str | None:
        """Digest of a step's ring, None where the path has no such step."""
        for columns, last_step in reversed(self._stretches):
            head = columns.head()
            if step == head.last_step and last_step in {None, step}:
                return head.place.prev
            if (last_step is None or step <= last_step) and (ring := columns.ring(step)) is not None:
                return str(ring.digest)
        return None

    def derived(self, name: str) -> str | None:
        """A text that was derived from the columns of the path, kept beside those of the last attempt."""
        return self._stretches[-1][0].derived(name) if self._stretches else None

    def keep_derived(self, name: str, text: str) -> None:
        """Keeps such a text."""
        if self._stretches:
            self._stretches[-1][0].keep_derived(name, text)


def _of(segment: PathSegment) -> AttemptColumns:
    return AttemptColumns(segment.attempt, keep=not segment.run.is_cut)
