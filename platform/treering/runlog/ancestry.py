"""The attempts that led to a checkpoint or to the newest ring, and the rings along them: decided here alone.

`path_of` follows the headers from an attempt to the root and raises where a record is missing or differs.

A run may start from another run's checkpoint. Where that run's log is missing or damaged, the path ends at the seam:
the run's own rings still hold, and have step and token by themselves. `treering runs`, `show`,
`ship`, the report and the dashboard read that part with `path_left`; the audit, which must account for every sample,
does not: `audit.evidence.recovery` derives the missing steps from the recipe.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from treering.config.canonical import short
from treering.config.resolved import RUN_ID_LENGTH
from treering.errors import EvidenceError
from treering.runlog.attempt import AttemptDirectory
from treering.runlog.records import AttemptHeader
from treering.runlog.ring import Ring

if TYPE_CHECKING:  # a run asks this module for its path
    from treering.runlog.directory import CheckpointDirectory, RunDirectory


@dataclass(frozen=True, slots=True)
class PathSegment:
    """A stretch of rings of one attempt on the way from a run's root to a checkpoint.

    Attributes:
        run: the run that the attempt belongs to.
        attempt: whose rings these are.
        last_step: last step of the stretch that counts; later rings of the attempt are not on the path.
    """

    run: "RunDirectory"
    attempt: AttemptDirectory
    last_step: int | None

    def holds(self, attempt: int, step: int) -> bool:
        """Whether a step of an attempt of the same run is on the stretch, or before it in the attempt."""
        return self.attempt.number == attempt and (self.last_step is None or step <= self.last_step)

    def end(self) -> int:
        """The last step of the stretch that has a ring, 0 where there is none; no chain checked.

        Raises:
            EvidenceError: the last ring of the attempt was changed.
        """
        return self.attempt.last_step() if self.last_step is None else self.last_step

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
                return  # what follows is not on the path, whole or not
        if self.last_step is not None and step != self.last_step:
            raise EvidenceError(
                f"{self.attempt.rings_file}: the rings end at step {step}, "
                f"the path needs them to step {self.last_step}",
                file=self.attempt.rings_file,
                step=step,
                found=step,
                expected=self.last_step,
            )


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an attempt goes on from, by its header.

    Attributes:
        run: the run of the step.
        attempt: number of the attempt that did the step.
        step: the step.
        own: whether the run is the attempt's own.
    """

    run: "RunDirectory"
    attempt: int
    step: int
    own: bool


def origin_of(run: "RunDirectory", header: AttemptHeader, recipe: str) -> Origin | None:
    """Where an attempt goes on from, None where it begins at the root.

    Args:
        run: the run of the attempt.
        header: the attempt's header.
        recipe: digest of the run's recipe.
    """
    parent = header.parent
    if parent is None:
        return None
    own = parent.run == recipe
    return Origin(run if own else run.ancestor(parent.run), parent.attempt, parent.step, own)


def broken_seam(attempt: AttemptDirectory, last: Ring | None) -> str:
    """What is wrong where an attempt goes on from a ring, in words; empty where the ring is the one in its header.

    Args:
        attempt: the attempt.
        last: the ring before its first one on the path, None where there is none.

    Raises:
        EvidenceError: the header is missing or was changed.
    """
    parent = attempt.header.parent
    if parent is None or (last is not None and last.digest == parent.ring):
        return ""
    found = last.digest if last else "nothing"
    return f"{attempt.path}: goes on from ring {parent.ring} of step {parent.step}, but {found} is there"


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
        if (whole or last is not None) and (broken := broken_seam(segment.attempt, last)):
            raise EvidenceError(broken, file=segment.attempt.header_file)
        for ring in segment.rings():
            if last is not None and ring.step != last.step + 1:
                raise EvidenceError(
                    f"{segment.attempt.rings_file}: step {ring.step} follows step {last.step}",
                    file=segment.attempt.rings_file,
                    step=ring.step,
                    found=ring.step,
                    expected=last.step + 1,
                )
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
    while (header := segments[0].attempt.header).parent is not None:
        run = segments[0].run
        origin = origin_of(run, header, run.resolved.recipe.digest)
        if origin is None or (own and not origin.own):
            break
        try:
            attempt = origin.run.attempt(origin.attempt)
        except EvidenceError as error:
            header_file = segments[0].attempt.header_file
            raise EvidenceError(
                f"{header_file}: {error}",
                file=header_file,
                found=error.found,
                expected=error.expected,
                remedy=error.remedy,
            ) from error
        segments.insert(0, PathSegment(origin.run, attempt, origin.step))
        if segments[0].attempt.path in seen:
            raise EvidenceError(
                f"{segments[0].attempt.header_file}: the attempt occurs twice on its own path: a header names "
                "a parent that came after it, so one of the headers was rewritten",
                file=segments[0].attempt.header_file,
            )
        seen.add(segments[0].attempt.path)
    return segments


@dataclass(frozen=True, slots=True)
class PathLeft:
    """What is left of the path to a checkpoint or to the newest ring.

    Attributes:
        segments: its stretches, oldest first.
        rings: of these.
        missing: what is missing before them, in a sentence; empty where the path is whole.
    """

    segments: tuple[PathSegment, ...]
    rings: tuple[Ring, ...]
    missing: str


def segments_left(
    run: "RunDirectory", checkpoint: "CheckpointDirectory | None" = None
) -> tuple[list[PathSegment], str]:
    """The stretches of the path that are there, by the headers alone, and what is missing before them.

    Raises:
        EvidenceError: a record of the run itself is missing or does not hold.
    """
    try:
        return run.path_to(checkpoint), ""
    except EvidenceError as error:
        own = run.path_to(checkpoint, own=True)
        if not _starts_elsewhere(own):
            raise
        return own, _missing_before(own, error)


def path_left(run: "RunDirectory", checkpoint: "CheckpointDirectory | None" = None) -> PathLeft:
    """The rings of the path that are there.

    Raises:
        EvidenceError: a record or a ring of the run itself is missing or does not hold.
    """
    segments, missing = segments_left(run, checkpoint)
    if not missing:
        try:
            return PathLeft(tuple(segments), tuple(run.path_rings(checkpoint)), "")
        except EvidenceError as error:
            segments = run.path_to(checkpoint, own=True)
            if not _starts_elsewhere(segments):
                raise
            missing = _missing_before(segments, error)
    return PathLeft(tuple(segments), tuple(rings_along(segments, whole=False)), missing)


def _starts_elsewhere(own: list[PathSegment]) -> bool:
    """Whether the own part of a path starts from another run."""
    return bool(own) and own[0].attempt.header.parent is not None


def _missing_before(own: list[PathSegment], error: EvidenceError) -> str:
    parent = own[0].attempt.header.parent
    if parent is None:
        raise error
    return (
        f"the run starts from step {parent.step:,} of run {short(parent.run, RUN_ID_LENGTH)}, whose log is missing or "
        f"damaged ({error}); its own steps are shown"
    )
