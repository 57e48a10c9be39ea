"""Starts training: `python -m treering_trainer.launch CONFIG`, which is what `treering train` runs.

    config + blend → resolved → lock → where does this attempt begin? → one process a rank → published checkpoint

An outer launcher (torchrun, DeepSpeed's, Slurm) is honoured: where RANK is set, this process is that rank.
"""

import argparse
import importlib
import os
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

# Before torch starts its threads: a process with threads must not fork. Ranks set their own number.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import psutil

from treering.collect.code import TRAINING_SOURCES, code_record, collect_code
from treering.collect.environment import collect_environment
from treering.collect.launcher import EXIT_VARIABLE, launch_record, rank_variables
from treering.collect.upstream import upstream_digest
from treering.config.duration import parse_duration
from treering.config.load import load_experiment
from treering.config.resolve import Resolved, ResolvedBlend
from treering.data.blend.continuation import resolve_run
from treering.data.blend.corpora import resolve_blend
from treering.data.blend.joins import start_lines
from treering.ending import EXIT_RESTART, run_command
from treering.errors import (
    ConfigError,
    RunLockedError,
    TrainingError,
    TreeringError,
    UserError,
)
from treering.foreign import say
from treering.project import Project
from treering.redact import redact
from treering.runlog import lock
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering.runlog.records import Layout
from treering_trainer.launch.ending import log_file, read_reason, reason_file, record_failure
from treering_trainer.launch.job import Job, Mode, Until, write_end
from treering_trainer.monitor.installed_hooks import make_hooks
from treering_trainer.monitor.processes import Ranks, die_with_parent, fork_rank, redirect

if TYPE_CHECKING:
    from treering_trainer.launch.devices import Hardware
    from treering_trainer.launch.nodes import Node

CODE_ROOT = Path(__file__).resolve().parents[3]
"""Root of the sources that really run, wherever the project lies."""

