"""Collects the description of a Megatron run: from a checkpoint's arguments, launch files, a YAML file, or several.

A field of a description replaces the same field of all others. Checkpoints before the requested one show whether the
run was resumed with other arguments: each stretch of steps has its own arguments, and so its own data order.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal

from treering.audit.megatron.arguments import flag
from treering.audit.megatron.forms import DESCRIPTION, EXPECTED, form_of, launch_in, saved_launch
from treering.audit.megatron.history import History, Point, differences, folder_of, history_of, way_to
from treering.audit.megatron.launch_arguments import Launch
from treering.audit.megatron.launched import Launched, accepts, by_newer_python
from treering.audit.megatron.moved import moved_path
from treering.audit.megatron.report import Setting, Unbound
from treering.audit.megatron.saved import (
    LATEST,
    SavedRun,
    earlier_checkpoints,
    find_checkpoint,
    latest_iteration,
    named_iteration,
    named_weights,
    read_checkpoint,
)
from treering.audit.report import Finding
from treering.config.load import validate_section
from treering.config.megatron import MegatronRun
from treering.data.megatron.lineage import EXPECTED_LINEAGE, LINEAGES, Lineage, lineage_named, lineages_of_generation
from treering.errors import ConfigError, NotFoundError, TreeringError, UserError

_NO_WEIGHTS: Final = (
    "That the model is a GPT: the checkpoint's file names no weights, and its arguments alone were read."
)
_PROGRESS: Final = frozenset({"iteration", "consumed_samples"})
_ALTERNATIVES: Final = {
    group: group
    for group in (
        frozenset({"train_samples", "train_iters"}),
        frozenset({"rampup", "batch_steps"}),
        _PROGRESS,
        frozenset({"lineage", "generation"}),
    )
} | {frozenset({"data", "split"}): frozenset({"data"})}
"""Fields with one meaning: a field of the second set in a description replaces those of the first set in a launch."""


@dataclass(frozen=True, slots=True)
class RunSource:
    """The description of a run.

    Attributes:
        path: the file that describes it: the YAML file, or the checkpoint's file without one.
        settings: each value of the last launch, with its origin.
        launches: its steps up to the checkpoint, by launch arguments, oldest first.
        findings: checkpoints that contradict themselves or cannot be read.
        unbound: inputs that decide the launches and are not confirmed.
    """

    path: Path
    settings: tuple[Setting, ...]
    launches: tuple[Launched, ...]
    findings: tuple[Finding, ...]
    unbound: tuple[Unbound, ...]

    @property
    def run(self) -> MegatronRun:
        """The arguments of the last launch."""
        return self.launches[-1].run

    @classmethod
    def open(cls, path: Path, moved: Mapping[str, str], lineage: str | None = None) -> "RunSource":
        """Reads the files of a description.

        Args:
            path: a YAML file, a folder with `megatron-run.yaml`, a save folder, a checkpoint, or the file in it.
            moved: today's place of each folder that moved, by its name in the run.
            lineage: the lineage that the user states, which replaces all others; or None.

        Raises:
            ConfigError: a value is missing, or values contradict each other.
            NotFoundError: neither a description nor a checkpoint was found.
            UserError: the run's data order cannot be rebuilt.
            EvidenceError: the checkpoint cannot be read or does not hold arguments.
        """
        form = form_of(path)
        described, document = form.kind == "description", dict(form.document)
        if lineage is not None:
            document = {name: value for name, value in document.items() if name != "generation"}
            document["lineage"] = lineage_named(lineage).name
        description, folder = form.path, form.path.parent if described else Path()
        fields = _Fields(folder, document, moved, lineage_stated=lineage is not None)
        named = document.get("checkpoint")
        files = [folder / each for each in _listed(document.get("launch"))]
        if files or form.kind in ("script", "neox"):
            saved = _checkpoint(folder / named) if isinstance(named, str) and named else None
            return fields.by_launch(form.path, files or [form.path], saved)
        if described and not (isinstance(named, str) and named):
            run = fields.validated(description, document)
            if run.iteration is None and run.consumed_samples is None:
                run = run.model_copy(update={"iteration": _tracked(description)})
            return cls(description, tuple(fields.settings(run, None)), (fields.launched(description, run),), (), ())
        saved = _checkpoint(folder / str(named) if described else path)
        file = description if described else saved.file
        launch = saved_launch(saved, moved, document)
        earlier, unread = _earlier(saved, moved, document)
        findings = (*_misnamed(saved), *unread)
        history = fields.history((saved, launch), earlier)
        requested = history.stretches[-1].point
        launches = [fields.launched(each.point.saved.file, each.run, each.point.launch) for each in history.stretches]
        seen = () if saved.weights else (_NO_WEIGHTS,)
        last = replace(launches[-1], file=file, open_ends=(*launches[-1].open_ends, *seen, *history.set_aside))
        settings = tuple(fields.settings(requested.run, requested.launch))
        return cls(file, settings, _linked([*launches[:-1], last]), findings, history.unbound)


@dataclass(frozen=True, slots=True)
class _Fields:
    """The fields of a description, to be joined with those of checkpoints.

    Attributes:
        folder: where its relative paths start.
        document: by field; empty without a description.
        moved: today's place of each folder that moved.
        lineage_stated: whether the user stated the lineage beside the description.
    """

    folder: Path
    document: Mapping[str, Any]
    moved: Mapping[str, str]
    lineage_stated: bool = False

    def by_launch(self, file: Path, files: Sequence[Path], saved: SavedRun | None) -> RunSource:
        """A run that launch scripts or YAML files of GPT-NeoX describe.

        Without a checkpoint, an iteration, or a number of samples it is the whole training.

        Raises:
            UserError, ConfigError, EvidenceError: as `RunSource.open`.
        """
        launch = launch_in(files, saved, self.moved, self.document)
        tracked = None if _PROGRESS & self.document.keys() else latest_iteration(file.parent)
        done = saved.iteration if saved is not None else tracked
        values = launch.values if done is None else {**launch.values, "iteration": done}
        run = self.validated(file, self._joined(values), launch)
        unbound: tuple[Unbound, ...] = ()
        if run.iteration is None and run.consumed_samples is None:
            run = run.model_copy(update={"iteration": _whole(file, run)})
            unbound = (
                Unbound(
                    "No checkpoint of the run",
                    f"The answers are for the whole training, {run.iteration:,} steps, as it was launched.",
                    f"Give `checkpoint` or `iteration` in {DESCRIPTION}, and this file under `launch:`.",
                ),
            )
        findings = () if saved is None else tuple(_misnamed(saved))
        settings = tuple(self.settings(run, launch, "launch"))
        return RunSource(file, settings, (self.launched(file, run, launch),), findings, unbound)

    def _joined(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The document, with the fields that it lacks from elsewhere."""
        for group, telling in _ALTERNATIVES.items():
            if telling & self.document.keys():
                values = {name: value for name, value in values.items() if name not in group}
        launch = {"launch": _listed(self.document["launch"])} if "launch" in self.document else {}
        return {**values, **self.document, **launch}

    def completed(self, saved: SavedRun, launch: Launch) -> dict[str, Any]:
        """The document, with the fields that it lacks from a checkpoint."""
        return self._joined({**launch.values, "iteration": saved.iteration})

    def validated(self, file: Path, document: Mapping[str, Any], launch: Launch | None = None) -> MegatronRun:
        """A run with its lineage named in full: the first one that fits and accepts such a blend.

        Raises:
            ConfigError: the document does not describe a run, or its lineage is unknown.
        """
        run = validate_section(file, MegatronRun, dict(document))
        try:
            run.lineage is None or lineage_named(run.lineage)
        except UserError:
            raise ConfigError(str(file), "lineage", str(run.lineage), EXPECTED_LINEAGE) from None
        return run.model_copy(update={"lineage": self.lineages(run, launch)[0].name})

    def lineages(self, run: MegatronRun, launch: Launch | None) -> tuple[Lineage, ...]:
        """The lineages that may have launched a run; the one for the answers first.

        If the user states a lineage that the arguments rule out, those that they allow remain possible. A checkpoint
        does not hold the version of Python: if Python 3.12 gives other weights, that is one more possible lineage.
        """
        fitting = self._fitting(run, launch)
        return (*fitting, *filter(None, (by_newer_python(each, run) for each in fitting)))

    def _fitting(self, run: MegatronRun, launch: Launch | None) -> tuple[Lineage, ...]:
        """The lineages without a version of Python."""
        allowed = () if launch is None else tuple(LINEAGES[name] for name in launch.lineages)
        if self.document.get("lineage") is not None:
            own = lineage_named(self.document["lineage"])
            ruled_out = allowed and own.base not in {each.name for each in allowed}
            return (own, *allowed) if ruled_out else (own,)
        if run.generation is not None:
            covered = lineages_of_generation(run.generation)
            return tuple(each for each in covered if each in allowed) or (*covered, *allowed)
        fitting = allowed or tuple(LINEAGES.values())
        return tuple(each for each in fitting if accepts(each, run)) or fitting

    def launched(self, file: Path, run: MegatronRun, launch: Launch | None = None) -> Launched:
        """A launch with today's places of its paths."""
        return Launched(
            file=file,
            run=run,
            places=tuple(self._place("data", entry.prefix) for entry in run.data),
            cache=None if run.cache is None else self._place("cache", run.cache),
            changed=(),
            lineages=self.lineages(run, launch),
            open_ends=() if launch is None else launch.open_ends,
            unbound=() if launch is None else tuple(each for each in launch.unbound if each.field not in self.document),
        )

    def history(self, requested: tuple[SavedRun, Launch], earlier: Sequence[tuple[SavedRun, Launch]]) -> History:
        """The way to a checkpoint, or to the step before it that the description names.

        The first checkpoint on the way that is not before this step has its arguments.
        """
        own = replace(self, document={name: self.document[name] for name in self.document.keys() - _PROGRESS})
        folder = folder_of(requested[0], [own.point(*each) for each in earlier])
        step = self.document.get("iteration")
        if not isinstance(step, int) or step >= requested[0].iteration:
            return history_of(self.point(*requested), folder)
        way, _ = way_to(own.point(*requested), folder)
        after = next(point for point in way if point.iteration >= step)
        return history_of(self.point(after.saved, after.launch), folder.until(step))

    def point(self, saved: SavedRun, launch: Launch) -> Point:
        """A checkpoint, completed by the description."""
        run = self.validated(saved.file, self.completed(saved, launch), launch)
        return Point(saved, launch, run, run.iteration or saved.iteration, saved.file.stat().st_mtime)

    def settings(
        self, run: MegatronRun, launch: Launch | None, origin: Literal["checkpoint", "launch"] = "checkpoint"
    ) -> Iterator[Setting]:
        """Each value with its origin; `origin` is that of the launch's values."""
        arguments = {} if launch is None else launch.arguments
        for name, value in run.model_dump(mode="json", exclude_none=True).items():
            if name in ("checkpoint", "launch") or value == []:
                continue
            if name == "lineage" and self.lineage_stated:
                yield Setting(name, value, "option", "--lineage")
            elif name in self.document or (name == "lineage" and "generation" in self.document):
                yield Setting(name, value, "description", None)
            elif launch is not None and (arguments.get(name) or name in ("iteration", "lineage")):
                yield Setting(name, value, origin, arguments.get(name))
            else:
                yield Setting(name, value, "tracker" if name == "iteration" else "default", None)
        for name, value in ({} if launch is None else launch.repeated).items():
            yield Setting(name, value, origin, flag(name))

    def _place(self, field: str, name: str) -> Path:
        return moved_path(name, self.moved, self.folder if field in self.document else None)


