"""A run that is being recorded: what a trainer calls at each step, checkpoint and score.

Everything goes into files below the run's folder; the training thread waits for no network, database or server.
"""

import atexit
import math
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

from treering.collect.telemetry import RankTelemetry
from treering.config.canonical import digest_file
from treering.errors import EvidenceError, UserError
from treering.record.ranks import Rank
from treering.record.samples import StepSamples
from treering.redact import redact
from treering.runlog.chronicle import record_end
from treering.runlog.document import write_document
from treering.runlog.journal import Noted, Scored, Tagged, login_name
from treering.runlog.recorded_directory import POINTER_FILE, RecordedAttempt, RecordedRunDirectory
from treering.runlog.recorded_records import RecordedCheckpoint, RecordedFile, ResumePoint
from treering.runlog.recorded_ring import RecordedRing
from treering.runlog.records import AttemptEnd
from treering.runlog.ring_file import compress_long
from treering.runlog.writer import RingWriter

_TOO_LARGE: Final = 2**63
_NO_SAMPLES: Final[dict[str, Any]] = {"samples": None, "tokens": None, "batch_digest": None, "fingerprints": None}


class Run:
    """A run that is being recorded; `treering.start` makes it.

    The thread that trains owns it. A `with` block ends it: as finished, or as failed where the block raises.

    Attributes:
        id: the run's id in short.
        path: the run's folder.
        attempt: number of this attempt.
        resumed_step: the step after which this attempt goes on, 0 at the beginning.
        last_checkpoint: path of the checkpoint of that step, as the trainer reported it; None where there is none.
    """

    def __init__(
        self,
        directory: RecordedRunDirectory,
        attempt: RecordedAttempt,
        place: Rank,
        lock: int | None,
        telemetry: RankTelemetry,
    ) -> None:
        self.path = directory.path
        self.id = directory.id
        self.attempt = attempt.number
        self.resumed_step = attempt.header.resumed_step
        self.last_checkpoint = _checkpoint_path(directory, attempt.header.parent)
        self._directory = directory
        self._attempt = attempt
        self._rank = place.rank
        self._lock = lock
        self._step = self.resumed_step
        self._process = os.getpid()
        self._writer = _open_rings(attempt, place.rank)
        self._telemetry = telemetry
        self._telemetry.start()
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
            UserError: a name is not a text, a value is not a number, these are not tokens, the metrics have no names,
                or the step does not come after the step before.
            OSError: the report could not be written; training must not go on.
        """
        self._check_open()
        if metrics is not None and not isinstance(metrics, Mapping):
            raise UserError(
                f"step: found {metrics!r} without a name, expected numbers by name such as run.step(loss=loss), and "
                "the number of the step, where it is given, as step=STEP"
            )
        number = self._step + 1 if step is None else _whole("step", step)
        if number <= self._step:
            raise UserError(
                f"step: found {number}, expected more than {self._step}, the step before; where the trainer has loaded "
                "another checkpoint, begin a new attempt with treering.start(..., resume_step=STEP)"
            )
        reported = {**metrics, **values} if metrics else values
        numbers = {
            name: value if type(value) is float else _number(name, value)
            for name, value in reported.items()
            if value is not None
        }
        _check_names(tuple(numbers))
        samples = _NO_SAMPLES if tokens is None else asdict(StepSamples.of(tokens))
        self._writer.append(step=number, metrics=numbers, ended_at=time.time(), **samples)
        self._step = number

    def checkpoint(self, path: str | Path, *, digest: bool = True) -> None:
        """Reports a checkpoint that the trainer has written after the last step; on other ranks than 0 does nothing.

        A small file `treering.json` is put into the checkpoint's folder, by which `treering audit` finds the run. A
        step may have several checkpoints; one that is reported again replaces its record.

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
        file = _record_file(self._directory.checkpoint_file(self.attempt, self._step), str(folder))
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

        The run may have ended: a model is often evaluated after its training.

        Args:
            step: the step after which the model was evaluated.
            task: name of the task.
            metrics: value by name; a standard error is named `<metric>_stderr`.

        Raises:
            UserError: a name is not a text, a value is not a finite number, or the step is not a whole number from 1.
        """
        self._check_process()
        if self._rank > 0:
            return
        numbers = {name: _number(f"{task}.{name}", value) for name, value in metrics.items()}
        _check_texts("score", (task, *numbers))
        step = _whole("score", step)
        if step < 1:
            raise UserError(f"score: found step {step}, expected the step after which the model was evaluated, from 1")
        wrong = next((name for name, number in numbers.items() if not math.isfinite(number)), None)
        if wrong is not None:
            raise UserError(
                f"{task}.{wrong}: found {numbers[wrong]}, expected a finite number; leave out a score that is unknown"
            )
        self._directory.journal.append(Scored(at=time.time(), step=step, task=task, metrics=numbers))

    def note(self, text: str) -> None:
        """Adds a note for people to the run's journal."""
        self._check_open()
        if self._rank == 0:
            self._directory.journal.append(Noted(at=time.time(), by=login_name(), text=redact(text)))

    def tag(self, *tags: str) -> None:
        """Adds tags for people to the run's journal.

        Raises:
            UserError: a tag is not a text.
        """
        self._check_open()
        _check_texts("tag", tags)
        if self._rank == 0:
            self._directory.journal.append(Tagged(at=time.time(), by=login_name(), added=tags))

    def finish(self) -> None:
        """Ends the run as finished; more than once does nothing."""
        self._end("finished", "the trainer called finish")

    def fail(self, reason: str) -> None:
        """Ends the run as failed; more than once does nothing."""
        self._end("failed", redact(reason))

    def interrupt(self, reason: str) -> None:
        """Ends the attempt before the training is complete; after the end of the run does nothing.

        The next `treering.start` goes on with the run.

        Args:
            reason: why the training stopped.
        """
        self._end("interrupted", redact(reason))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.finish()
        elif isinstance(error, KeyboardInterrupt | SystemExit):
            self.interrupt(f"the training was interrupted ({type(error).__name__})")
        else:
            self.fail(f"{type(error).__name__}: {error}")

    def _check_open(self) -> None:
        if not self._open:
            raise UserError(f"run {self.id}: the run has ended; begin a new attempt with treering.start")
        self._check_process()

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise UserError(
                f"run {self.id}: process {os.getpid()} is not the process {self._process} that began the attempt; "
                "call treering.start in the process that trains, and report nothing from a data loader's workers"
            )

    def _end_at_exit(self) -> None:
        if self._open and os.getpid() == self._process:
            self.interrupt("the process ended without finish")

    def _end(self, status: Literal["finished", "interrupted", "failed"], reason: str) -> None:
        if not self._open:
            return
        self._open = False
        atexit.unregister(self._end_at_exit)
        self._telemetry.stop()
        with suppress(OSError) if self._writer.has_failed else nullcontext():  # `step` has raised the reason
            self._record_end(status, reason)

    def _record_end(self, status: Literal["finished", "interrupted", "failed"], reason: str) -> None:
        self._writer.close()
        if self._rank > 0 or self._lock is None:
            if status == "finished":
                compress_long([self._attempt.rank_file(self._rank)])
            return
        AttemptEnd(status=status, reason=reason, step=self._step, ended_at=time.time()).write(self._attempt.end_file)
        try:
            record_end(self._attempt)
        finally:
            os.close(self._lock)
        if status == "finished":
            compress_long(self._directory.plain_ring_files())


