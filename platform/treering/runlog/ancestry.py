"""The attempts that led to a checkpoint or to the newest ring, and the rings along them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from treering.errors import EvidenceError
from treering.runlog.attempt import AttemptDirectory
from treering.runlog.ring import Ring

if TYPE_CHECKING:  # a run asks this module for its path
    from treering.runlog.directory import RunDirectory


@dataclass(frozen=True, slots=True)
class PathSegment:
    """A stretch of rings of one attempt on the way from a run's root to a checkpoint.

    Attributes:
        run: the run that the attempt belongs to.
        attempt: whose rings these are.
        last_step: last step of the stretch that counts; later rings of the attempt lie off the path.
    """

    run: "RunDirectory"
    attempt: AttemptDirectory
    last_step: int | None

    def rings(self) -> Iterator[Ring]:
        """The rings of the stretch.

        Raises:
            EvidenceError: the chain is broken, or it ends before `last_step`.
        """
        step = 0
        for ring in self.attempt.rings():
            if self.last_step is not None and ring.step > self.last_step:
                break
            step = ring.step
            yield ring
            if step == self.last_step:
                return  # what follows lies off the path, whole or not
        if self.last_step is not None and step != self.last_step:
            raise EvidenceError(
                f"{self.attempt.rings_file}: the rings end at step {step}, the path needs them to step {self.last_step}"
            )


def rings_along(segments: Sequence[PathSegment], *, whole: bool = True) -> Iterator[Ring]:
    """The rings of a path, the chain checked across attempts.

    Args:
        segments: of the path.
        whole: whether the first stretch begins at the root; else nothing is said of what came before it.

    Raises:
        EvidenceError: a ring or a seam does not hold.
    """
    last: Ring | None = None
    for segment in segments:
        parent = segment.attempt.header.parent
        if parent is not None and (whole or last is not None) and (last is None or last.digest != parent.ring):
            raise EvidenceError(
                f"{segment.attempt.path}: goes on from ring {parent.ring} of step {parent.step}, but "
                f"{last.digest if last else 'nothing'} stands there"
            )
        for ring in segment.rings():
            if last is not None and ring.step != last.step + 1:
                raise EvidenceError(f"{segment.attempt.rings_file}: step {ring.step} follows step {last.step}")
            last = ring
            yield ring


def path_of(last: PathSegment, *, own: bool = False) -> list[PathSegment]:
    """The attempts that led to a stretch of one, from the root on, with it.

    Args:
        last: the stretch.
        own: stop where the path leads into another run.

    Raises:
        EvidenceError: a record on the way is missing or names one that differs.
    """
    segments = [last]
    seen = {segments[0].attempt.path}
    while (parent := segments[0].attempt.header.parent) is not None:
        run = segments[0].run
        if parent.run != run.resolved.recipe.digest:
            if own:
                break
            run = run.ancestor(parent.run)
        try:
            attempt = run.attempt(parent.attempt)
        except EvidenceError as error:
            raise EvidenceError(f"{segments[0].attempt.header_file}: {error}") from None
        segments.insert(0, PathSegment(run, attempt, parent.step))
        if segments[0].attempt.path in seen:
            raise EvidenceError(
                f"{segments[0].attempt.header_file}: the attempt stands twice on its own path: a header names "
                "a parent that came after it, so one of the headers was rewritten"
            )
        seen.add(segments[0].attempt.path)
    return segments
