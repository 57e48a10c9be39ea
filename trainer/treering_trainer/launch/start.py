"""Starts a run's ranks on this node, or trains as one rank of an outer launcher, and publishes what they trained.

Imports torch only where a function needs it: an error in a config is reported without waiting for torch.
"""

import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TextIO

from treering.config.resolved import Resolved
from treering.ending import EXIT_RESTART
from treering.errors import RunLockedError, TreeringError
from treering.foreign import say
from treering.redact import redact
from treering.runlog import lock
from treering.runlog.directory import RunDirectory
from treering.runlog.ring_file import compress_long
from treering_trainer.launch.beside import unscored
from treering_trainer.launch.ending import log_file, read_reason, reason_file, record_failure
from treering_trainer.launch.job import Job, Mode, Until, write_end
from treering_trainer.launch.prepare import PARENT_VARIABLE, import_quietly, inspect_node, prepare_attempt
from treering_trainer.launch.target import Target
from treering_trainer.monitor.processes import Ranks, die_with_parent, fork_rank, redirect

STARTED_VARIABLE = "TREERING_STARTED"
"""Unix seconds at which the launcher started, in the environment of its ranks: the time limit counts from there."""

_LOCK_PATIENCE_S = 3.0


def train(
    target: Target,
    resolved: Resolved,
    mode: Mode,
    until: Until,
    arguments: Sequence[str] | None = None,
) -> int:
    """Trains a run on this machine and publishes its final checkpoint.

    Args:
        target: where to read and write.
        resolved: the run's config.
        mode: what to do with the checkpoints of earlier attempts.
        until: when training stops by itself.
        arguments: the command line, for ranks that are started as interpreters; default this process's.

    Returns:
        Exit code: 0 finished, 75 or 130 interrupted.

    Raises:
        RunLockedError: another process group trains this run.
        TreeringError: see its class.
    """
    from treering_trainer.launch.devices import check_fits, choose_layout, find_hardware, set_accelerator

    hardware = find_hardware()
    set_accelerator(hardware.device)
    layout, note = choose_layout(resolved, hardware)
    check_fits(str(target.config), resolved, layout, hardware)
    run, timeout_s = target.run(resolved), resolved.attempt.parallel.rank_timeout_s
    if hardware.device == "cuda":
        return _watch_interpreters(layout.world_size, sys.argv[1:] if arguments is None else arguments, run, timeout_s)
    descriptor = _hold(run)
    try:
        job = prepare_attempt(target, resolved, hardware, layout, note, mode=mode, until=until)
        if job is None:
            return 0
        # Imported once here, so that forked ranks need not import it.
        import_quietly("treering_trainer.launch.worker")
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
    """Trains as one rank of an outer launcher; rank 0 decides where the attempt begins, and publishes at the end.

    Returns:
        Exit code: 0 finished, 75 interrupted, else that of the error.

    Raises:
        TreeringError: on rank 0, why training cannot start; the other ranks return its exit code.
    """
    if PARENT_VARIABLE in os.environ:
        die_with_parent(int(os.environ[PARENT_VARIABLE]))
    from treering_trainer.launch.devices import choose_layout, find_hardware, set_accelerator

    hardware = find_hardware()
    set_accelerator(hardware.device)
    import_quietly("treering_trainer.launch.worker")
    from treering_trainer.core.topology import broadcast, connect
    from treering_trainer.launch.nodes import check_same, check_shared

    rank, local_rank, world_size = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    decision: Job | TreeringError | None = None
    connect(local_rank)
    try:
        nodes = check_same(lambda: inspect_node(target, resolved, hardware))
        check_shared(target.run(resolved).path, target.project.root.resolve(), resolved.blend)
        if rank == 0:
            _hold(target.run(resolved))
            layout, note = choose_layout(resolved, hardware, world_size)
            decision = prepare_attempt(
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
        os.dup2(terminal.fileno(), 2)  # what comes now, errors of publishing as well, goes to the terminal again
        if code == 0:
            _finish(target, decision)
        elif reason := read_reason(decision.attempt, rank):
            say(f"treering: {reason}")
    return code


def _hold(run: RunDirectory) -> int:
    """Takes the run's lock; waits a moment for ranks that were just killed.

    Raises:
        RunLockedError: another process group holds the lock.
    """
    until = time.monotonic() + _LOCK_PATIENCE_S
    while True:
        try:
            return lock.acquire(run.lock)
        except RunLockedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def _forking(job: Job) -> Callable[[int, dict[str, str]], int]:
    """A function that forks a rank; the rank shows progress on the terminal and prints all else to its log."""
    terminal = os.fdopen(os.dup(2), "w")

    def start(rank: int, variables: dict[str, str]) -> int:
        return fork_rank(lambda: _run(job, terminal), log_file(job.attempt, rank), variables)

    return start


def _watch_interpreters(world_size: int, arguments: Sequence[str], run: RunDirectory, timeout_s: float) -> int:
    """Starts each rank as an interpreter with RANK set, and watches the ranks; rank 0 decides the attempt's number."""
    command = [sys.executable, "-m", "treering_trainer.launch", *arguments]
    children, started, ranks = [], time.time(), Ranks()

    def start(_rank: int, variables: dict[str, str]) -> int:
        environment = {**os.environ, **variables, PARENT_VARIABLE: str(os.getpid()), STARTED_VARIABLE: str(started)}
        shared = () if ranks.heartbeats is None else (ranks.heartbeats.descriptor,)
        children.append(subprocess.Popen(command, env=environment, start_new_session=True, pass_fds=shared))
        return children[-1].pid

    ranks.start(world_size, start)
    ranks.watch(timeout_s)
    number = ranks.heartbeats.attempt if ranks.heartbeats else 0
    return record_failure(ranks, run.attempt_folder(number)) or 0


def _run(job: Job, terminal: TextIO) -> int:
    """Runs this process's rank; an error goes to the rank's log and, in one line, to its reason file."""
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
        except OSError:  # on a full disk the reason goes to the terminal instead
            with suppress(OSError):
                terminal.write(f"rank {rank}: {text}\n")
                terminal.flush()
        return error.exit_code if isinstance(error, TreeringError) else 1
    return EXIT_RESTART if outcome.status == "interrupted" else 0


def _finish(target: Target, job: Job) -> None:
    """Records the end of the attempt and publishes the final checkpoint."""
    from treering_trainer.checkpointing.resume import final_checkpoint

    run = target.run(job.resolved)
    final = final_checkpoint(run, job.resolved.schedule.num_steps)
    write_end(job.attempt, "finished", "the schedule's last step is done")
    target.publish_final(run, final)
    compress_long(run.plain_ring_files())
    say(f"run {run.path.name}: finished; checkpoints are in {run.checkpoints_folder}")
    for line in () if target.follow is None else unscored(run, job.attempt):
        say(f"  {line}")
