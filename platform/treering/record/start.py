"""`treering.start`: chooses the run, begins an attempt of it, and moves the data set to where the run goes on."""

import os
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

import psutil

from treering.collect.devices import Device, node_devices, visible_indexes
from treering.collect.environment import collect_environment
from treering.collect.foreign_code import foreign_code
from treering.collect.launcher import launch_record, rank_variables
from treering.collect.telemetry import RankTelemetry
from treering.config.canonical import digest_json, short
from treering.config.resolved import RUN_ID_LENGTH
from treering.errors import NotFoundError, UserError
from treering.record.blend_dataset import BlendDataset
from treering.record.ranks import Rank, announce, await_attempt
from treering.record.run import Run
from treering.record.settings import json_settings
from treering.redact import redact
from treering.runlog.chronicle import record_end
from treering.runlog.folders import TELEMETRY
from treering.runlog.lock import acquire
from treering.runlog.recorded_directory import RecordedAttempt, RecordedRunDirectory, RecordedSegment
from treering.runlog.recorded_records import RecordedHeader, RecordedRun, ResumePoint

Resume = Literal["auto", "never", "must"]

RUNS_VARIABLE: Final = "TREERING_RECORD_IN"
"""The folder of all runs for a command that is run again, whatever folder its code names."""


def start(
    experiment: str,
    *,
    config: Any = None,
    data: BlendDataset | None = None,
    resume: Resume = "auto",
    resume_step: int | None = None,
    resume_before: int | None = None,
    tags: Sequence[str] = (),
    notes: str = "",
    folder: str | Path = "runs",
    rank: int | None = None,
    world_size: int | None = None,
    command: Sequence[str] | None = None,
    process: int | None = None,
) -> Run:
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
        resume_before: instead of `resume_step`, the first step that the trainer does now: the attempt goes on after the
            newest step before it that the run has reported.
        tags: for people, kept in the run's journal.
        notes: for people, kept in the run's journal.
        folder: folder of all runs; the variable `TREERING_RECORD_IN` comes first.
        rank: number of this process among those that read data; default as the launcher says.
        world_size: how many processes read data; default as the launcher says.
        command: the command that trains, where this process only watches it; default this process's own.
        process: id of the command's process.

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
    _check_words(resume, tags)
    record = RecordedRun(
        experiment=experiment, config=settings, blend=data.blend.digest if data else None, repetition=0
    )
    runs = Path(os.environ.get(RUNS_VARIABLE) or folder).absolute()
    directory, record = _choose(runs, record, resume, wait=place.rank > 0)
    devices = node_devices()
    if place.rank > 0:
        attempt = await_attempt(directory, place)
        if data is not None and attempt.header.data is not None:
            data.first_sample = attempt.header.data["first_sample"]
        return Run(directory, attempt, place, None, _telemetry(attempt, place, devices, process))
    directory.path.mkdir(parents=True, exist_ok=True)
    lock = acquire(directory.lock)
    try:
        if not directory.record_file.exists():
            record.write(directory.record_file)
        if data is not None and not directory.blend_file.exists():
            data.blend.write(directory.blend_file)
        parent = _resume_point(directory, resume_step, resume_before)
        attempt = _begin_attempt(directory, place, parent, data, command, devices=devices)
        announce(lock, attempt.number)
        run = Run(directory, attempt, place, lock, _telemetry(attempt, place, devices, process))
    except BaseException:
        os.close(lock)
        raise
    if tags:
        run.tag(*tags)
    if notes:
        run.note(notes)
    return run


def _check_words(resume: str, tags: Sequence[str]) -> None:
    if resume not in ("auto", "never", "must"):
        raise UserError(f"resume: found {resume!r}, expected 'auto', 'never' or 'must'")
    if isinstance(tags, str):
        raise UserError(f"tags: found the text {tags!r}, expected a list of texts: tags=[{tags!r}]")


