"""`treering.start` and the run that it returns: what a trainer calls at each step, checkpoint and score.

Everything goes into files below the run's folder; the training thread waits for no network, database or server.
"""

import atexit
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

from treering.collect.devices import collect_devices
from treering.collect.environment import collect_environment
from treering.collect.foreign_code import foreign_code
from treering.collect.launcher import launch_record
from treering.collect.nvml import open_nvml
from treering.config.canonical import digest_file, digest_json, short
from treering.config.resolve import RUN_ID_LENGTH
from treering.errors import EvidenceError, NotFoundError, UserError
from treering.record.blend_dataset import BlendDataset
from treering.record.ranks import Rank, announce, await_attempt
from treering.record.samples import StepSamples
from treering.record.settings import json_settings
from treering.redact import redact
from treering.runlog.chronicle import record_end
from treering.runlog.document import write_document
from treering.runlog.journal import Noted, Scored, Tagged, login_name
from treering.runlog.lock import acquire
from treering.runlog.recorded_directory import POINTER_FILE, RecordedAttempt, RecordedRunDirectory
from treering.runlog.recorded_records import RecordedCheckpoint, RecordedFile, RecordedHeader, RecordedRun, ResumePoint
from treering.runlog.recorded_ring import RecordedRing
from treering.runlog.records import AttemptEnd
from treering.runlog.writer import RingWriter

Resume = Literal["auto", "never", "must"]

_NO_SAMPLES: Final[dict[str, Any]] = {"samples": None, "tokens": None, "batch_digest": None, "fingerprints": None}


def start(
    experiment: str,
    *,
    config: Any = None,
    data: BlendDataset | None = None,
    resume: Resume = "auto",
    resume_step: int | None = None,
    tags: Sequence[str] = (),
    notes: str = "",
    folder: str | Path = "runs",
    rank: int | None = None,
    world_size: int | None = None,
) -> "Run":
    """Begins an attempt of a run.

    The run is the experiment with its config: the same call after a crash goes on with the same run as a new attempt.
    After the run has finished, the same call begins a new run.

    Every rank that reads data calls this with the same arguments; rank 0 writes the metrics, every rank the digests of
    the samples that it was given.

    Args:
        experiment: name that groups runs.
        config: the settings, as a mapping, a dataclass, a pydantic model or an `argparse.Namespace`. Passwords in it
            are hidden.
        data: where the samples come from, if the trainer reads them in the order of a blend: the data set is moved
            behind the samples that the run has consumed, and the audit recomputes every sample from the corpora.
        resume: `auto` goes on with an unfinished run of the same experiment and config, `never` always begins a new
            one, `must` fails where there is none to go on with.
        resume_step: the step of the checkpoint that the trainer has loaded, 0 for none. Default: the step of the newest
            checkpoint that the run has reported.
        tags: for people, kept in the run's journal.
        notes: for people, kept in the run's journal.
        folder: folder of all runs.
        rank: number of this process among those that read data; default as the launcher says.
        world_size: how many processes read data; default as the launcher says.

    Returns:
        The run; call `step` on it after each optimizer step.

    Raises:
        UserError: an argument is wrong.
        NotFoundError: `resume` is `must` and there is no unfinished run.
        RunLockedError: another process trains this run.
        EvidenceError: the run's folder was changed.
    """
    place = Rank.of(rank, world_size)
    settings = json_settings({} if config is None else config)
    if not isinstance(settings, dict):
        raise UserError(f"config: found {type(config).__name__}, expected settings by name")
    if resume not in ("auto", "never", "must"):
        raise UserError(f"resume: found {resume!r}, expected 'auto', 'never' or 'must'")
    record = RecordedRun(
        experiment=experiment, config=settings, blend=data.blend.digest if data else None, repetition=0
    )
    directory, record = _choose(Path(folder).absolute(), record, resume, wait=place.rank > 0)
    if place.rank > 0:
        attempt = await_attempt(directory, place)
        if data is not None and attempt.header.data is not None:
            data.first_sample = attempt.header.data["first_sample"]
        return Run(directory, attempt, place, None)
    directory.path.mkdir(parents=True, exist_ok=True)
    lock = acquire(directory.lock)
    try:
        if not directory.record_file.exists():
            record.write(directory.record_file)
        if data is not None and not directory.blend_file.exists():
            data.blend.write(directory.blend_file)
        attempt = _begin_attempt(directory, place, resume_step, data)
        announce(lock, attempt.number)
        run = Run(directory, attempt, place, lock)
    except BaseException:
        os.close(lock)
        raise
    if tags:
        run.tag(*tags)
    if notes:
        run.note(notes)
    return run


