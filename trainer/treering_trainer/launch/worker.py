"""One rank of an attempt: joins the other ranks, builds the model, loads, trains; rank 0 also writes the run log.

`launch.start` runs it in one process a rank.
"""

import faulthandler
import logging
import os
import signal
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TextIO

import torch
import torch.distributed
from deepspeed.accelerator import get_accelerator

from treering.collect.determinism import known_nondeterminism
from treering.config.canonical import parse_json
from treering.config.layout import RankCoordinates
from treering.ending import EXIT_RESTART, heeded
from treering.errors import TrainingError, TreeringError
from treering.files import read_bytes
from treering.project import Project
from treering.runlog.attempt import AttemptDirectory
from treering.runlog.directory import RunDirectory
from treering.runlog.records import AttemptHeader, Kernel, RandomStates
from treering.runlog.ring import RINGS_FILE, Ring
from treering.runlog.writer import RingWriter
from treering_trainer.checkpointing.saver import Record, Saver
from treering_trainer.core.batch_reader import open_corpora
from treering_trainer.core.build import build_batch_reader, build_engine, build_validator
from treering_trainer.core.determinism import make_deterministic
from treering_trainer.core.kernels import kernels_on_record
from treering_trainer.core.loop import Loop, Outcome
from treering_trainer.core.topology import is_contact_lost, join, leave
from treering_trainer.launch.devices import ranks_here
from treering_trainer.launch.job import Job, Until, write_end, write_incident
from treering_trainer.monitor.heartbeat import HeartbeatWriter, Part
from treering_trainer.monitor.hooks import FailOpen, Hook, ProgressLine, Telemetry
from treering_trainer.monitor.installed_hooks import hook_sources, make_hooks
from treering_trainer.monitor.processes import EXIT_CONTACT_LOST, STOP_SIGNALS


class StopRequest:
    """Whether this rank is asked to stop: by SIGINT, SIGTERM or SIGUSR1, or by a limit of time or of steps.

    The loop asks between steps. One rank that is asked to stop stops all ranks.

    Args:
        until: the limits.
    """

    def __init__(self, until: Until) -> None:
        self._received = False
        self._until = until
        self._next_step = 0
        for name in heeded(*STOP_SIGNALS):
            signal.signal(name, self._remember)

    def __call__(self, step: int) -> bool:
        """Whether to stop before a step."""
        self._next_step = step
        return self._received or self._time_is_over or self._steps_are_done

    @property
    def reason(self) -> str:
        """Why the run stopped; a signal, if no limit is reached, perhaps to another rank."""
        if self._steps_are_done:
            return f"asked to stop after step {self._until.step}"
        return "the time limit is over" if self._time_is_over and not self._received else "asked to stop by a signal"

    @property
    def _steps_are_done(self) -> bool:
        return self._until.step is not None and self._next_step > self._until.step

    @property
    def _time_is_over(self) -> bool:
        return self._until.deadline is not None and time.time() >= self._until.deadline

    def _remember(self, _number: int, _frame: object) -> None:
        self._received = True


class ContactLostError(TrainingError):
    """Another rank does not answer; this rank does not know why.

    Attributes:
        exit_code: 75 (restart me), or 74 where a launcher watches all ranks: it finds the cause.
    """

    def __init__(self, coordinates: RankCoordinates, beat: HeartbeatWriter, error: BaseException) -> None:
        super().__init__(
            f"rank {coordinates.rank} lost contact while {beat.last}: {str(error).splitlines()[0]}; another rank died "
            "or is stuck: see the logs of all ranks; the same command goes on from the newest checkpoint"
        )
        self.exit_code = EXIT_CONTACT_LOST if beat.shared else EXIT_RESTART


def run_rank(job: Job, terminal: TextIO) -> Outcome:
    """Trains as the rank that the environment names (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT).

    Args:
        job: the attempt.
        terminal: where rank 0 shows progress.

    Returns:
        How the training ended.

    Raises:
        TreeringError: training could not start or continue.
    """
    stop = StopRequest(job.until)
    faulthandler.register(signal.SIGUSR2)  # prints the stack of each thread into the log
    beat = HeartbeatWriter.of_this_process()
    beat.begin(job.plan.attempt, job.plan.start_step)
    beat(Part.START)
    quieten()
    torch.set_num_threads(int(job.environment["threads_per_rank"]))
    resolved, project, run = job.resolved, Project(job.project), RunDirectory(job.run)
    recipe, attempt = resolved.recipe, resolved.attempt
    if attempt.deterministic:
        make_deterministic()
    coordinates = join(job.layout)
    beat(Part.BUILD)
    kernels = kernels_on_record(
        recipe.model,
        recipe.optimizer,
        attempt.kernels,
        recipe.precision,
        sequence_length=resolved.blend.sequence_length,
        micro_batch_size=attempt.parallel.micro_batch_size,
        tensor_parallel=coordinates.layout.tensor,
    )
    engine = build_engine(
        resolved, coordinates, start_step=job.plan.start_step, universal=job.plan.converted is not None
    )
    beat(Part.LOAD)
    if job.plan.checkpoint is not None:
        engine.load(job.plan.checkpoint)
    random_states = engine.random_states(job.plan.start_step + 1)
    corpora = open_corpora(project, resolved.blend)
    with ExitStack() as stack:
        record = None
        if coordinates.rank == 0:
            record = open_record(job, kernels, random_states)
            stack.callback(record.rings.close)
        hooks = _hooks(job, coordinates, terminal)
        stack.callback(hooks.close)
        loop = Loop(
            resolved=resolved,
            coordinates=coordinates,
            engine=engine,
            batch_reader=build_batch_reader(resolved, coordinates, corpora),
            validator=build_validator(resolved, coordinates, project),
            rings=record.rings if record is not None else None,
            saver=Saver(resolved=resolved, run=run, engine=engine, record=record, hooks=hooks, beat=beat),
            hooks=hooks,
            stop_requested=stop,
            beat=beat,
        )
        plan = job.plan
        outcome = _until_end(
            job, coordinates, lambda: loop.run(plan.start_step, plan.applied_steps, plan.validation_loss), stop, beat
        )
        beat(Part.LEAVE, outcome.step)
    leave()
    beat(Part.DONE)
    return outcome


