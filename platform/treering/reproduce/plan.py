"""What of a run can be made again here, and what not: said before anything starts, from the record alone."""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from treering.config.canonical import short
from treering.errors import EvidenceError, NotFoundError, RunLockedError, UserError
from treering.metrics.lost_work import AttemptTimes
from treering.project import Project
from treering.reproduce.environment import environment_items
from treering.reproduce.items import CLOSE_NUMBERS, Item
from treering.reproduce.places import data_items, device_items, heldout_items, kernel_items, start_items
from treering.reproduce.sources import HERE, Sources, check_out_verified, find_sources, remove
from treering.reproduce.trial import bases_on_path
from treering.runlog.ancestry import PathSegment
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering.runlog.find import AnyAttempt, AnyRun


@dataclass(frozen=True, slots=True)
class PlannedSteps:
    """Steps that were trained by the same code in the same layout.

    Attributes:
        first: first step.
        last: last step.
        segment: the attempt that trained them, the first one of several that did.
        sources: where the code comes from.
    """

    first: int
    last: int
    segment: PathSegment
    sources: Sources


@dataclass(frozen=True, slots=True)
class Plan:
    """What a reproduction will do.

    Attributes:
        run: the run's id.
        first_step: first step that is made again.
        last_step: last step.
        from_step: the checkpoint of the run that it starts from; 0 for none.
        seconds: how long these steps took when they were recorded; None where their rings do not hold.
        device_hours: the same, of all ranks.
        items: what the run was made of.
    """

    run: str
    first_step: int
    last_step: int
    from_step: int
    seconds: float | None
    device_hours: float | None
    items: tuple[Item, ...]

    @property
    def stopping(self) -> tuple[Item, ...]:
        """The things without which nothing can be made again."""
        return tuple(each for each in self.items if each.stops)

    @property
    def missing(self) -> tuple[Item, ...]:
        """The things that are not as recorded."""
        return tuple(each for each in self.items if each.state == "cannot")

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON values."""
        return asdict(self)


def check_can_begin(run: AnyRun) -> None:
    """Refuses a run that is being trained.

    Raises:
        RunLockedError: the run is running.
    """
    if run.is_held:
        raise RunLockedError(
            f"{run.path}: the run is running, expected a run that ended; reproduce it when it has ended"
        )


def plan_own_run(
    run: RunDirectory,
    project: Project,
    steps: range | None,
    from_checkpoint: int | None,
    *,
    recorded_python: bool,
    present_code: bool = False,
) -> tuple[Plan, list[PlannedSteps], CheckpointDirectory | None]:
    """Plans the reproduction of a run of Treering's trainer.

    Args:
        run: the run.
        project: where its corpora are looked for.
        steps: the steps to make again; None: all.
        from_checkpoint: step of the checkpoint to start from; None: the newest one before `steps`, without steps none.
        recorded_python: whether a virtual environment is made from the recorded versions.
        present_code: whether the code that is here trains, whatever code is on record.

    Returns:
        The plan, the stretches to train in their order, and the checkpoint to start from.

    Raises:
        UserError: the run has no such steps, or no such checkpoint.
        EvidenceError: a record of the run does not hold.
    """
    segments = run.path_to(own=True)
    ends = [each.end() for each in segments]
    if not ends or not ends[-1]:
        raise UserError(f"{run.path}: the run has no step, expected a run that trained")
    wanted = _wanted(run, steps, ends[-1])
    base = _base(run, wanted, from_checkpoint, given=steps is not None)
    first = base.step + 1 if base is not None else run.resolved.first_step
    stretches = list(_stretches(segments, ends, first, wanted.stop - 1, _repositories(project)))
    items: list[Item] = []
    for number, stretch in enumerate(stretches):
        header, name = stretch.segment.attempt.header, _attempt_name(stretch, stretches)
        code = _code_item(stretch.sources, name, installs=recorded_python)
        if code.state == "cannot":  # the code that is here runs
            stretches[number] = replace(stretch, sources=replace(stretch.sources, repository=None, same=False))
        if present_code and code.state == "rebuilt":
            code = replace(code, state="other", reason=f"{code.reason}, and by --present-code not run")
        items += [
            code,
            *environment_items(header.environment, name, recorded_python=recorded_python),
            *device_items(header, name),
            *kernel_items(header, name),
        ]
    items += [*data_items(run, project), *heldout_items(run, project), *start_items(run, base)]
    spent = spent_on(((each.attempt, end) for each, end in zip(segments, ends, strict=True)), first, wanted.stop - 1)
    plan = Plan(run.id, first, wanted.stop - 1, base.step if base else 0, *spent, tuple(dict.fromkeys(items)))
    return plan, stretches, base


def spent_on(path: Iterable[tuple[AnyAttempt, int]], first: int, last: int) -> tuple[float | None, float | None]:
    """How long steps took when they were recorded, in seconds, and in device-hours of all ranks.

    Args:
        path: the attempts that did them, each with its last step that counts.
        first: the first step.
        last: the last step.

    Returns:
        None for both where a ring or a header was changed: the comparison will report that.
    """
    seconds = device_hours = 0.0
    start = first
    for attempt, end in path:
        stop = min(end, last)
        if stop >= start:
            try:
                times = AttemptTimes.of(attempt)
            except EvidenceError:
                return None, None
            took = times.at(stop) - times.at(start - 1)
            seconds, device_hours = seconds + took, device_hours + took * times.world_size / 3600
            start = stop + 1
    return seconds, device_hours


def _wanted(run: RunDirectory, steps: range | None, last: int) -> range:
    """The steps to make again.

    Raises:
        UserError: the run does not have them.
    """
    first = run.resolved.first_step
    if steps is None:
        return range(first, last + 1)
    if not first <= steps.start < steps.stop <= last + 1:
        raise UserError(
            f"--steps: found {steps.start}:{steps.stop - 1}, expected steps of run {run.id}: {first} to {last}"
        )
    return steps


def _base(run: RunDirectory, wanted: range, from_checkpoint: int | None, *, given: bool) -> CheckpointDirectory | None:
    """The checkpoint to start from.

    Raises:
        NotFoundError: there is none of that step.
    """
    usable = {step: each for step, each in bases_on_path(run).items() if step < wanted.stop - 1 and _is_whole(each)}
    if given:
        usable = {step: each for step, each in usable.items() if step < wanted.start}
    if from_checkpoint is not None and from_checkpoint not in usable:
        has = ", ".join(map(str, sorted(usable))) or "none"
        raise NotFoundError(
            f"--from-checkpoint: found {from_checkpoint}, expected the step of one on the path of run {run.id}, "
            f"before the steps that are made again: {has}"
        )
    if from_checkpoint is None:
        return usable[max(usable)] if given and usable else None
    return usable[from_checkpoint]


def _is_whole(checkpoint: CheckpointDirectory) -> bool:
    """Whether a checkpoint has all its files; of a mirrored run only the manifest is here."""
    return all((checkpoint.path / file.path).exists() for file in checkpoint.manifest.files)


def _stretches(
    segments: Sequence[PathSegment], ends: Sequence[int], first: int, last: int, repositories: Sequence[Path]
) -> Iterator[PlannedSteps]:
    """The steps, cut where code, environment, layout or kernels changed."""
    held: PlannedSteps | None = None
    for segment, end in zip(segments, ends, strict=True):
        stop = min(end, last)
        start = held.last + 1 if held else first
        if stop < start:
            continue
        if held and _as_before(held.segment, segment):
            held = PlannedSteps(held.first, stop, held.segment, held.sources)
            continue
        if held:
            yield held
        held = PlannedSteps(start, stop, segment, find_sources(segment.attempt.header.code, repositories))
    if held:
        yield held


def _as_before(first: PathSegment, second: PathSegment) -> bool:
    one, other = first.attempt.header, second.attempt.header
    return (one.code["digest"], one.environment["digest"], one.layout, one.kernels) == (
        other.code["digest"], other.environment["digest"], other.layout, other.kernels,
    )  # fmt: skip


def _repositories(project: Project) -> list[Path]:
    return list(dict.fromkeys((HERE, project.root.resolve())))


def _attempt_name(stretch: PlannedSteps, stretches: Sequence[PlannedSteps]) -> str:
    """Which attempt an item is about; empty where all steps were trained alike."""
    return f" of attempt {stretch.segment.attempt.number}" if len(stretches) > 1 else ""


def _code_item(sources: Sources, name: str, *, installs: bool) -> Item:
    """Whether the code can be had; a rebuilt one is built once to see that its digest is the recorded one."""
    named = f"code{name} ({short(str(sources.code['digest']))})"
    if sources.repository is not None:
        with tempfile.TemporaryDirectory(prefix="treering-code-") as folder:
            trial = Path(folder) / "source"
            try:
                check_out_verified(sources, trial)
            except EvidenceError as error:
                return Item("code", named, "cannot", str(error), "a clone of Treering with that commit", CLOSE_NUMBERS)
            finally:
                remove(sources.repository, trial)
        return Item("code", named, "rebuilt", sources.reason)
    if sources.same:
        return Item("code", named, "same", sources.reason)
    if installs and sources.installed:
        return Item("code", named, "rebuilt", f"{sources.reason}; the recorded version of Treering is installed")
    return Item("code", named, "cannot", sources.reason, sources.remedy, CLOSE_NUMBERS)
