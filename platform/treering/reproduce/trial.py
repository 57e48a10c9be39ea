"""Trains recorded steps again, in another folder: as they were recorded, or under one changed condition.

Replay, reproduction and the search for causes all train by this module. The trainer runs in another process, perhaps
another source tree or another Python.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from treering.collect.code import code_difference, is_installed
from treering.config.layout import Layout
from treering.config.operation import AttemptConfig, KernelConfig
from treering.config.resolved import CONFIG_FILE
from treering.ending import EXIT_RESTART
from treering.errors import TrainingError, UserError
from treering.files import replace_durably
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering.runlog.extract import extract_run
from treering.runlog.records import AttemptHeader
from treering.runlog.ring import Ring

STANDARD_ERROR: Final = 2
"""What a training prints goes there: standard output is of the command that asked for it."""

THREADS_VARIABLE: Final = "TREERING_THREADS_PER_RANK"
"""How many threads each rank computes with, where the processors of this machine shall not decide."""

_NEVER: Final = 10**9


@dataclass(frozen=True, slots=True)
class Conditions:
    """What is not as it was recorded; a default is: present code and environment, recorded kernels and layout.

    Attributes:
        sources: the code, as a clone's root or a folder of packages; None for the installed code.
        python: the interpreter, None for this one.
        variables: environment variables to set, or to unset where the value is None.
        kernels: the kernels to ask for, None for the recorded request.
        layout: the parallel layout, None for the recorded layout.
        deterministic: whether in deterministic mode, None as recorded.
    """

    sources: Path | None = None
    python: Path | None = None
    variables: Mapping[str, str | None] = field(default_factory=dict)
    kernels: KernelConfig | None = None
    layout: Layout | None = None
    deterministic: bool | None = None


@dataclass(frozen=True, slots=True)
class Stretch:
    """Steps of a run's path that are to be trained again.

    Attributes:
        run: the run.
        base: the checkpoint from which the steps follow; None for the run's own beginning.
        last: the last of the steps.
        end: the end of the path; None for the newest ring.
    """

    run: RunDirectory
    base: CheckpointDirectory | None
    last: int
    end: CheckpointDirectory | None = None

    @property
    def first(self) -> int:
        """The first of the steps."""
        return self.run.resolved.first_step if self.base is None else self.base.step + 1

    @property
    def beginning(self) -> str:
        """Where the steps begin, in words."""
        start = self.run.resolved.recipe.start_from
        if self.base is not None:
            return f"checkpoint {self.base.step}"
        return "nothing" if start is None else f"checkpoint {start.step} of the run before"

    def header(self, step: int) -> AttemptHeader:
        """The header of the attempt that trained a step of the path.

        Raises:
            EvidenceError: a record on the path does not hold.
            UserError: the path has no such step.
        """
        for segment in self.run.path_to(self.end):
            if segment.end() >= step:
                return segment.attempt.header
        raise UserError(f"{self.run.path}: no ring of step {step}; expected a step that the run has done")


@dataclass(frozen=True, slots=True)
class Trial:
    """Steps that were trained again.

    Attributes:
        rings: of the steps, ascending.
        header: of the attempt that trained the last of them.
        changed: what is not as it was in the recorded attempt, in words.
    """

    rings: tuple[Ring, ...]
    header: AttemptHeader
    changed: tuple[str, ...]


def newest_base(run: RunDirectory, step: int, end: CheckpointDirectory | None = None) -> CheckpointDirectory | None:
    """The newest checkpoint on a path from which a step can be trained again; None for the run's own beginning.

    Raises:
        EvidenceError: a record on the path does not hold.
        UserError: a run that starts from another run has neither an own checkpoint before the step nor that run's.
    """
    bases = bases_on_path(run, end)
    found = max((each for each in bases if each < step), default=0)
    if found:
        return bases[found]
    start = run.resolved.recipe.start_from
    if start is not None and not run.ancestor(start.run).checkpoint_folder(start.step).is_dir():
        raise UserError(
            f"{run.path}: step {step} is before the first checkpoint of a run that starts from another run, whose "
            f"checkpoint of step {start.step} is missing; expected a checkpoint before the step to replay it from; "
            "keep more checkpoints"
        )
    return None


def bases_on_path(run: RunDirectory, end: CheckpointDirectory | None = None) -> dict[int, CheckpointDirectory]:
    """The run's checkpoints on a path before its end, by step.

    Raises:
        EvidenceError: a record on the path does not hold.
    """
    on_path = {segment.attempt.number: segment.end() for segment in run.path_to(end, own=True)}
    last = max(on_path.values(), default=0)
    return {
        each.step: each
        for each in run.checkpoints()
        if each.step < last and each.step <= on_path.get(each.manifest.attempt, 0)
    }


def train_again(
    stretch: Stretch,
    conditions: Conditions | None = None,
    *,
    project: Path | None = None,
    folder: Path | None = None,
    as_recorded: bool = False,
    validation: bool = False,
) -> Trial:
    """Trains steps again, without a change of the run.

    Args:
        stretch: the steps.
        conditions: what is not as it was recorded; default present code and environment.
        project: folder of the project whose corpora are read; default the working directory.
        folder: where to train: its `<run id>` becomes the new run, which an interrupted call continues. Default a
            folder that is removed afterwards.
        as_recorded: whether checkpoints are saved and held-out loss is measured as in the recorded attempt; else
            neither is, but for one checkpoint after the last step.
        validation: whether held-out loss is measured as in the recorded attempt in any case.

    Returns:
        The new rings.

    Raises:
        UserError: the run has no such steps.
        EvidenceError: a record on the path does not hold.
        TrainingError: the training ended before the last step.
    """
    conditions = conditions or Conditions()
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="treering-trial-") as scratch:
            return train_again(
                stretch, conditions,
                project=project, folder=Path(scratch), as_recorded=as_recorded, validation=validation,
            )  # fmt: skip
    run = stretch.run
    copy = RunDirectory(folder.resolve() / run.id)
    folder.mkdir(parents=True, exist_ok=True)
    _copy_base(stretch, copy)
    done = max((each.step for each in copy.checkpoints() if each.has_manifest), default=0)  # a ring alone is done again
    recorded = stretch.header(max(stretch.first, min(done + 1, stretch.last)))
    code = 0
    if done < stretch.last:
        document = folder.resolve() / f"{run.id}.{CONFIG_FILE}"
        config = _config(recorded, conditions, checkpoints=as_recorded, validation=as_recorded or validation)
        run.resolved.model_copy(update={"attempt": config}).write(document)
        command = [
            str(conditions.python or sys.executable), "-m", "treering_trainer.launch", str(document),
            f"--runs={folder.resolve()}", "--no-publish", "--continue-changed", f"--stop-after={stretch.last}",
        ]  # fmt: skip
        code = start_trainer(command, project or Path.cwd(), _environment(conditions))
        copy = RunDirectory(copy.path)
    if code not in {0, EXIT_RESTART} or _last_step(copy) < stretch.last:
        raise TrainingError(
            f"{run.path}: steps {stretch.first} to {stretch.last} could not be trained again, exit code {code}; the "
            "messages of the training are above"
        )
    rings = tuple(ring for ring in copy.path_rings() if stretch.first <= ring.step <= stretch.last)
    header = copy.attempts()[-1].header
    return Trial(rings, header, _changes(recorded, header))


def _copy_base(stretch: Stretch, copy: RunDirectory) -> None:
    """Copies the checkpoint that the steps start from, unless an interrupted call has done so."""
    run, start = stretch.run, stretch.run.resolved.recipe.start_from
    if stretch.base is not None:
        _extract_once(run, stretch.base, copy.path)
    elif start is not None:
        other = run.ancestor(start.run)
        checkpoint = CheckpointDirectory(other.checkpoint_folder(start.step), other)
        _extract_once(other, checkpoint, copy.path.with_name(other.id))


def _extract_once(run: RunDirectory, checkpoint: CheckpointDirectory, target: Path) -> None:
    if target.exists():
        return
    with tempfile.TemporaryDirectory(prefix=".copied-", dir=target.parent) as unfinished:
        extract_run(run, checkpoint, Path(unfinished) / target.name)
        replace_durably(Path(unfinished) / target.name, target)


def _config(header: AttemptHeader, conditions: Conditions, *, checkpoints: bool, validation: bool) -> AttemptConfig:
    """What the attempt is started with: the recorded values, in the layout that ran, and what the conditions change."""
    config = header.config
    layout = conditions.layout or header.layout
    fields = {name: getattr(layout, name) for name in Layout.model_fields}
    # Hooks move no number, and what they send elsewhere is not to be sent twice.
    changed: dict[str, object] = {"parallel": config.parallel.model_copy(update=fields), "hooks": ()}
    if conditions.kernels is not None:
        changed["kernels"] = conditions.kernels
    if conditions.deterministic is not None:
        changed["deterministic"] = conditions.deterministic
    if not validation:
        changed["validation"] = None
    if not checkpoints:
        changed["checkpoint"] = config.checkpoint.model_copy(update={"every_steps": _NEVER, "keep_every": None})
    return config.model_copy(update=changed)


def _environment(conditions: Conditions) -> dict[str, str]:
    """The environment variables of the trainer's process."""
    variables: dict[str, str | None] = {**os.environ, "MLFLOW_TRACKING_URI": "", **conditions.variables}
    if conditions.sources is not None:
        root = conditions.sources.resolve()
        folders = [root] if is_installed(root) else [root / "platform", root / "trainer"]
        before = variables.get("PYTHONPATH")
        variables["PYTHONPATH"] = os.pathsep.join([*map(str, folders), *([before] if before else [])])
    return {name: value for name, value in variables.items() if value is not None}


def start_trainer(command: Sequence[str], project: Path, variables: Mapping[str, str]) -> int:
    """Runs the trainer to its end and returns its exit code; what it prints goes to standard error."""
    return subprocess.run(command, cwd=project, stdout=STANDARD_ERROR, env=variables, check=False).returncode


def _last_step(run: RunDirectory) -> int:
    """The newest step of a run that can be continued, 0 where nothing was trained."""
    return max((each.end() for each in run.path_to(own=True)), default=0)


def _changes(before: AttemptHeader, now: AttemptHeader) -> tuple[str, ...]:
    """What changed, in words; an attempt that continues from a checkpoint has recorded it."""
    if now.changed:
        return now.changed
    code = code_difference(before.code, now.code)
    environment = before.environment["digest"] != now.environment["digest"]
    return (*([f"code ({code})"] if code else []), *(["environment"] if environment else []))
