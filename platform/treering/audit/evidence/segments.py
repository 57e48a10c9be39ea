"""The steps on the path from a run's root to a checkpoint: which attempt did which steps, and where runs start."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from treering.audit.report import AttemptOnPath, PassedOver
from treering.config.canonical import short
from treering.config.resolved import RUN_ID_LENGTH, ReadRange
from treering.config.resolved_blend import ResolvedBlend
from treering.config.schedule import Schedule
from treering.data.blend.continuation import positions_after
from treering.data.blend.joins import CorpusJoin, corpus_joins
from treering.data.order.treering1 import DataOrder
from treering.errors import ConfigError, EvidenceError
from treering.runlog.ancestry import PathSegment
from treering.runlog.attempt import AttemptDirectory
from treering.runlog.directory import CheckpointDirectory, RunDirectory


@dataclass(frozen=True, slots=True)
class _Steps:
    """Steps that follow each other in one run.

    Attributes:
        first_step: first of the steps.
        last_step: last of the steps.
        schedule: which samples each step reads.
        blend: which tokens each sample is.
    """

    first_step: int
    last_step: int
    schedule: Schedule
    blend: ResolvedBlend

    @property
    def sample_range(self) -> tuple[int, int]:
        """The samples [lo, hi) that the steps read, by the schedule."""
        return self.schedule.samples_of(self.first_step, self.last_step)


@dataclass(frozen=True, slots=True)
class RecordedSegment(_Steps):
    """Steps that one attempt did on the path.

    Attributes:
        segment: the attempt.
    """

    segment: PathSegment

    @property
    def run(self) -> RunDirectory:
        """The run that did them."""
        return self.segment.run

    @property
    def attempt(self) -> AttemptDirectory:
        """The attempt that did them."""
        return self.segment.attempt

    def describe(self) -> AttemptOnPath:
        """The stretch for a report."""
        header = self.segment.attempt.header
        return AttemptOnPath(
            run=self.segment.run.id,
            attempt=header.attempt,
            first_step=self.first_step,
            last_step=self.last_step,
            code=str(header.code["digest"]),
            environment=str(header.environment["digest"]),
            changed=header.changed,
            path=str(self.segment.attempt.path),
        )


@dataclass(frozen=True, slots=True)
class DerivedSegment(_Steps):
    """Steps of a run without the header of an attempt: only their order is known, by schedule and blend.

    Attributes:
        run: the run that did them, by its recipe or by a record that continues from it.
        attempt: an attempt that lost its header and still has rings from `first_step` on; None without such an attempt.
    """

    run: RunDirectory
    attempt: AttemptDirectory | None


Piece = RecordedSegment | DerivedSegment
"""Steps on a path, recorded by the header of an attempt or derived from the recipe."""


def recorded_segments_to(checkpoint: CheckpointDirectory) -> list[RecordedSegment]:
    """The attempts that led to a checkpoint, each with the steps that count.

    Raises:
        EvidenceError: a manifest, header or config on the way is missing or was changed.
    """
    return recorded_segments_of(checkpoint.run.path_to(checkpoint))


def recorded_segments_of(path: Sequence[PathSegment]) -> list[RecordedSegment]:
    """The same of a path whose last attempt counts to its `last_step`, or to its last ring.

    Raises:
        EvidenceError: as `recorded_segments_to`.
    """
    found: list[RecordedSegment] = []
    done = 0
    for segment in path:
        last = segment.end()
        if last <= done:
            raise EvidenceError(
                f"{segment.attempt.path}: goes on after step {done} but ends on the path at step {last}",
                file=segment.attempt.path,
                step=last,
                found=last,
                expected=f"a step after {done}",
            )
        resolved = segment.run.resolved
        try:
            schedule = resolved.schedule
        except ConfigError as error:
            raise EvidenceError(
                f"{segment.run.config_file}: no schedule can be made of it ({error})", file=segment.run.config_file
            ) from error
        _check_start(segment, found)
        found.append(RecordedSegment(done + 1, last, schedule, resolved.blend, segment))
        done = last
    return found


def passed_over(pieces: Sequence[Piece]) -> Iterator[PassedOver]:
    """The samples that runs on a path skipped where they started, by their recipes."""
    for before, piece in pairwise(pieces):
        run, start = piece.run, piece.run.resolved.recipe.start_from
        if start is None or run.path == before.run.path:
            continue
        lo, _ = piece.sample_range
        expected = before.sample_range[1] if start.schedule == "continue" else 0
        if expected < lo:
            yield PassedOver(run.id, piece.first_step, expected, lo)


def path_joins(pieces: Sequence[Piece]) -> Iterator[CorpusJoin]:
    """Where each corpus goes on at the places of a path where a run starts from another one."""
    for at, (before, piece) in enumerate(pairwise(pieces), 1):
        if piece.run.path == before.run.path:
            continue
        mine = [each.sample_range for each in pieces[at:] if each.run.path == piece.run.path]
        after = ReadRange(piece.run.id, piece.blend, mine[0][0], mine[-1][1])
        yield from corpus_joins(_read_ranges(pieces[:at]), after, piece.first_step)


def _read_ranges(pieces: Sequence[Piece]) -> list[ReadRange]:
    return [ReadRange(piece.run.id, piece.blend, *piece.sample_range) for piece in pieces]


def _check_continuation(segment: PathSegment, before: Sequence[RecordedSegment]) -> None:
    """Compares the positions where a run's blend continues with what the runs before it have read.

    Raises:
        EvidenceError: they differ.
    """
    resolved, other = segment.run.resolved, before[-1].run.resolved
    continues, start = resolved.blend.continues, resolved.recipe.start_from
    if continues is None or start is None:
        return
    earlier = other.schedule.skipped_samples if start.schedule == "continue" else 0
    first = resolved.schedule.sample_range(resolved.first_step)[0] - (start.skipped_samples - earlier)
    expected = positions_after(resolved.blend, _read_ranges(before))
    found = DataOrder(resolved.blend).counts(first) if first >= continues.sample else continues.positions
    if found != expected:
        raise EvidenceError(
            f"{segment.run.config_file}: blend.continues lets the corpora go on at positions "
            f"{list(found)}, expected {list(expected)}, where the runs before stopped reading them",
            file=segment.run.config_file,
            found=list(found),
            expected=list(expected),
        )


def _check_start(segment: PathSegment, before: Sequence[RecordedSegment]) -> None:
    """Compares where a run starts, by its recipe, with the segment before its first attempt on the path.

    Raises:
        EvidenceError: they differ.
    """
    recipe, start = segment.run.resolved.recipe, segment.run.resolved.recipe.start_from
    came_from = None if not before else (before[-1].segment.run.resolved.recipe.digest, before[-1].last_step)
    if came_from is not None and came_from[0] == recipe.digest:
        return
    expected = None if start is None else (start.run, start.step)
    if came_from != expected:
        raise EvidenceError(
            f"{segment.attempt.header_file}: the path comes from {_place(came_from)}, expected "
            f"{_place(expected)} by start_from in {segment.run.config_file}",
            file=segment.attempt.header_file,
            found=came_from,
            expected=expected,
        )
    if before:
        _check_continuation(segment, before)


def _place(place: tuple[str, int] | None) -> str:
    return "nothing" if place is None else f"step {place[1]} of run {short(place[0], RUN_ID_LENGTH)}"
