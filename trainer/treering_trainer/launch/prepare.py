"""Prepares an attempt before its ranks train: inspects the node, decides where the attempt begins, makes its job.

Imports torch only where a function needs it: an error in a config is reported without waiting for torch.
"""

import importlib
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from treering.collect.code import TRAINING_SOURCES, code_record, collect_code, sources_root
from treering.collect.environment import collect_environment
from treering.collect.launcher import launch_record
from treering.collect.upstream import upstream_digest
from treering.config.resolved import Resolved
from treering.data.blend.joins import start_lines
from treering.errors import UserError
from treering.foreign import say
from treering.runlog.directory import RunDirectory
from treering.runlog.records import AttemptLayout
from treering_trainer.launch.job import Job, Mode, Until
from treering_trainer.launch.target import Target

if TYPE_CHECKING:
    from treering_trainer.checkpointing.resume import Finished
    from treering_trainer.launch.devices import Hardware
    from treering_trainer.launch.nodes import Node

CODE_ROOT = sources_root(Path(__file__))
"""Root of the sources that run, whatever folder the project is in."""

THREADS_VARIABLE = "TREERING_THREADS_PER_RANK"
"""Threads of each rank on processors, where a reproduction needs those of another machine."""

PARENT_VARIABLE = "TREERING_PARENT"
"""Process id of the launcher, in the environment of a rank that the launcher started as an interpreter."""


def inspect_node(target: Target, resolved: Resolved, hardware: "Hardware") -> "Node":
    """Describes this node, with the reason why it cannot train, if it cannot."""
    from treering_trainer.launch.devices import check_fits, choose_layout
    from treering_trainer.launch.nodes import Node

    refusal = ""
    try:
        layout, _note = choose_layout(resolved, hardware, int(os.environ["WORLD_SIZE"]))
        check_fits(str(target.config), resolved, layout, hardware)
    except UserError as error:
        refusal = str(error)
    return Node(
        host=os.uname().nodename,
        rank=int(os.environ["RANK"]),
        environment=collect_environment(hardware.devices),
        code=code_record(CODE_ROOT, TRAINING_SOURCES),
        refusal=refusal,
    )


def prepare_attempt(
    target: Target,
    resolved: Resolved,
    hardware: "Hardware",
    layout: AttemptLayout,
    note: str,
    *,
    mode: Mode,
    until: Until,
    nodes: Sequence["Node"] = (),
) -> Job | None:
    """Decides where the attempt begins and makes its directory; the caller holds the run's lock.

    Args:
        target: where the training reads and writes.
        resolved: the run's config.
        hardware: what this node offers.
        layout: the layout to train in.
        note: a message to the user about the layout.
        mode: what to do with the checkpoints of earlier attempts.
        until: when the attempt stops by itself.
        nodes: all nodes of an outer launcher.

    Returns:
        What every rank is given; None if the run is finished already, after publishing it.

    Raises:
        UserError: a checkpoint to start from is missing.
        EvidenceError: a corpus, or a checkpoint to start from, does not hold.
        TrainingError: a checkpoint could not be converted for the layout.
    """
    import_quietly("treering_trainer.checkpointing.resume")
    from treering_trainer.checkpointing.resume import find_finished, plan_attempt
    from treering_trainer.launch.devices import ranks_here

    project, run = target.project, target.run(resolved)
    code = collect_code(CODE_ROOT)
    environment = {
        **collect_environment(hardware.devices),
        "threads_per_rank": 1 if hardware.count else _threads(ranks_here(layout)),
    }
    continue_changed = mode is Mode.CONTINUE_CHANGED
    if mode is not Mode.START_OVER:
        finished = find_finished(
            run,
            resolved.schedule.num_steps,
            code=code,
            environment=environment,
            layout=layout,
            continue_changed=continue_changed,
        )
        if finished is not None:
            _report_finished(target, run, finished)
            return None
    # The corpora are checked before any checkpoint is set aside for the new attempt.
    import_quietly("treering_trainer.core.batch_reader")
    from treering_trainer.core.batch_reader import open_corpora, verified_digests

    corpora = verified_digests(open_corpora(project, resolved.blend))
    plan = plan_attempt(
        run,
        start=resolved.recipe.start_from,
        code=code,
        environment=environment,
        layout=layout,
        continue_changed=continue_changed,
        start_over=mode is Mode.START_OVER,
    )
    resolved.write(run.config_file)
    job = Job(
        project=project.root.resolve(),
        run=run.path,
        resolved=resolved,
        plan=plan,
        layout=layout,
        code=code,
        environment=environment,
        devices=tuple(device.to_dict() for device in hardware.devices),
        upstream=upstream_digest(project.root),
        corpora=corpora,
        until=until,
        nodes=tuple(node.to_record() for node in nodes),
        launch=launch_record(_outer_environ()),
    )
    job.attempt.mkdir(parents=True)
    joins = start_lines(resolved, target.runs) if plan.origin != "resume" else []
    _report_start(job, (hardware.note, note, *plan.messages, *joins))
    if target.follow is not None:
        target.follow.start(target.config, job.attempt)
    return job


def _threads(ranks: int) -> int:
    """Threads of each rank on processors."""
    return int(os.environ.get(THREADS_VARIABLE) or max((psutil.cpu_count() or 1) // ranks, 1))


def _report_finished(target: Target, run: RunDirectory, finished: "Finished") -> None:
    """Prints that nothing is left to train, and publishes the final checkpoint."""
    say(f"run {run.path.name}: finished at step {finished.checkpoint.step}; nothing to train")
    if finished.changed:
        say(f"  changed since: {'; '.join(finished.changed)}; `--start-over` trains the whole run again")
    target.publish_final(run, finished.checkpoint)


def _report_start(job: Job, messages: Sequence[str]) -> None:
    """Prints what is trained, in which layout, and from where."""
    layout = job.layout
    say(f"run {job.run.name} ({job.resolved.experiment}): layout {layout} (TP x PP x DP) on {layout.device}")
    for message in messages:
        if message:
            say(f"  {message}")


def _outer_environ() -> dict[str, str]:
    """The environment as an outer launcher set it: without the RANK that Treering's own launcher set."""
    return {name: value for name, value in os.environ.items() if name != "RANK" or PARENT_VARIABLE not in os.environ}


def import_quietly(module: str) -> None:
    """Imports a module without third-party warnings about optional packages that are not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module(module)
