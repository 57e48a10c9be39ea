"""Evaluates every checkpoint of a run: `python -m treering_trainer.evaluate CONFIG`, run by `treering evaluate`."""

import argparse
import os
import sys
import time
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path

# Before torch starts its threads: workers are forked, and each computes on one thread.
os.environ["OMP_NUM_THREADS"] = "1"

from treering.config.canonical import canonical_json
from treering.config.load import load_experiment
from treering.config.resolved import Resolved
from treering.config.resolved_blend import ResolvedBlend
from treering.data.blend.continuation import resolve_run
from treering.data.blend.corpora import resolve_blend
from treering.ending import run_command
from treering.errors import NotFoundError, TrainingError
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
    parser.add_argument("config", type=Path, help="the experiment's YAML file")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="PATH=VALUE")
    parser.add_argument("--run", default=None, help="a run's id (or prefix) instead of the config's; writes no metrics")
    parser.add_argument("--no-publish", action="store_true", help="resolve the blend here; writes no metrics")
    parser.add_argument("--json", action="store_true", help="print the records as JSON, and progress on standard error")
    options = parser.parse_args(arguments)
    return run_command(
        lambda: _run(Project(Path.cwd()), options),
        trouble="evaluation cannot read or write: {}; finished scores are kept, the same command continues",
        trouble_code=TrainingError.exit_code,
    )


def _run(project: Project, options: argparse.Namespace) -> None:
    records = _evaluate(
        project,
        options.config,
        options.overrides,
        wanted=options.run,
        publish=not options.no_publish,
        say=say if options.json else partial(say, stream=sys.stdout),
    )
    if options.json:
        say(canonical_json([record.model_dump(mode="json") for record in records]), sys.stdout)


def _evaluate(
    project: Project,
    config: Path,
    overrides: Sequence[str],
    *,
    wanted: str | None,
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
    if not checkpoints:
        raise NotFoundError(f"run {resolved.run_id}: no checkpoint to evaluate; `dvc repro train` trains it")

    # Slow imports (torch, megatron-core, lm-eval), so that a wrong argument is reported at once.
    warnings.filterwarnings("ignore", module="megatron")  # about kernels that evaluation does not use
    from treering_trainer.launch.devices import find_hardware, set_accelerator  # noqa: PLC0415

    device = find_hardware().device
    set_accelerator(device)
    from treering_trainer.evaluate.analyses.prompts import continue_checkpoints, read_prompts  # noqa: PLC0415
    from treering_trainer.evaluate.inputs import read_inputs  # noqa: PLC0415
    from treering_trainer.evaluate.run import describe, evaluate_checkpoints, shortfalls  # noqa: PLC0415
    from treering_trainer.evaluate.tables import write_tables  # noqa: PLC0415

    inputs = read_inputs(project, resolved, experiment.evaluation)
    kept = experiment.evaluation.prompts
    prompts = None if kept is None else read_prompts(kept, project.root)
    parts = ", ".join((*inputs.task_digests, "perplexity"))
    say(f"evaluate run {resolved.run_id}: {len(checkpoints)} checkpoints, {parts}")
    started = time.monotonic()
    found = evaluate_checkpoints(checkpoints, inputs, records, say, device)
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