def _choose(
    folder: Path, record: RecordedRun, resume: Resume, *, wait: bool
) -> tuple[RecordedRunDirectory, RecordedRun]:
    """The run to go on with or to begin.

    Args:
        folder: folder of all runs.
        record: what the run is, without repetition.
        resume: as given.
        wait: whether rank 0 chooses the run: then a run that is running is the one that rank 0 has chosen.

    Raises:
        NotFoundError: `resume` is `must` and there is no unfinished run.
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
    run: RecordedRunDirectory,
    place: Rank,
    parent: ResumePoint | None,
    data: BlendDataset | None,
    command: Sequence[str] | None,
    *,
    devices: Sequence[Device],
) -> RecordedAttempt:
    earlier = run.attempts()
    if earlier and earlier[-1].end is None:
        record_end(earlier[-1])
    taken = run.attempt_folders()
    attempt = RecordedAttempt(run.attempt_folder(int(taken[-1].name) + 1 if taken else 1))
    if data is not None:
        data.first_sample = 0 if parent is None else _consumed_samples(run, parent)
    header = RecordedHeader(
        attempt=attempt.number,
        run=run.digest,
        parent=parent,
        started_at=time.time(),
        process_started_at=psutil.Process().create_time(),
        host=socket.gethostname(),
        process=os.getpid(),
        world_size=place.world_size,
        command=tuple(redact(word) for word in command or sys.orig_argv),
        folder=redact(str(Path.cwd())),
        code=foreign_code(_script(command)),
        environment=collect_environment(devices),
        devices=tuple(device.to_dict() for device in devices),
        launch=launch_record(os.environ),
        data=data.record() if data else None,
    )
    (attempt.path / "ranks").mkdir(parents=True)
    header.write(attempt.header_file)
    return attempt


def _telemetry(attempt: RecordedAttempt, place: Rank, found: Sequence[Device], process: int | None) -> RankTelemetry:
    """The readings of this rank: of its device where the launcher started several ranks here, else of all it sees."""
    variables = {**os.environ, **rank_variables(os.environ)}
    local_rank, here = variables.get("LOCAL_RANK"), variables.get("LOCAL_WORLD_SIZE")
    devices = visible_indexes(found, os.environ.get("CUDA_VISIBLE_DEVICES"))
    if local_rank and here and int(here) > 1:
        devices = devices[int(local_rank) : int(local_rank) + 1]
    return RankTelemetry(
        attempt.path / TELEMETRY,
        rank=place.rank,
        devices=devices,
        first=int(local_rank or 0) == 0,
        ranks_here=int(here or 1),
        process=process,
    )


def _script(command: Sequence[str] | None) -> Path | None:
    """The program of a command: the first of its words that names a Python file; None for this process's own."""
    return next((Path(word) for word in command or () if word.endswith(".py") and Path(word).is_file()), None)


def _resume_point(run: RecordedRunDirectory, step: int | None, before: int | None) -> ResumePoint | None:
    """The ring after which the trainer goes on.

    Args:
        run: the run.
        step: the step of the ring; None: of the newest checkpoint on the run's path.
        before: instead, the newest step on the path before this one.

    Raises:
        UserError: the run has not reported that step.
    """
    segments = run.path_to_end()
    if before is not None:
        step = _newest_before(segments, before)
    if step is None:
        step = max((each.step for each in run.checkpoints_on(segments)), default=0)
    if step == 0:
        return None
    for segment in reversed(segments):
        for ring in segment.rings():
            if ring.step == step:
                return ResumePoint(attempt=segment.attempt.number, step=step, ring=ring.digest)
    known = max((segment.attempt.last_step() for segment in segments), default=0)
    raise UserError(
        f"resume_step: found {step}, expected a step that the run {run.id} has reported (its last step is {known}); "
        "give the step of the checkpoint that was loaded, or 0 to train from the beginning"
    )


def _newest_before(segments: Sequence[RecordedSegment], step: int) -> int:
    """The newest step on a path before a step, 0 where there is none."""
    reported = (ring.step for segment in segments for ring in segment.attempt.rings() if segment.contains(ring.step))
    return max((each for each in reported if each < step), default=0)


def _consumed_samples(run: RecordedRunDirectory, parent: ResumePoint) -> int:
    """Samples of the data order up to and with a step: every rank reads batches of the size that rank 0 reads.

    Raises:
        UserError: a step did not report its tokens.
    """
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
