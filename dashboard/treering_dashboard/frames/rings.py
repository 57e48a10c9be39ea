"""What the run pages draw of a run: its curves, alarms, restarts and incidents.

Reads what the trainer wrote, through the columns. Evidence that does not hold ends the rows where it breaks and goes to
`problems`: a page shows the rows before the fault, and names the fault.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise

import pandas as pd

from treering.errors import EvidenceError
from treering.metrics.alarms import Alarm
from treering.metrics.path_alarms import judge_of, judged
from treering.metrics.spikes import RingAlarms
from treering.metrics.stored_alarms import alarms_by_columns
from treering.runlog.ancestry import PathSegment, segments_left
from treering.runlog.attempt import AttemptDirectory
from treering.runlog.before_fault import attempt_before_fault, headless_attempts, rings_before_fault
from treering.runlog.columns.attempt import AttemptColumns
from treering.runlog.columns.blocks import rows_of
from treering.runlog.columns.path import PathColumns
from treering.runlog.directory import RunDirectory
from treering.runlog.incidents import Incident
from treering.runlog.metric_catalog import describe
from treering_dashboard.frames.curves import Curves
from treering_dashboard.frames.shares import shares_of
from treering_dashboard.frames.sources import ColumnSource, RowSource
from treering_dashboard.frames.stretch import Offset, Stretch

VALIDATION = "validation/loss"


@dataclass(frozen=True, slots=True)
class Restart:
    """The point from which an attempt continued.

    Attributes:
        step: first step of the attempt.
        attempt: its number.
        origin: how the attempt began, as its header names it.
        replaced_steps: steps of the attempt before it that were repeated.
    """

    step: int
    attempt: int
    origin: str
    replaced_steps: int


@dataclass(frozen=True)
class RunFrames:
    """What the run pages draw.

    Attributes:
        path: the numbers along the path.
        replaced: those after the point to which a restart returned: recorded, off the path.
        alarms: what the rules of health found on the path, in order of steps.
        restarts: the points of the path at which a new attempt began.
        incidents: events outside the metrics of all attempts, those off the path too, each with its attempt's number.
        problems: the evidence that does not hold; one fault may be in it twice.
        missing: what is missing of the path before the run's own steps, as text; empty if the path is complete.
        flops_formula: name of the FLOPs formula of the newest ring.
        recorded: whether another trainer reported the numbers.
        all_ranks: whether the tokens are those of all ranks; else of rank 0 alone.
    """

    path: Curves
    replaced: Curves
    alarms: tuple[Alarm, ...] = ()
    restarts: tuple[Restart, ...] = ()
    incidents: tuple[tuple[int, Incident], ...] = ()
    problems: tuple[EvidenceError, ...] = ()
    missing: str = ""
    flops_formula: str | None = None
    recorded: bool = False
    all_ranks: bool = True

    def last(self, num_steps: int) -> "RunFrames":
        """The same for the newest steps alone, so that they are downsampled less."""
        return self.between(self.path.last_step - num_steps + 1, None)

    def between(self, first_step: int, last_step: int | None) -> "RunFrames":
        """The same from one step to another alone."""
        end = self.path.last_step if last_step is None else last_step

        def inside(step: int) -> bool:
            return first_step <= step <= end

        return replace(
            self,
            path=self.path.between(first_step, last_step),
            replaced=self.replaced.between(first_step, last_step),
            alarms=tuple(alarm for alarm in self.alarms if inside(alarm.step)),
            restarts=tuple(restart for restart in self.restarts if inside(restart.step)),
            incidents=tuple(each for each in self.incidents if inside(each[1].step)),
        )

    @property
    def num_steps(self) -> int:
        """Steps on the path that hold."""
        return len(self.path)

    def held_out(self, corpus: str = "", facts: Sequence[str] = ()) -> pd.DataFrame:
        """Held-out losses on the path: facts of each measurement with `loss`.

        Args:
            corpus: whose; empty: the blend's.
            facts: beside step, segment, attempt and tokens.
        """
        key = f"{VALIDATION}/{corpus}" if corpus else VALIDATION
        if key not in self.path:
            return self.path.frame([], ("tokens", *facts)).assign(loss=[])
        positions, values = self.path.points(key)
        return self.path.frame(positions, ("tokens", *facts)).assign(loss=values)

    @property
    def held_out_corpora(self) -> list[str]:
        """The corpora whose held-out loss was measured."""
        return [key.removeprefix(f"{VALIDATION}/") for key in self.path.metrics if key.startswith(f"{VALIDATION}/")]


@dataclass(frozen=True)
class _Read:
    """The attempts of a path and where their rows come from, oldest first."""

    segments: list[PathSegment]
    sources: list[ColumnSource | RowSource]
    ends: list[int]
    formulas: list[str | None]
    alarms: list[Alarm]
    missing: str


def read_run(run: RunDirectory) -> RunFrames:
    """Reads a run; broken evidence goes to `problems` and is never raised."""
    problems = [*headless_attempts(run), *_damaged_manifests(run)]
    try:
        found = _by_columns(run)
    except EvidenceError:  # the rings say what is wrong, and which of them are left
        found = _by_rings(run, problems)
    path = _path(found)
    return RunFrames(
        path=path,
        replaced=_replaced(run, found.segments, path),
        alarms=tuple(found.alarms),
        restarts=tuple(_restarts(found.segments)),
        incidents=tuple(_incidents(run, problems)),
        problems=tuple(problems),
        missing=found.missing,
        flops_formula=next((each for each in reversed(found.formulas) if each is not None), None),
    )


def _damaged_manifests(run: RunDirectory) -> Iterator[EvidenceError]:
    """The errors of the checkpoints whose manifests do not hold."""
    for checkpoint in run.checkpoints():
        try:
            checkpoint.manifest  # noqa: B018 - reading checks it
        except EvidenceError as error:
            yield error


def _by_columns(run: RunDirectory) -> _Read:
    segments, missing = segments_left(run)
    columns = PathColumns.of_run(segments, whole=not missing)
    ends = [last or each.head().last_step for each, last in columns.stretches]
    newest = [each.newest(1, end) for (each, _), end in zip(columns.stretches, ends, strict=True)]
    return _Read(
        segments,
        [ColumnSource(each) for each, _ in columns.stretches],
        ends,
        [rings[-1].flops_formula if rings else None for rings in newest],
        alarms_by_columns(run, segments, columns) if segments else [],
        missing,
    )


def _by_rings(run: RunDirectory, problems: list[EvidenceError]) -> _Read:
    segments, parts, missing = rings_before_fault(run, problems)
    return _Read(
        segments,
        [RowSource(rows_of(rings, range(len(rings)))) for rings in parts],
        [rings[-1].step if rings else 0 for rings in parts],
        [rings[-1].flops_formula if rings else None for rings in parts],
        list(judged(_judge(run), segments, chain.from_iterable(parts))),
        missing,
    )


def _path(found: _Read) -> Curves:
    names: dict[str, None] = {}
    stretches: list[Stretch] = []
    for segment, source, end, formula in zip(found.segments, found.sources, found.ends, found.formulas, strict=True):
        computed = shares_of(segment, source.names(), formula)
        names |= dict.fromkeys((*source.names(), *computed))
        attempt, number = segment.attempt, len(stretches)
        offset = None if number or attempt.header.parent is None else _before_first(attempt)
        stretches.append(Stretch(number, attempt.number, source, end, 0, attempt.header.started_at, offset, computed))
    begin = stretches[0].started_at if stretches else 0.0
    return Curves(tuple(stretches), {name: (name, describe(name)) for name in names}, cumulative=True, begin=begin)


def _before_first(attempt: AttemptDirectory) -> Offset:
    """What was consumed before an attempt whose past is missing, by its first ring."""

    def offset(fact: str) -> float:
        ring = attempt.ring_log.first()
        return float(ring.consumed_samples - ring.global_batch_size) if ring and fact == "samples" else 0.0

    return offset


def _replaced(run: RunDirectory, segments: list[PathSegment], path: Curves) -> Curves:
    """Rings of this run's attempts after the point to which a restart returned."""
    last_on_path = {segment.attempt.number: segment.last_step for segment in segments if segment.run.path == run.path}
    stretches = []
    for attempt in run.attempts():
        last = last_on_path.get(attempt.number, 0)
        if last is None:
            continue
        try:
            started_at = attempt.header.started_at
            source, end = _source(run, attempt)
        except EvidenceError:
            continue
        if end > last:
            parent = attempt.header.parent
            before = last or (parent.step if parent else 0)
            stretches.append(Stretch(attempt.number, attempt.number, source, end, last, started_at, path.until(before)))
    return Curves(tuple(stretches), path.metrics, cumulative=True, begin=path.begin)


