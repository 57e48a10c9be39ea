"""Which checkpoints of a save folder are on the way to one of them, and which are of an abandoned branch.

A run that was set back to fewer steps continues from there, and leaves the checkpoints of its first branch beside those
of the second. The order of events follows from the files: steps, samples consumed, times, the batch schedule, and how
often the run saved. If the files allow several readings that differ in what a step read, the answer names these steps.

A checkpoint is set aside that

- was written after the requested checkpoint: it is of a later branch;
- has as many steps as a checkpoint on the way, or more, and was written before it: the run was set back after it;
- has more samples consumed than a checkpoint on the way of more steps: it is of another run;
- has samples consumed that do not lead to the next checkpoint's by the batch schedule, while another checkpoint's do:
  it is of another run.

Several readings are left, and differ in these steps, where

- the arguments changed between two checkpoints, and others between them are missing (`--save-interval` shows which were
  saved; if the batch size changed, the samples consumed mostly leave one): from the first of them to the last;
- the run was set back and saved at another interval, so that checkpoints of its first branch may be on its second: from
  the last checkpoint that it would have written again;
- arguments changed and changed back, as after a copy of the folder without the times of its files: those between;
- the newest file is not the checkpoint that the tracker names, and files were set aside by their times: those of the
  files set aside.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

from treering.audit.megatron.launch_arguments import Launch
from treering.audit.megatron.report import Unbound
from treering.audit.megatron.saved import SavedRun, checkpoint_times, tracked_iteration
from treering.config.megatron import MegatronData, MegatronRun
from treering.config.model import RampConfig
from treering.data.megatron.lineage import lineage_named
from treering.errors import ConfigError

_ORDER: Final = (
    "data", "split", "seed", "sequence_length", "train_samples", "train_iters", "global_batch_size", "rampup",
    "batch_steps", "iterations_to_skip", "lineage", "surplus", "extra_token", "renormalized", "exact_epochs",
)  # fmt: skip
"""Fields by which the data order or the steps differ."""
_SCHEDULE: Final = ("global_batch_size", "rampup", "batch_steps")
_MOST_RESUMES: Final = 10_000
"""Steps after which a run may have been resumed that are tried one by one."""
_MOST_NAMED: Final = 8
_WRITTEN: Final = "written"


@dataclass(frozen=True, slots=True)
class Point:
    """A checkpoint as an event of its folder.

    Attributes:
        saved: the checkpoint.
        launch: its arguments.
        run: the same arguments, completed by the description.
        iteration: steps done.
        time: when its file was written, in seconds.
    """

    saved: SavedRun
    launch: Launch
    run: MegatronRun
    iteration: int
    time: float

    @property
    def name(self) -> str:
        """Its folder's name."""
        return self.saved.folder.name

    @property
    def consumed(self) -> int | None:
        """Samples consumed, None where the run's place in its order does not follow from them."""
        by_steps = self.run.lineage is not None and lineage_named(self.run.lineage).resumes_by_steps
        return None if by_steps else self.run.consumed_samples

    @property
    def save_interval(self) -> int | None:
        """Steps between two saves, None where the arguments lack it."""
        value = self.saved.arguments.get("save_interval")
        return value if isinstance(value, int) and value > 0 else None


@dataclass(frozen=True, slots=True)
class Stretch:
    """Steps with the same launch arguments.

    Attributes:
        point: their newest checkpoint.
        run: its arguments, with the steps and samples after the last of these steps.
    """

    point: Point
    run: MegatronRun


@dataclass(frozen=True, slots=True)
class History:
    """The way to a checkpoint.

    Attributes:
        stretches: of steps with the same arguments, oldest first; the last one ends at the checkpoint.
        set_aside: in words, the checkpoints that are not on the way, with the reason.
        unbound: other ways that the files allow.
    """

    stretches: tuple[Stretch, ...]
    set_aside: tuple[str, ...]
    unbound: tuple[Unbound, ...]


@dataclass(frozen=True, slots=True)
class Folder:
    """All checkpoints of a save folder, as events.

    Attributes:
        before: checkpoints of fewer steps than the requested one, as far as they can be read.
        times: steps and time of every checkpoint.
        tracked: the steps of the checkpoint that the tracker file names, None without one.
    """

    before: Sequence[Point]
    times: Sequence[tuple[int, float]]
    tracked: int | None

    def until(self, step: int) -> "Folder":
        """The same folder with no checkpoint from a step on."""
        return replace(self, before=[point for point in self.before if point.iteration < step])

    @property
    def times_hold(self) -> bool:
        """Whether the files can still have the times of their writing: the tracker names the newest file.

        This fails for a copy that did not keep times, except by chance.
        """
        newest = max(self.times, key=lambda each: (each[1], each[0]), default=None)
        return self.tracked is None or newest is None or newest[0] == self.tracked

    def set_back(self, before: Point, after: Point) -> bool:
        """Whether the run had more steps than `after` at a time between two checkpoints, so that it was set back."""
        return any(before.time < time < after.time and steps >= after.iteration for steps, time in self.times)


