"""A branch of a run: back to one of its checkpoints, over some batches, written as an experiment of its own.

The run that is left stays as it is. `treering rewind` writes the branch and trains it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path

import yaml

from treering.config.authored import authored
from treering.config.canonical import short
from treering.config.load import apply_override, load_experiment, validate_section
from treering.config.resolved import RUN_ID_LENGTH, Resolved
from treering.config.schedule import Schedule
from treering.config.schema import Experiment
from treering.data.blend.continuation import resolve_run
from treering.data.blend.corpora import resolve_blend
from treering.errors import ConfigError, NotFoundError, UserError
from treering.files import read_text, write_durably
from treering.project import Project
from treering.runlog.directory import CheckpointDirectory, RunDirectory


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch of a run.

    Attributes:
        run: the run that it leaves.
        checkpoint: the checkpoint that it starts from.
        skip: how many batches it skips from there.
        resolved: its config.
        file: its experiment's file, which need not exist yet.
        text: content of the file.
    """

    run: RunDirectory
    checkpoint: CheckpointDirectory
    skip: int
    resolved: Resolved
    file: Path
    text: str

    @property
    def schedule(self) -> Schedule:
        """The branch's schedule as it would be without the skip: its first `skip` steps read what is skipped."""
        return replace(self.resolved.schedule, skipped_samples=self.run.resolved.schedule.skipped_samples)

    @property
    def steps(self) -> tuple[int, int]:
        """First and last step of the run whose batches are skipped; the last is before the first without any."""
        return self.checkpoint.step + 1, self.checkpoint.step + self.skip

    @property
    def samples(self) -> tuple[int, int]:
        """The samples [lo, hi) of the data order that are skipped."""
        return self.schedule.samples_of(*self.steps)

    @property
    def words(self) -> str:
        """What the branch is, in words."""
        return f"back to step {self.checkpoint.step} of run {self.run.id}" + (
            f", over the batches of steps {self.steps[0]} to {self.steps[1]}" if self.skip else ""
        )

    def write(self) -> None:
        """Writes the experiment's file.

        Raises:
            OSError: it cannot be written.
        """
        self.file.parent.mkdir(exist_ok=True)
        write_durably(self.file, self.text)


def checkpoint_to_rewind_to(run: RunDirectory, step: int) -> CheckpointDirectory:
    """The newest checkpoint of a run at or before a step.

    Raises:
        NotFoundError: there is none.
    """
    whole = [each for each in run.checkpoints() if each.has_manifest]
    before = [each for each in whole if each.step <= step]
    if before:
        return before[-1]
    there = ", ".join(f"{each.step:,}" for each in whole) or "none"
    start = run.resolved.recipe.start_from
    other = start and f"; it starts from step {start.step} of run {short(start.run, RUN_ID_LENGTH)}: rewind that run"
    raise NotFoundError(
        f"{run.path}: found no checkpoint at or before step {step:,}, expected one to go back to; its checkpoints are "
        f"of the steps {there}{other or ''}"
    )


def plan_branch(
    run: RunDirectory, to: int, skip: int, project: Project, *, like: Path | None = None, overrides: Sequence[str] = ()
) -> Branch:
    """A branch of a run, with nothing written.

    Args:
        run: the run to leave; it does not run.
        to: the newest checkpoint at or before this step is taken.
        skip: how many batches to skip from there.
        project: where corpora and experiments are.
        like: an experiment with the run's corpora; default the one of `experiments/` that has them.
        overrides: `dotted.path=value` texts, for a branch that trains otherwise from there on.

    Raises:
        NotFoundError: no checkpoint is at or before the step.
        UserError: no experiment has the run's corpora, or the corpora are other ones now.
        ConfigError: the branch cannot be resolved.
        EvidenceError: the run's config was changed.
    """
    checkpoint = checkpoint_to_rewind_to(run, to)
    _refuse_own_schedule(run)
    document = authored(run.resolved, _experiment_like(run.resolved, project, like))
    branch = Branch(run, checkpoint, skip, run.resolved, project.root, "")
    document["description"] = branch.words
    document["start_from"] = {
        "run": run.id,
        "step": checkpoint.step,
        "schedule": "continue",
        "data": "by_schedule" if run.resolved.blend.continues is None else "continue",
        "skip_steps": skip,
    }
    for override in overrides:
        apply_override(document, override)
    file = _free_name(project.experiments, f"{run.resolved.experiment}-rewind-{checkpoint.step}", skip, document)
    experiment = validate_section(file, Experiment, document)
    resolved = resolve_run(experiment, resolve_blend(experiment, project), str(file), runs=run.path.parent)
    blend = run.resolved.blend
    of_data = any(override.partition("=")[0].split(".")[0] in {"blend", "corpora"} for override in overrides)
    if not of_data and resolved.blend.digest != blend.digest:
        theirs = {each.corpus: each.digest for each in blend.components}
        other = [each.corpus for each in resolved.blend.components if each.digest != theirs.get(each.corpus)]
        raise UserError(
            f"{project.corpora}: corpus {', '.join(other) or 'order'} is another one than run {run.id} read, expected "
            f"the run's own; `treering find DIGEST` finds them, by the digests in {run.config_file}"
        )
    return replace(branch, resolved=resolved, file=file, text=_text(document))


def _refuse_own_schedule(run: RunDirectory) -> None:
    """Refuses a run whose schedule counts from another run's checkpoint, which a branch of it could not say.

    Raises:
        UserError: the run has such a schedule.
    """
    start = run.resolved.recipe.start_from
    if start is not None and start.schedule == "restart":
        raise UserError(
            f"{run.config_file}: found start_from.schedule restart, expected continue: a branch would count the "
            f"schedule from another step. Train the phase again from its first step {start.step + 1}, over its first N "
            "batches: `treering train FILE --no-publish --set start_from.skip_steps=N` with the phase's own FILE"
        )


def _experiment_like(run: Resolved, project: Project, like: Path | None) -> Experiment:
    """An experiment with the corpora of a run, that of the run's own name first.

    Raises:
        UserError: no experiment has them.
        ConfigError: the experiment that was named is wrong.
    """
    corpora = {each.corpus for each in run.blend.components}
    found = []
    for file in [like] if like else sorted(project.experiments.glob("*.yaml")):
        try:
            experiment = load_experiment(file)
        except ConfigError:
            if like:
                raise
            continue
        if corpora <= {each.name for each in experiment.corpora}:
            found.append(experiment)
    if not found:
        raise UserError(
            f"{like or project.experiments}: no experiment has the corpora {', '.join(sorted(corpora))} of run "
            f"{run.run_id}, expected one: a run does not record how its corpora are made; `--config FILE` names it"
        )
    return min(found, key=lambda each: each.experiment != run.experiment)


def _free_name(folder: Path, stem: str, skip: int, document: dict[str, object]) -> Path:
    """The file of a branch: the first name that is free, or whose file is the same branch."""
    stem += f"-skip-{skip}" if skip else ""
    names = chain([f"{stem}.yaml"], (f"{stem}-{number}.yaml" for number in count(2)))
    text = _text(document)
    return next(file for name in names if not (file := folder / name).exists() or read_text(file) == text)


def _text(document: dict[str, object]) -> str:
    return "# Written by `treering rewind`. `treering plan` shows what it will do.\n" + yaml.safe_dump(
        document, sort_keys=False, allow_unicode=True, width=100
    )