def _source(run: RunDirectory, attempt: AttemptDirectory) -> tuple[ColumnSource | RowSource, int]:
    """The rows of an attempt, before its first fault, and the last step that they hold."""
    try:
        columns = AttemptColumns(attempt, keep=not run.is_cut)
        return ColumnSource(columns), columns.head().last_step
    except EvidenceError:
        rings = list(attempt_before_fault(attempt, None))
        return RowSource(rows_of(rings, range(len(rings)))), rings[-1].step if rings else 0


def _judge(run: RunDirectory) -> RingAlarms:
    try:
        return judge_of(run)
    except EvidenceError:
        return RingAlarms()


def _incidents(run: RunDirectory, problems: list[EvidenceError]) -> list[tuple[int, Incident]]:
    found = []
    for attempt in run.attempts():
        try:
            found += [(attempt.number, incident) for incident in attempt.incidents()]
        except EvidenceError as error:
            problems.append(error)
    return found


def _restarts(segments: list[PathSegment]) -> Iterator[Restart]:
    for before, segment in pairwise(segments):
        header = segment.attempt.header
        last = before.last_step or 0
        # Steps of another run after the step from which this run starts were not repeated.
        own = before.run.path == segment.run.path
        done = _source(before.run, before.attempt)[1] if own else last
        yield Restart(last + 1, header.attempt, header.origin, max(0, done - last))