def folder_of(requested: SavedRun, before: Sequence[Point]) -> Folder:
    """The save folder of a checkpoint.

    Args:
        requested: the checkpoint.
        before: the checkpoints of fewer steps in the same folder that can be read.
    """
    folder = requested.folder.parent
    return Folder(before, list(checkpoint_times(folder)), tracked_iteration(folder))


def history_of(requested: Point, folder: Folder) -> History:
    """The way to a checkpoint, by the files of its folder."""
    way, aside = way_to(requested, folder)
    stretches, unbound = [], list(_doubts(requested, aside, folder))
    for before, after in pairwise(way):
        if any(differences(before.run, after.run)):
            resumed = _resumed(before, after, way, folder)
            last = max((point for point in way if point.iteration <= resumed.step), key=_steps, default=None)
            if last is not None:
                stretches.append(Stretch(last, _ended(last, resumed.step)))
            unbound += resumed.unbound
    stretches.append(Stretch(requested, requested.run))
    unbound += _returned(stretches, way)
    return History(tuple(stretches), tuple(_set_aside_texts(aside)), tuple(unbound))


def differences(before: MegatronRun, now: MegatronRun) -> Iterator[str]:
    """The arguments that move data or steps and differ, in words."""
    for name in _ORDER:
        old, new = getattr(before, name), getattr(now, name)
        if old != new:
            yield f"{name} was {_shown(old)}, is {_shown(new)}"


def way_to(requested: Point, folder: Folder) -> tuple[list[Point], dict[str, list[Point]]]:
    """The checkpoints on the way, oldest first, the requested one last; the others by the reason why they are not."""
    way = [requested]
    aside: dict[str, list[Point]] = {}
    left = sorted(folder.before, key=lambda point: (point.time, point.iteration), reverse=True)

    def put_aside(points: Sequence[Point], reason: str) -> None:
        aside.setdefault(reason, []).extend(points)

    put_aside([point for point in left if point.time > requested.time], f"{_WRITTEN} after {requested.name}")
    left = [point for point in left if point.time <= requested.time]
    while left:
        now = way[-1]
        possible = []
        for point in left:
            if point.iteration >= now.iteration:
                put_aside([point], f"of more steps than {now.name}, which was {_WRITTEN} later")
            elif point.consumed is not None and now.consumed is not None and point.consumed > now.consumed:
                put_aside([point], f"of more samples consumed than {now.name}")
            else:
                possible.append(point)
        fitting = next((number for number, point in enumerate(possible) if _fitting(point, now)), None)
        if fitting is None and possible and _from_nothing(now):
            put_aside(possible, f"of samples consumed that do not lead to those of {now.name}")
            break
        if not possible:
            break
        put_aside(possible[: fitting or 0], f"of samples consumed that do not lead to those of {now.name}")
        way.append(possible[fitting or 0])
        left = possible[(fitting or 0) + 1 :]
    return way[::-1], {reason: points for reason, points in aside.items() if points}


@dataclass(frozen=True, slots=True)
class _Resumed:
    """Where a run was resumed with other arguments.

    Attributes:
        step: the step after which it was resumed.
        unbound: other steps that the files allow.
    """

    step: int
    unbound: list[Unbound] = field(default_factory=list)


def _resumed(before: Point, after: Point, way: Sequence[Point], folder: Folder) -> _Resumed:
    """The step after which a run continued with the arguments of the next checkpoint."""
    possible = _fitting(before, after) or [before.iteration]
    first, last = possible[0], possible[-1]
    if folder.set_back(before, after):
        first = min(first, _lowest([point for point in way if point.iteration <= before.iteration], after))
    stated = [step for step in after.run.resumed_after if first <= step <= last]
    if stated:
        return _Resumed(stated[0])
    if first == last:
        return _Resumed(first)
    unbound = Unbound(
        f"The step after which the run took other arguments ({'; '.join(differences(before.run, after.run))})",
        f"Between {before.name} and {after.name} checkpoints are missing or the run was set back: it was resumed after "
        f"step {first} or later, at most after step {last}. Steps {first + 1} to {last} were read by the arguments "
        f"before or by the new ones; the answers use the new ones from step {possible[0] + 1} on.",
        "Give `resumed_after` in megatron-run.yaml: the step that the log of the training names.",
        steps=(first + 1, last),
    )
    return _Resumed(possible[0], [unbound])


def _steps(point: Point) -> int:
    return point.iteration


def _lowest(points: Sequence[Point], after: Point) -> int:
    """The least step from which a run that was set back can have continued.

    It leaves the checkpoints of its first branch, except those that it writes again.
    """
    for point in reversed(points):
        if after.save_interval is not None and point.iteration % after.save_interval == 0:
            return point.iteration
    return 0


