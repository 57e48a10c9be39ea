"""Evaluates checkpoints of a run: `python -m treering_trainer.evaluate CONFIG`, run by `treering evaluate`."""

import argparse
import fcntl
import os
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

# Before torch starts its threads: workers are forked, and each computes on one thread.
os.environ["OMP_NUM_THREADS"] = "1"

from treering.config.canonical import canonical_json
from treering.config.load import load_experiment, read_mapping
from treering.config.resolved import Resolved
from treering.config.resolved_blend import ResolvedBlend
from treering.data.blend.continuation import experiment_file_of, resolve_run
from treering.data.blend.corpora import resolve_blend
from treering.ending import run_command
from treering.errors import ConfigError, NotFoundError, TrainingError
from treering.foreign import say
from treering.progress import Say
from treering.project import Project
from treering.runlog.directory import EVALUATIONS, CheckpointDirectory, RunDirectory
from treering.runlog.extract import carry_evaluations
from treering.runlog.find import find_run
from treering.runlog.records import Evaluation


def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the command line and evaluates.

    Returns:
        0; 2 usage, 3 evidence, 5 the checkpoint cannot be scored; 130 interrupted.
    """
    parser = argparse.ArgumentParser(prog="treering evaluate", description="Score every checkpoint of a run.")
    parser.add_argument("config", help="the experiment's YAML file; or a run, whose experiment is in experiments/")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="PATH=VALUE")
    parser.add_argument("--run", default=None, help="a run's id (or prefix) instead of the config's; writes no metrics")
    parser.add_argument("--all", action="store_true", help="of a run every kept checkpoint, not only the newest")
    parser.add_argument("--step", type=int, default=None, help="of a run only the checkpoint of this step")
    parser.add_argument("--device", default=None, help="cpu, cuda or cuda:N")
    parser.add_argument("--no-publish", action="store_true", help="resolve the blend here; writes no metrics")
    parser.add_argument("--json", action="store_true", help="print the records as JSON, and progress on standard error")
    options = parser.parse_args(arguments)
    return run_command(
        lambda: _run(Project(Path.cwd()), options),
        trouble="evaluation cannot read or write: {}; finished scores are kept, the same command continues",
        trouble_code=TrainingError.exit_code,
    )


def _run(project: Project, options: argparse.Namespace) -> None:
    named = (
        options.run is None and not options.config.endswith((".yaml", ".yml")) and not Path(options.config).is_file()
    )
    wanted = options.config if named else options.run
    records = _evaluate(
        project,
        _experiment_file(project, wanted) if named else Path(options.config),
        options.overrides,
        wanted=wanted,
        newest=named and not options.all,
        step=options.step,
        device=options.device,
        publish=not options.no_publish,
        say=say if options.json else partial(say, stream=sys.stdout),
    )
    if options.json:
        say(canonical_json([record.model_dump(mode="json") for record in records]), sys.stdout)


def _experiment_file(project: Project, name: str) -> Path:
    """The file of a run's experiment.

    Raises:
        NotFoundError: the run does not exist, or no file in `experiments/` has its experiment.
    """
    run = find_run(project.runs, name)
    resolved = run.resolved
    experiment, start = resolved.experiment, resolved.recipe.start_from
    fitting: list[Path] = []
    starting: list[Path] = []
    for path in sorted(project.experiments.glob("*.yaml")):
        with suppress(ConfigError):
            document = read_mapping(path, "an experiment")
            if document.get("experiment") == experiment:
                fitting.append(path)
                given = document.get("start_from")
                if (given.get("step") if isinstance(given, dict) else None) == (start and start.step):
                    starting.append(path)
    if len(fitting) > 1:  # a branch that `treering rewind` wrote has the experiment of the run that it leaves
        exact = experiment_file_of(resolved, starting, run.path.parent)
        fitting = [exact] if exact else starting or fitting
    if len(fitting) != 1:
        found = ", ".join(path.name for path in fitting) or "no file"
        raise NotFoundError(
            f"run {name}: found {found} with experiment {experiment!r} in {project.experiments}, expected one; name "
            f"the file: `treering evaluate FILE --run {name}`"
        )
    return fitting[0]


def _evaluate(
    project: Project,
    config: Path,
    overrides: Sequence[str],
    *,
    wanted: str | None,
    newest: bool,
    step: int | None,
    device: str | None,
    publish: bool,
    say: Say,
) -> list[Evaluation]:
    """Scores the checkpoints of the config's run, or of the run that `wanted` names.

    Raises:
        NotFoundError: the run has no checkpoint.
        UserError: a task file or a held-out corpus is wrong.
        EvidenceError: a checkpoint, the blend or the tokenizer does not hold.
        TrainingError: a checkpoint cannot be scored.
    """
    experiment = load_experiment(config, overrides)
    if wanted is None:
        blend = ResolvedBlend.read(project.blend) if publish else resolve_blend(experiment, project)
        resolved = resolve_run(experiment, blend, str(config), tuple(overrides), runs=project.runs)
        checkpoints = checkpoints_of(project, resolved)
        records = project.run(resolved.run_id) / EVALUATIONS
    else:
        run = find_run(project.runs, wanted)
        resolved, checkpoints, records = run.resolved, run.checkpoints(), run.path / EVALUATIONS
    checkpoints = [each for each in checkpoints[-1 if newest else 0 :] if step in {None, each.step}]
    if not checkpoints:
        raise NotFoundError(f"run {resolved.run_id}: no checkpoint to evaluate; `dvc repro train` trains it")

    # Slow imports (torch, megatron-core, lm-eval), so that a wrong argument is reported at once.
    warnings.filterwarnings("ignore", module="megatron")  # about kernels that evaluation does not use
    from treering_trainer.launch.devices import evaluation_device, set_accelerator  # noqa: PLC0415

    device = evaluation_device(device or experiment.evaluation.device)
    set_accelerator(device.partition(":")[0])
    from treering_trainer.evaluate.analyses.prompts import continue_checkpoints, read_prompts  # noqa: PLC0415
    from treering_trainer.evaluate.inputs import read_inputs  # noqa: PLC0415
    from treering_trainer.evaluate.run import describe, evaluate_checkpoints, shortfalls  # noqa: PLC0415
    from treering_trainer.evaluate.tables import write_tables  # noqa: PLC0415

    inputs = read_inputs(project, resolved, experiment.evaluation)
    kept = experiment.evaluation.prompts
    prompts = None if kept is None else read_prompts(kept, project.root)
    parts = ", ".join((*inputs.task_digests, "perplexity"))
    say(f"evaluate run {resolved.run_id}: {len(checkpoints)} checkpoints, {parts}, on {device}")
    started = time.monotonic()
    unfinished = project.unfinished_evaluations / resolved.run_id
    with _alone(unfinished, say):
        found = evaluate_checkpoints(checkpoints, inputs, records, say, device, unfinished=unfinished)
        if prompts is not None:
            continue_checkpoints(
                checkpoints,
                prompts,
                records,
                tokenizer=inputs.tokenizer,
                end_of_document=inputs.end_of_document,
                say=say,
                device=device,
            )
        if wanted is None and publish:
            write_tables(project, resolved.run_id, found)
            if RunDirectory(project.published).path.exists() and RunDirectory(project.published).id == resolved.run_id:
                carry_evaluations(RunDirectory(records.parent), project.published)
    for record in found:
        say(describe(record))
    for line in shortfalls(found[-1]):  # the same at every step: it depends on the items and the sequence
        say(f"  {line}")
    say(f"evaluated in {time.monotonic() - started:.0f} s; records in {records}")
    return found


@contextmanager
def _alone(folder: Path, say: Say) -> Iterator[None]:
    """Holds a run's evaluation: another one, such as that beside the training, ends first."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("  another evaluation of this run is under way; this one waits for it")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def checkpoints_of(project: Project, resolved: Resolved) -> list[CheckpointDirectory]:
    """The checkpoints of a run, by step: those in its directory, and the published one if it is not among them."""
    run = RunDirectory(project.run(resolved.run_id))
    found = {checkpoint.step: checkpoint for checkpoint in run.checkpoints()}
    published = RunDirectory(project.published)
    if published.config_file.exists() and published.id == resolved.run_id:
        for checkpoint in published.checkpoints():
            if checkpoint.step not in found or found[checkpoint.step].digest != checkpoint.digest:
                found[checkpoint.step] = checkpoint
    return [found[step] for step in sorted(found)]


if __name__ == "__main__":
    sys.exit(main())