def _linked(launches: Sequence[Launched]) -> tuple[Launched, ...]:
    """The launches, each with the arguments that it changed."""
    found = [launches[0]]
    for before, now in pairwise(launches):
        changed = tuple(differences(before.run, now.run))
        resumed = (
            f"That the run got other arguments ({'; '.join(changed)}) right after step {before.run.iteration}: a "
            "checkpoint from which it was resumed, saved between two intervals, may have been removed."
        )
        found.append(replace(now, changed=changed, open_ends=(*now.open_ends, resumed)))
    return tuple(found)


def _checkpoint(path: Path) -> SavedRun:
    file = find_checkpoint(path)
    if file is None:
        raise NotFoundError(f"{path}: found neither {DESCRIPTION} nor a checkpoint, expected {EXPECTED}")
    saved = read_checkpoint(file)
    return replace(saved, weights=named_weights(saved))


def _misnamed(saved: SavedRun) -> Iterator[Finding]:
    named = named_iteration(saved.folder)
    if named is not None and named != saved.iteration:
        text = (
            f"{saved.file}: iteration {saved.iteration}, expected {named} by its folder's name: one of the two was "
            f"changed; the answers are for {saved.iteration}"
        )
        yield Finding("record", text, file=str(saved.file), step=saved.iteration)