def _open_rings(attempt: RecordedAttempt, rank: int) -> RingWriter[RecordedRing]:
    file = attempt.rank_file(rank)
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
        found = [each for each in run.checkpoints() if (each.attempt, each.step) == (parent.attempt, parent.step)]
    except EvidenceError:  # `treering audit` names it
        return None
    return Path(max(found, key=lambda each: each.created_at).path) if found else None


def _record_file(first: Path, path: str) -> Path:
    """The file for the record of a checkpoint: `first`, unless another checkpoint of the step has it.

    Args:
        first: the file of the step's first checkpoint.
        path: of the checkpoint.
    """
    there = [*first.parent.glob(first.name), *first.parent.glob(f"{first.stem}-*{first.suffix}")]
    same = (file for file in there if RecordedCheckpoint.read(file)[0].path == path)
    return next(same, first.with_stem(f"{first.stem}-{len(there) + 1}") if there else first)


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
    if hasattr(value, "detach"):  # a torch tensor: a loss that requires gradients warns when it becomes a number
        value = value.detach()
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise UserError(f"{name}: found {value!r}, expected a number") from None


def _whole(name: str, value: Any) -> int:
    """The number of a step as an integer.

    Raises:
        UserError: it has a fraction, or is larger than readers take.
    """
    number = _number(name, value)
    if not number.is_integer() or abs(number) >= _TOO_LARGE:
        raise UserError(f"{name}: found {value!r}, expected the number of a step")
    return int(value)


@lru_cache(maxsize=256)
def _check_names(names: tuple[Any, ...]) -> None:
    """Refuses names of metrics; those of the steps before are known."""
    _check_texts("metrics", names)


def _check_texts(what: str, texts: Sequence[Any]) -> None:
    """Refuses what JSON does not have as a text: a line with it could not be read again.

    Raises:
        UserError: one is not a text, or has characters that UTF-8 does not have.
    """
    for text in texts:
        try:
            text.encode()
        except (AttributeError, UnicodeEncodeError):
            raise UserError(f"{what}: found {text!r} as a name, expected a text, such as 'loss'") from None