def _choose(
    folder: Path, record: RecordedRun, resume: Resume, *, wait: bool
) -> tuple[RecordedRunDirectory, RecordedRun]:
    """The run to go on with or to begin.

    Args:
        folder: folder of all runs.
        record: what the run is, without repetition.
        resume: as given.
        wait: whether rank 0 chooses the run: then a run that is running is the one that rank 0 has chosen.
    """
    while True:
        digest = digest_json(record.model_dump(mode="json"))
        directory = RecordedRunDirectory(folder / short(digest, RUN_ID_LENGTH))
        exists = directory.record_file.exists()
        state = directory.state() if exists else None
        if exists and (state == "running" if resume == "never" and wait else state != "finished" and resume != "never"):
            return directory, record
        if not exists and resume == "must" and not wait:
            raise NotFoundError(
                f"{folder}: no unfinished run of experiment {record.experiment!r} with this config, expected one "
                "because resume is 'must'; use resume='auto' to begin a run"
            )
        if not exists:
            return directory, record
        record = record.model_copy(update={"repetition": record.repetition + 1})


def _begin_attempt(
    run: RecordedRunDirectory, place: Rank, resume_step: int | None, data: BlendDataset | None
) -> RecordedAttempt:
    earlier = run.attempts()
    if earlier and earlier[-1].end is None:
        record_end(earlier[-1])
    taken = [int(path.name) for path in run.attempts_folder.glob("[0-9]*")]
    attempt = RecordedAttempt(run.attempt_folder(max(taken, default=0) + 1))
    nvml, _reason = open_nvml()
    devices = collect_devices(nvml)
    parent = _resume_point(run, resume_step)
    if data is not None:
        data.first_sample = 0 if parent is None else _consumed_samples(run, parent)
    header = RecordedHeader(
        attempt=attempt.number,
        run=run.digest,
        parent=parent,
        started_at=time.time(),
        host=socket.gethostname(),
        process=os.getpid(),
        world_size=place.world_size,
        command=tuple(redact(word) for word in sys.orig_argv),
        code=foreign_code(),
        environment=collect_environment(devices),
        devices=tuple(device.to_dict() for device in devices),
        launch=launch_record(os.environ),
        data=data.record() if data else None,
    )
    (attempt.path / "ranks").mkdir(parents=True)
    header.write(attempt.header_file)
    return attempt


def _resume_point(run: RecordedRunDirectory, step: int | None) -> ResumePoint | None:
    """The ring after which the trainer goes on: of the given step, or of the newest checkpoint on the run's path."""
    segments = run.path_to_end()
    if step is None:
        step = max((each.step for each in run.checkpoints_on(segments)), default=0)
    if step == 0:
        return None
    for segment in reversed(segments):
        for ring in segment.attempt.rings():
            if ring.step == step and segment.contains(step):
                return ResumePoint(attempt=segment.attempt.number, step=step, ring=ring.digest)
    known = max((segment.attempt.last_step() for segment in segments), default=0)
    raise UserError(
        f"resume_step: found {step}, expected a step that the run {run.id} has reported (its last step is {known}); "
        "give the step of the checkpoint that was loaded, or 0 to train from the beginning"
    )


def _consumed_samples(run: RecordedRunDirectory, parent: ResumePoint) -> int:
    """Samples of the data order up to and with a step: every rank reads batches of the size that rank 0 reads."""
    attempt = RecordedAttempt(run.attempt_folder(parent.attempt))
    data = attempt.header.data
    rings = (ring for ring in attempt.rings() if ring.step <= parent.step)
    counts = [ring.samples for ring in rings]
    if data is None or None in counts:
        raise UserError(
            f"{attempt.path}: a step did not report its tokens, so the samples that the run has consumed are not "
            "known; pass tokens= at every step, or begin a new run with resume='never'"
        )
    return int(data["first_sample"]) + attempt.header.world_size * sum(count or 0 for count in counts)


