"""Who did a step of a run: the newest attempt with a ring of it, or where none is left the recipe alone."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from treering.audit.evidence.recovery import HELPS, readable_run
from treering.audit.evidence.segments import DerivedSegment, Piece, RecordedSegment
from treering.audit.report import Gap, Level
from treering.config.canonical import short
from treering.config.layout import Layout
from treering.config.resolved import RUN_ID_LENGTH
from treering.errors import EvidenceError, NotFoundError
from treering.project import Project
from treering.runlog.ancestry import PathSegment
from treering.runlog.attempt import AttemptDirectory
from treering.runlog.directory import RunDirectory
from treering.runlog.ring import Ring


@dataclass(frozen=True, slots=True)
class FoundStep:
    """A step of a run.

    Attributes:
        piece: the step alone, of the attempt that did it if its header is there.
        ring: its ring, None where none is left.
        layout: how the batch was spread, by the attempt's header or a checkpoint of it; None where nobody says.
        gaps: what is missing.
    """

    piece: Piece
    ring: Ring | None
    layout: Layout | None
    gaps: tuple[Gap, ...]

    @property
    def level(self) -> Level:
        """The level of what is known of the step without the corpora."""
        return Level.REDERIVED if self.ring is None else Level.RECORDED


def find_step(run: RunDirectory, step: int, project: Project) -> FoundStep:
    """Looks for a step in the newest attempt that laid a ring for it; without one, derives it from the recipe.

    Args:
        run: the run.
        step: the step.
        project: where a copy of the run log is looked for.

    Raises:
        NotFoundError: the run has no such step; the text says which it has.
        EvidenceError: the run's config is missing.
    """
    run, lost = readable_run(run, project)
    gaps = list(lost)
    resolved, schedule = run.resolved, run.resolved.schedule
    for attempt in reversed(run.attempts(headless=True)):
        held, problem = rings_of(attempt, step, step)
        ring = held.get(step)
        if problem:
            answered = f"step {step} by the rings of attempt {attempt.number} that are left"
            if ring is None:
                answered = "the rings of other attempts, and what the recipe says"
            level = Level.REDERIVED if ring is None else Level.RECORDED
            gaps.append(Gap.from_error(problem, answered, level, attempt.path, helps=HELPS))
        if ring is not None:
            segment = PathSegment(run, attempt, step)
            piece = _piece(segment, step)
            return FoundStep(piece, ring, layout_of(run, attempt), tuple(gaps))
    if not resolved.first_step <= step <= schedule.num_steps:
        raise NotFoundError(_no_such_step(run, step))
    lo, hi = schedule.sample_range(step)
    answered = f"what schedule and blend give step {step}: samples {lo} to {hi}"
    missing = f"{run.path}: no ring of step {step} is there; {_rings_there(run)}"
    gaps.append(Gap(missing, answered, Level.REDERIVED, str(run.attempts_folder)))
    return FoundStep(DerivedSegment(step, step, schedule, resolved.blend, run, None), None, None, tuple(gaps))


def _piece(segment: PathSegment, step: int) -> Piece:
    run, resolved = segment.run, segment.run.resolved
    if segment.attempt.has_header:
        return RecordedSegment(step, step, resolved.schedule, resolved.blend, segment)
    return DerivedSegment(step, step, resolved.schedule, resolved.blend, run, segment.attempt)


def rings_of(attempt: AttemptDirectory, first: int, last: int) -> tuple[dict[int, Ring], EvidenceError | None]:
    """The rings of steps [first, last] that an attempt has, by step; and what does not hold on the way to them."""
    found: dict[int, Ring] = {}
    try:
        _collect(attempt.rings(), first, last, found)
    except EvidenceError as error:
        with suppress(EvidenceError):
            _collect(attempt.headless_rings(), first, last, found)
        return found, error
    return found, None


def _collect(rings: Iterator[Ring], first: int, last: int, found: dict[int, Ring]) -> None:
    for ring in rings:
        if first <= ring.step <= last:
            found[ring.step] = ring
        if ring.step >= last:
            return


def layout_of(run: RunDirectory, attempt: AttemptDirectory) -> Layout | None:
    """How an attempt spread its batches: by its header, or without it by a checkpoint that it wrote."""
    if attempt.has_header:
        return attempt.header.layout
    for checkpoint in run.checkpoints():
        if checkpoint.has_manifest and checkpoint.manifest.attempt == attempt.number:
            return checkpoint.manifest.layout
    return None


def _no_such_step(run: RunDirectory, step: int) -> str:
    start = run.resolved.recipe.start_from
    if start is not None and 1 <= step <= start.step:
        other = short(start.run, RUN_ID_LENGTH)
        return f"{run.path}: begins after step {start.step} of run {other}; `treering batch {other} {step}` shows it"
    first, last = run.resolved.first_step, run.resolved.schedule.num_steps
    return (
        f"{run.path}: no attempt did step {step}; {_rings_there(run)}, its schedule has the steps {first} to {last}, "
        f"`treering show {run.id}` shows them"
    )


def _rings_there(run: RunDirectory) -> str:
    """Which steps have rings, by attempt."""
    held, newest = [], 0
    for attempt in run.attempts(headless=True):
        with suppress(EvidenceError):
            first, last = attempt.first_step(), attempt.last_step()
            if first:
                held.append(f"attempt {attempt.number}: steps {first} to {last}")
                newest = max(newest, last)
    return f"its rings go to step {newest} ({', '.join(held) or 'there are none'})"