_PARENT = "TREERING_PARENT"
_STARTED = "TREERING_STARTED"
_LOCK_PATIENCE_S = 3.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the command line and trains.

    Returns:
        0 finished; 2 config, 3 evidence, 5 training failed; 75 start again, 130 interrupted.
    """
    code = _main(arguments)
    if code and EXIT_VARIABLE in os.environ:
        with suppress(OSError):  # then the end counts as a crash
            Path(f"{os.environ[EXIT_VARIABLE]}-{code}").touch()
    return code


def _main(arguments: Sequence[str] | None) -> int:
    parser = argparse.ArgumentParser(prog="treering train", description="Train a run, or go on with it.")
    parser.add_argument("config", type=Path, help="the experiment's YAML file, or a run's resolved.json")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="PATH=VALUE")
    whether = parser.add_mutually_exclusive_group()
    whether.add_argument(
        "--continue-changed",
        dest="mode",
        action="store_const",
        const=Mode.CONTINUE_CHANGED,
        default=Mode.RESUME,
        help="go on although code, environment or layout changed",
    )
    whether.add_argument(
        "--start-over",
        dest="mode",
        action="store_const",
        const=Mode.START_OVER,
        help="begin again, whatever earlier attempts left; their checkpoints are set aside",
    )
    parser.add_argument(
        "--time-limit", type=parse_duration, default=None, metavar="TIME", help="such as 23h30m or 84600"
    )
    parser.add_argument(
        "--stop-after", type=int, default=None, metavar="STEP", help="stop after this step, as a signal would"
    )
    parser.add_argument("--runs", type=Path, default=None, help="folder of run directories; default runs/")
    parser.add_argument(
        "--no-publish", action="store_true", help="leave the published checkpoint and metrics as they are"
    )
    parser.add_argument("--local_rank", type=int, default=None, help=argparse.SUPPRESS)  # DeepSpeed's launcher sets it

    def work() -> int:
        options = parser.parse_args(arguments)
        project = Project(Path.cwd())
        os.environ.update(rank_variables(os.environ))
        started = float(os.environ.get(_STARTED, time.time()))
        until = Until(None if options.time_limit is None else started + options.time_limit, options.stop_after)
        target = Target(project, options.runs or project.runs, options.config, publish=not options.no_publish)
        resolved = _resolve(target, options.overrides)
        make_hooks(resolved.attempt.hooks, str(target.config))  # an error of theirs comes before anything starts
        if "RANK" in os.environ:
            return train_as_rank(target, resolved, options.mode, until)
        return train(target, resolved, options.mode, until, arguments)

    return run_command(
        work,
        trouble="training cannot read or write: {}; then start it again",
        trouble_code=TrainingError.exit_code,
        say=_refuse,
    )


def _resolve(target: "Target", overrides: Sequence[str]) -> Resolved:
    """The run that a config means; that of a `resolved.json` is all there already."""
    if target.config.suffix == ".json":
        if overrides:
            raise ConfigError(
                str(target.config), "", "--set beside a resolved config", "the YAML file of the experiment"
            )
        return Resolved.read(target.config)
    experiment = load_experiment(target.config, overrides)
    # Outside the pipeline there is no stage that would have written this experiment's blend.
    blend = ResolvedBlend.read(target.project.blend) if target.publish else resolve_blend(experiment, target.project)
    return resolve_run(experiment, blend, str(target.config), tuple(overrides), runs=target.runs)


@dataclass(frozen=True, slots=True)
class Target:
    """Where a training reads and writes.

    Attributes:
        project: where data lies and the published checkpoint goes.
        runs: folder of run directories.
        config: the experiment's file, for errors.
        publish: whether the finished run becomes the project's published checkpoint, metrics and plots.
    """

    project: Project
    runs: Path
    config: Path
    publish: bool = True

    def run(self, resolved: Resolved) -> RunDirectory:
        """The directory of a run."""
        return RunDirectory((self.runs / resolved.run_id).resolve())


def train(
    target: Target,
    resolved: Resolved,
    mode: Mode,
    until: Until,
    arguments: Sequence[str] | None = None,
) -> int:
    """Trains a run on this machine, from wherever earlier attempts left it, and publishes its final checkpoint.

    Args:
        target: where to read and write.
        resolved: the run's config.
        mode: what becomes of earlier attempts.
        until: when training stops as if by a signal.
        arguments: the command line, for ranks that need an interpreter of their own; default this process's.

    Returns:
        Exit code: 0 finished, 75 or 130 interrupted.

    Raises:
        RunLockedError: another process group trains this run.
        TreeringError: see its class.
    """
    from treering_trainer.launch.devices import check_fits, choose_layout, find_hardware

    hardware = find_hardware()
    _choose_accelerator(hardware.device)
    layout, note = choose_layout(resolved, hardware)
    check_fits(str(target.config), resolved, layout, hardware)
    run, timeout_s = target.run(resolved), resolved.attempt.parallel.rank_timeout_s
    if hardware.device == "cuda":
        return _watch_interpreters(layout.world_size, sys.argv[1:] if arguments is None else arguments, run, timeout_s)
    descriptor = _hold(run)
    try:
        job = _prepare(target, resolved, hardware, layout, note, mode=mode, until=until)
        if job is None:
            return 0
        # Everything is imported once, before the ranks are forked.
        _import_quietly("treering_trainer.launch.worker")
        ranks = Ranks()
        ranks.start(job.layout.world_size, _forking(job))
        ranks.watch(timeout_s)
        code = record_failure(ranks, job.attempt)
        if code is not None:
            again = "the same command without --start-over" if mode is Mode.START_OVER else "the same command"
            say(f"treering: interrupted; {again} goes on from the newest checkpoint")
            return code
        _finish(target, job)
    finally:
        os.close(descriptor)
    return 0


def train_as_rank(target: Target, resolved: Resolved, mode: Mode, until: Until) -> int:
    """Trains as one rank of an outer launcher; rank 0 decides where the attempt begins and publishes in the end."""
    if _PARENT in os.environ:
        die_with_parent(int(os.environ[_PARENT]))
    from treering_trainer.launch.devices import choose_layout, find_hardware

    hardware = find_hardware()
    _choose_accelerator(hardware.device)
    _import_quietly("treering_trainer.launch.worker")
    from treering_trainer.core.topology import broadcast, connect
    from treering_trainer.launch.nodes import check_same, check_shared

    rank, local_rank, world_size = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    decision: Job | TreeringError | None = None
    connect(local_rank)
    try:
        nodes = check_same(lambda: _look(target, resolved, hardware))
        check_shared(target.run(resolved).path, target.project.root.resolve(), resolved.blend)
        if rank == 0:
            _hold(target.run(resolved))
            layout, note = choose_layout(resolved, hardware, world_size)
            decision = _prepare(
                target, resolved, hardware, layout, note,
                mode=mode, until=until, nodes=nodes,
            )  # fmt: skip
    except TreeringError as error:
        decision = error
    decision = broadcast(decision)
    if isinstance(decision, TreeringError):
        if rank == 0:
            raise decision
        return decision.exit_code
    if decision is None:
        return 0
    terminal = os.fdopen(os.dup(2), "w")
    redirect(log_file(decision.attempt, rank))
    code = _run(decision, terminal)
    if rank == 0:
        os.dup2(terminal.fileno(), 2)  # the last words are for people again, errors of publishing as well
        if code == 0:
            _finish(target, decision)
        elif reason := read_reason(decision.attempt, rank):
            say(f"treering: {reason}")
    return code


def _hold(run: RunDirectory) -> int:
    """Takes the run's lock; killed ranks may need a moment to be gone.

    Raises:
        RunLockedError: another process group holds it, and goes on holding it.
    """
    until = time.monotonic() + _LOCK_PATIENCE_S
    while True:
        try:
            return lock.acquire(run.lock)
        except RunLockedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def _choose_accelerator(device: str) -> None:
    """Tells DeepSpeed before it is imported: else it guesses, and warns about its guess."""
    os.environ["DS_ACCELERATOR"] = device


def _import_quietly(module: str) -> None:
    """Imports a module without the warnings of third-party packages about what is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module(module)