def _earlier(
    saved: SavedRun, moved: Mapping[str, str], stated: Mapping[str, Any]
) -> tuple[list[tuple[SavedRun, Launch]], list[Finding]]:
    """The launches of the checkpoints before, oldest first, and findings where one cannot be read."""
    found, unread = [], []
    for file in earlier_checkpoints(saved):
        try:
            before = read_checkpoint(file)
            found.append((before, saved_launch(before, moved, stated)))
        except TreeringError as error:
            text = f"the launch arguments of an earlier checkpoint cannot be read: {error}"
            unread.append(Finding("record", text, file=str(file)))
    return found, unread


def _listed(value: Any) -> list[str]:
    """Names of files, one or several; empty if the value has another type."""
    names = [value] if isinstance(value, str) else value
    return list(names) if isinstance(names, list) and all(isinstance(each, str) for each in names) else []


def _whole(file: Path, run: MegatronRun) -> int:
    """The steps of the whole training.

    Raises:
        ConfigError: the training is shorter than a step.
    """
    steps = run.batch_schedule().steps_within(run.num_samples)
    if not steps:
        raise ConfigError(str(file), "train_samples", str(run.num_samples), "at least the samples of a step")
    return steps


def _tracked(source: Path) -> int:
    found = latest_iteration(source.parent)
    if found is None:
        raise ConfigError(
            str(source), "iteration", "nothing", f"iteration or consumed_samples, or {LATEST} in the same folder"
        )
    return found