def open_record(job: Job, kernels: tuple[Kernel, ...], random_states: str | None) -> Record:
    """Writes the attempt's header and opens its rings; without them no step is trained.

    Args:
        job: the attempt.
        kernels: what ran.
        random_states: digest of the streams that the attempt's first step draws from; None where it draws none.
    """
    resolved, plan = job.resolved, job.plan
    header = AttemptHeader(
        attempt=plan.attempt,
        run=resolved.recipe.digest,
        blend=resolved.blend.digest,
        parent=plan.parent,
        origin=plan.origin,
        changed=plan.changed,
        continue_changed=plan.continue_changed,
        started_at=time.time(),
        host=os.uname().nodename,
        process=os.getpid(),
        config=resolved.attempt,
        layout=job.layout,
        code=dict(job.code),
        environment=dict(job.environment),
        devices=tuple(dict(device) for device in job.devices),
        kernels=kernels,
        corpora=dict(job.corpora),
        upstream=job.upstream,
        nodes=tuple(dict(node) for node in job.nodes) or None,
        launch=None if job.launch is None else dict(job.launch),
        converted=plan.converted,
        hooks=hook_sources(resolved.attempt.hooks),
        nondeterminism=known_nondeterminism(
            job.layout.device, job.layout.world_size, kernels, deterministic=resolved.attempt.deterministic
        ),
        random_states=None if random_states is None else RandomStates(saved=plan.random_states, begun=random_states),
        journal=RunDirectory(job.run).journal.head(),
    )
    digest = header.write(AttemptDirectory(job.attempt).header_file)
    facts = {
        "run": resolved.recipe.digest,
        "attempt": plan.attempt,
        "blend": resolved.blend.digest,
        "tokenizer": resolved.blend.tokenizer,
        "code": job.code["digest"],
        "environment": job.environment["digest"],
        "upstream": job.upstream,
        "layout": job.layout,
    }
    return Record(job.attempt, RingWriter(job.attempt / RINGS_FILE, Ring, digest), facts)


def quieten() -> None:
    """Keeps third-party warnings and information out of the logs: no user can act on them."""
    warnings.filterwarnings("ignore")
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)


def _hooks(job: Job, coordinates: RankCoordinates, terminal: TextIO) -> FailOpen:
    """The built-in hooks and those that the config names, with their state from the checkpoint."""
    hooks: list[Hook] = [
        Telemetry(
            job.attempt / "telemetry",
            rank=coordinates.rank,
            local_rank=coordinates.local_rank,
            ranks_here=ranks_here(job.layout),
            on_accelerator=get_accelerator().device_name() != "cpu",
            interval_s=job.resolved.attempt.telemetry.interval_s,
        )
    ]
    if coordinates.rank == 0:
        hooks.append(ProgressLine(terminal))
    every = FailOpen(hooks, make_hooks(job.resolved.attempt.hooks, str(RunDirectory(job.run).config_file)))
    if job.plan.origin == "resume":
        every.load_state({} if job.plan.hooks is None else parse_json(read_bytes(job.plan.hooks)))
    return every


def _until_end(
    job: Job, coordinates: RankCoordinates, train: Callable[[], Outcome], stop: StopRequest, beat: HeartbeatWriter
) -> Outcome:
    """Runs the loop; rank 0 records how it ended, unless its process is killed.

    Raises:
        ContactLostError: another rank does not answer.
    """
    try:
        outcome = train()
    except Exception as error:
        if is_contact_lost(error):
            lost = ContactLostError(coordinates, beat, error)
            _record_failure(job, coordinates, lost, beat)
            raise lost from error
        _record_failure(job, coordinates, error, beat)
        raise
    if coordinates.rank == 0 and outcome.status == "interrupted":
        write_end(job.attempt, "interrupted", stop.reason)
    return outcome


def _record_failure(job: Job, coordinates: RankCoordinates, error: Exception, beat: HeartbeatWriter) -> None:
    """Records on rank 0 why the attempt failed.

    Where a launcher watches all ranks, an error that is not a `TreeringError` is left to it: it may know the cause.
    """
    own = isinstance(error, TreeringError) and not isinstance(error, ContactLostError)
    if coordinates.rank != 0 or (beat.shared and not own):
        return
    text = str(error) if isinstance(error, TreeringError) else f"{type(error).__name__}: {error}".splitlines()[0]
    with suppress(OSError):  # a full disk may be the reason itself: its error must not replace the reason
        if isinstance(error, ContactLostError):
            write_end(job.attempt, "interrupted", text)
            write_incident(job.attempt, "contact_lost", text, coordinates.rank)
        else:
            write_end(job.attempt, "failed", text)