def _look(target: Target, resolved: Resolved, hardware: "Hardware") -> "Node":
    """This node as its first rank sees it, with the reason why it cannot train, if there is one."""
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


def _prepare(
    target: Target,
    resolved: Resolved,
    hardware: "Hardware",
    layout: Layout,
    note: str,
    *,
    mode: Mode,
    until: Until,
    nodes: Sequence["Node"] = (),
) -> Job | None:
    """Decides where the attempt begins and makes its directory; None if the run is finished. The lock is held."""
    _import_quietly("treering_trainer.checkpointing.resume")
    from treering_trainer.checkpointing.resume import find_finished, plan_attempt
    from treering_trainer.launch.devices import ranks_here

    project, run = target.project, target.run(resolved)
    code = collect_code(CODE_ROOT)
    environment = {
        **collect_environment(hardware.devices),
        "threads_per_rank": 1 if hardware.count else max((psutil.cpu_count() or 1) // ranks_here(layout), 1),
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
            say(f"run {run.path.name}: finished at step {finished.checkpoint.step}; nothing to train")
            if finished.changed:
                say(f"  changed since: {'; '.join(finished.changed)}; `--start-over` trains the run again from nothing")
            _publish(target, run, finished.checkpoint)
            return None
    # Before anything is moved aside for the new attempt.
    _import_quietly("treering_trainer.core.batch_reader")
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
    say(f"run {run.path.name} ({resolved.experiment}): layout {layout} (TP x PP x DP) on {layout.device}")
    joins = start_lines(resolved, target.runs) if plan.origin != "resume" else []
    for message in (hardware.note, note, *plan.messages, *joins):
        if message:
            say(f"  {message}")
    return job


def _outer_environ() -> dict[str, str]:
    """The environment as an outer launcher made it: ranks that we started ourselves have their numbers from us."""
    return {name: value for name, value in os.environ.items() if name != "RANK" or _PARENT not in os.environ}


def _forking(job: Job) -> Callable[[int, dict[str, str]], int]:
    """Starts ranks by fork; each keeps the terminal for progress and sends everything else to its log."""
    terminal = os.fdopen(os.dup(2), "w")

    def start(rank: int, variables: dict[str, str]) -> int:
        return fork_rank(lambda: _run(job, terminal), log_file(job.attempt, rank), variables)

    return start


def _watch_interpreters(world_size: int, arguments: Sequence[str], run: RunDirectory, timeout_s: float) -> int:
    """Starts one interpreter a rank, which finds RANK set, and watches them; rank 0 decides which attempt it is."""
    command = [sys.executable, "-m", "treering_trainer.launch", *arguments]
    children, started, ranks = [], time.time(), Ranks()

    def start(_rank: int, variables: dict[str, str]) -> int:
        environment = {**os.environ, **variables, _PARENT: str(os.getpid()), _STARTED: str(started)}
        shared = () if ranks.heartbeats is None else (ranks.heartbeats.descriptor,)
        children.append(subprocess.Popen(command, env=environment, start_new_session=True, pass_fds=shared))
        return children[-1].pid

    ranks.start(world_size, start)
    ranks.watch(timeout_s)
    number = ranks.heartbeats.attempt if ranks.heartbeats else 0
    return record_failure(ranks, run.attempt_folder(number)) or 0


def _run(job: Job, terminal: TextIO) -> int:
    """Runs this process's rank; whatever ends it is written to its log and, in one line, beside it."""
    from treering_trainer.launch.worker import run_rank

    rank = int(os.environ["RANK"])
    try:
        outcome = run_rank(job, terminal)
    except BaseException as error:  # noqa: BLE001 - the last frame of the process: everything is reported and ends it
        traceback.print_exc()
        own = isinstance(error, TreeringError)
        text = str(error) if own else redact(f"{type(error).__name__}: {error}".splitlines()[0])
        try:
            reason_file(job.attempt, rank).write_text(text, encoding="utf-8")
        except OSError:  # a full disk takes neither log nor reason: people get it at once
            with suppress(OSError):
                terminal.write(f"rank {rank}: {text}\n")
                terminal.flush()
        return error.exit_code if isinstance(error, TreeringError) else 1
    return EXIT_RESTART if outcome.status == "interrupted" else 0


def _finish(target: Target, job: Job) -> None:
    """Records the end and publishes the final checkpoint."""
    from treering_trainer.checkpointing.resume import final_checkpoint

    run = target.run(job.resolved)
    final = final_checkpoint(run, job.resolved.schedule.num_steps)
    write_end(job.attempt, "finished", "the schedule's last step is done")
    _publish(target, run, final)
    say(f"run {run.path.name}: finished; checkpoints lie in {run.checkpoints_folder}")


def _publish(target: Target, run: RunDirectory, final: CheckpointDirectory) -> None:
    from treering_trainer.checkpointing.publish import publish

    if target.publish and publish(target.project, run, final):
        say(f"  published {final.path.name} with its rings in {target.project.published}")


def _refuse(text: str) -> None:
    """Says why this process ends: once a node, under its name where that is not the first one."""
    if os.environ.get("LOCAL_RANK", "0") == "0":
        first = os.environ.get("RANK", "0") == "0"
        say(text if first else f"treering: {os.uname().nodename}: {text.removeprefix('treering: ')}")


if __name__ == "__main__":
    sys.exit(main())