class Run:
    """A run that is being recorded; `start` makes it.

    The thread that trains owns it. A `with` block ends it: as finished, or as failed where the block raises.

    Attributes:
        id: the run's id in short.
        path: the run's folder.
        attempt: number of this attempt.
        resumed_step: the step after which this attempt goes on, 0 at the beginning.
        last_checkpoint: path of the checkpoint of that step, as the trainer reported it; None where there is none.
    """

    def __init__(
        self, directory: RecordedRunDirectory, attempt: RecordedAttempt, place: Rank, lock: int | None
    ) -> None:
        parent = attempt.header.parent
        self.path = directory.path
        self.id = directory.id
        self.attempt = attempt.number
        self.resumed_step = parent.step if parent else 0
        self.last_checkpoint = _checkpoint_path(directory, parent)
        self._directory = directory
        self._attempt = attempt
        self._rank = place.rank
        self._lock = lock
        self._step = self.resumed_step
        self._process = os.getpid()
        self._writer = _open_rings(attempt, place.rank)
        self._open = True
        atexit.register(self._end_at_exit)

    @property
    def last_step(self) -> int:
        """The step that was reported last, or that the attempt goes on after."""
        return self._step

    def step(
        self,
        metrics: Mapping[str, Any] | None = None,
        /,
        *,
        step: int | None = None,
        tokens: Any = None,
        **values: Any,
    ) -> None:
        """Reports an optimizer step; when this returns, the death of the process cannot take the report back.

        Args:
            metrics: numbers by name, for names that are not Python names, such as `train/loss`.
            step: number of the step, from 1; default the one after the step before.
            tokens: the token ids that this rank was given in this step: one batch, or the batches of all micro-steps;
                numpy arrays, torch tensors or lists, one sample a row. Their digests are recorded.
            **values: numbers by name, such as `loss=loss`; None is left out.

        Raises:
            UserError: a value is not a number, these are not tokens, or the step does not come after the step before.
            OSError: the report could not be written; training must not go on.
        """
        self._check_open()
        number = self._step + 1 if step is None else int(step)
        if number <= self._step:
            raise UserError(
                f"step: found {number}, expected more than {self._step}, the step before; where the trainer has loaded "
                "another checkpoint, begin a new attempt with treering.start(..., resume_step=STEP)"
            )
        reported = {**(metrics or {}), **values}
        numbers = {name: _number(name, value) for name, value in reported.items() if value is not None}
        samples = _NO_SAMPLES
        if tokens is not None:
            found = StepSamples.of(tokens)
            samples = {name: getattr(found, name) for name in _NO_SAMPLES}
        self._writer.append(step=number, metrics=numbers, ended_at=time.time(), **samples)
        self._step = number

    def checkpoint(self, path: str | Path, *, digest: bool = True) -> None:
        """Reports a checkpoint that the trainer has written after the last step; on other ranks than 0 does nothing.

        A small file `treering.json` is put into the checkpoint's folder, by which `treering audit` finds the run.

        Args:
            path: folder or file of the checkpoint.
            digest: whether every file is digested, which reads all of it; without, only sizes are kept.

        Raises:
            UserError: there is no such folder or file, or no step was reported yet.
            OSError: the report could not be written.
        """
        self._check_open()
        if self._rank > 0:
            return
        folder = Path(path).absolute()
        if not folder.exists():
            raise UserError(f"checkpoint: found no {folder}, expected a folder or file that the trainer has written")
        if self._step == 0:
            raise UserError("checkpoint: found no step before it, expected run.step(...) before run.checkpoint(...)")
        self._writer.sync()
        record = RecordedCheckpoint(
            run=self._directory.digest,
            attempt=self.attempt,
            step=self._step,
            ring=self._writer.last_digest,
            path=str(folder),
            created_at=time.time(),
            files=tuple(_files(folder, digest=digest)),
        )
        file = self._directory.checkpoint_file(self.attempt, self._step)
        file.parent.mkdir(exist_ok=True)
        identity = record.write(file)
        pointer = folder / POINTER_FILE if folder.is_dir() else folder.with_name(f"{folder.name}.{POINTER_FILE}")
        write_document(
            pointer,
            {
                "run": record.run,
                "step": record.step,
                "checkpoint": identity,
                "folder": os.path.relpath(self.path, pointer.parent),
            },
        )

    def score(self, step: int, task: str, metrics: Mapping[str, Any]) -> None:
        """Reports scores of the model after a step, in any order of steps; on other ranks than 0 does nothing.

        Args:
            step: the step after which the model was evaluated.
            task: name of the task.
            metrics: value by name; a standard error is named `<metric>_stderr`.

        Raises:
            UserError: a value is not a number.
        """
        self._check_open()
        if self._rank > 0:
            return
        numbers = {name: _number(f"{task}.{name}", value) for name, value in metrics.items()}
        self._directory.journal.append(Scored(at=time.time(), step=step, task=task, metrics=numbers))

    def note(self, text: str) -> None:
        """Adds a note for people to the run's journal."""
        self._check_open()
        if self._rank == 0:
            self._directory.journal.append(Noted(at=time.time(), by=login_name(), text=redact(text)))

    def tag(self, *tags: str) -> None:
        """Adds tags for people to the run's journal."""
        self._check_open()
        if self._rank == 0:
            self._directory.journal.append(Tagged(at=time.time(), by=login_name(), added=tags))

    def finish(self) -> None:
        """Ends the run as finished; more than once does nothing."""
        self._end("finished", "the trainer called finish")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.finish()
        elif isinstance(error, KeyboardInterrupt | SystemExit):
            self._end("interrupted", f"the training was interrupted ({type(error).__name__})")
        else:
            self._end("failed", redact(f"{type(error).__name__}: {error}"))

    def _check_open(self) -> None:
        if not self._open:
            raise UserError(f"run {self.id}: the run has ended; begin a new attempt with treering.start")
        if os.getpid() != self._process:
            raise UserError(
                f"run {self.id}: process {os.getpid()} is not the process {self._process} that began the attempt; "
                "call treering.start in the process that trains, and report nothing from a data loader's workers"
            )

    def _end_at_exit(self) -> None:
        if self._open and os.getpid() == self._process:
            self._end("interrupted", "the process ended without finish")

    def _end(self, status: Literal["finished", "interrupted", "failed"], reason: str) -> None:
        if not self._open:
            return
        self._open = False
        atexit.unregister(self._end_at_exit)
        self._writer.close()
        if self._rank > 0 or self._lock is None:
            return
        AttemptEnd(status=status, reason=reason, step=self._step, ended_at=time.time()).write(self._attempt.end_file)
        try:
            record_end(self._attempt)
        finally:
            os.close(self._lock)


def _open_rings(attempt: RecordedAttempt, rank: int) -> RingWriter[RecordedRing]:
    file = attempt.rings_file(rank)
    try:
        return RingWriter(file, RecordedRing, attempt.header_digest)
    except FileExistsError:
        raise UserError(
            f"{file}: rank {rank} of attempt {attempt.number} has begun already; give every process that reads data a "
            "rank of its own"
        ) from None


def _checkpoint_path(run: RecordedRunDirectory, parent: ResumePoint | None) -> Path | None:
    if parent is None:
        return None
    try:
        return Path(RecordedCheckpoint.read(run.checkpoint_file(parent.attempt, parent.step))[0].path)
    except EvidenceError:  # the step was reported without a checkpoint
        return None


def _files(folder: Path, *, digest: bool) -> list[RecordedFile]:
    files = [folder] if folder.is_file() else sorted(path for path in folder.rglob("*") if path.is_file())
    root = folder.parent if folder.is_file() else folder
    return [
        RecordedFile(
            path=path.relative_to(root).as_posix(),
            size=path.stat().st_size,
            digest=digest_file(path) if digest else None,
        )
        for path in files
        if path != folder / POINTER_FILE
    ]


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        raise UserError(f"{name}: found {value!r}, expected a number") from None