def _fitting(before: Point, after: Point) -> list[int]:
    """The steps after which the run can have continued with the next arguments, by its samples consumed."""
    consumed = after.consumed
    if all(getattr(before.run, name) == getattr(after.run, name) for name in _SCHEDULE):
        fits = consumed is None or _consumed(before, before.iteration, after) in (consumed, None)
        return list(_saves(before, after)) if fits else []
    return [
        step for step in _saves(before, after) if consumed is None or _consumed(before, step, after) in (consumed, None)
    ]


def _saves(before: Point, after: Point) -> list[int]:
    """Steps from which the run can have been resumed: the checkpoint before, and others that were removed."""
    first, last = before.iteration, after.iteration
    if not any(differences(before.run, after.run)):
        return [first]
    interval = before.save_interval or 1
    later = range(first // interval * interval + interval, last, interval)
    return [first, *later[:_MOST_RESUMES], *later[-1:][_MOST_RESUMES - len(later) :]]


def _consumed(before: Point, step: int, after: Point) -> int | None:
    """The samples consumed at a checkpoint of a run that has its arguments since a step; None without a schedule."""
    try:
        middle = _samples_after(before, step)
        return after.run.batch_schedule(step, middle).sample_range(after.iteration)[1]
    except ConfigError:
        return None


def _samples_after(before: Point, step: int) -> int:
    """The samples consumed after a step that followed a checkpoint with its arguments."""
    consumed = before.consumed
    if consumed is None:
        return before.run.batch_schedule().samples_after(step)
    return (
        consumed
        if step == before.iteration
        else before.run.batch_schedule(before.iteration, consumed).sample_range(step)[1]
    )


def _from_nothing(point: Point) -> bool:
    """Whether the samples consumed at a checkpoint are those of its own arguments from the first step on."""
    try:
        return point.run.batch_schedule().samples_after(point.iteration) == point.consumed
    except ConfigError:
        return False


def _ended(point: Point, step: int) -> MegatronRun:
    """The arguments of a checkpoint, with the steps and samples after the last step that has them."""
    if step == point.iteration:
        return point.run
    return point.run.model_copy(update={"iteration": step, "consumed_samples": _samples_after(point, step)})


def _doubts(requested: Point, aside: Mapping[str, Sequence[Point]], folder: Folder) -> Iterator[Unbound]:
    """The doubt about checkpoints with other arguments that were set aside by times which a copy may have changed."""
    if folder.times_hold:
        return
    others = [
        point
        for reason, points in aside.items()
        for point in points
        if _WRITTEN in reason and any(differences(point.run, requested.run))
    ]
    if others:
        last = max(point.iteration for point in others)
        yield Unbound(
            f"The order in which the checkpoints of {requested.saved.folder.parent} were written",
            f"By the times of the files {_names(others)} {'is' if len(others) == 1 else 'are'} not on the way to "
            f"{requested.name}, but the newest file is not the checkpoint that the tracker names: a copy may have "
            f"changed the times. Steps up to {last} were read by these arguments or by the answer's.",
            "Move the checkpoints of an abandoned branch away, or restore the times of the files.",
            steps=(1, last),
        )


def _returned(stretches: Sequence[Stretch], way: Sequence[Point]) -> Iterator[Unbound]:
    """The doubt about steps between two stretches with the same arguments: they may be of an abandoned branch."""
    for number, stretch in enumerate(stretches):
        same = [earlier for earlier in range(number - 1) if not any(differences(stretches[earlier].run, stretch.run))]
        if same:
            first = (stretches[same[-1]].run.iteration or 0) + 1
            last = stretches[number - 1].run.iteration or first
            between = _names([point for point in way if first <= point.iteration <= last])
            yield Unbound(
                f"Whether {between} is on the way to {stretches[-1].point.name}",
                f"The arguments after step {last} are again those of the steps before {first}: the steps {first} to "
                f"{last} were read by the arguments of {between}, or these checkpoints are of an abandoned branch.",
                "Move the checkpoints of an abandoned branch away, or give `resumed_after` in megatron-run.yaml.",
                steps=(first, last),
            )


def _set_aside_texts(aside: Mapping[str, Sequence[Point]]) -> Iterator[str]:
    for reason, points in aside.items():
        yield (
            f"That {_names(points)} {'is' if len(points) == 1 else 'are'} not on the way to this checkpoint: {reason}, "
            "so of an abandoned branch or of another run."
        )


def _names(points: Sequence[Point]) -> str:
    named = ", ".join(sorted({point.name for point in points})[:_MOST_NAMED])
    return named if len(points) <= _MOST_NAMED else f"{named} and {len(points) - _MOST_NAMED} more"


def _shown(value: Any) -> str:
    if isinstance(value, RampConfig):
        return f"{value.start} {value.increment} {value.samples}"
    if isinstance(value, MegatronData):
        return f"{value.weight or ''} {value.prefix}".strip()
    if isinstance(value, tuple):
        listed = [_shown(each) for each in value[:_MOST_NAMED]]
        more = [f"and {len(value) - _MOST_NAMED} more"] if len(value) > _MOST_NAMED else []
        return " ".join([*listed, *more]) or "none"
    return "none" if value is None else str(value)
