"""Finds runs and checkpoints by what a person types: an id, the beginning of an id, or a folder."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from treering.config.canonical import short
from treering.config.resolved import CONFIG_FILE, RUN_ID_LENGTH
from treering.errors import EvidenceError, NotFoundError, UserError
from treering.files import read_bytes, read_text
from treering.runlog.attempt import AttemptDirectory
from treering.runlog.directory import (
    CheckpointDirectory,
    RunDirectory,
    checkpoint_name,
    is_checkpoint_name,
)
from treering.runlog.document import read_document
from treering.runlog.folders import ATTEMPTS, CHECKPOINTS
from treering.runlog.journal import Archived, Entry, Journal
from treering.runlog.recorded_directory import POINTER_FILE, RECORD_FILE, RecordedAttempt, RecordedRunDirectory
from treering.runlog.recorded_records import RecordedCheckpoint

AnyRun = RunDirectory | RecordedRunDirectory
AnyAttempt = AttemptDirectory | RecordedAttempt

_ARCHIVED = b'"kind":"archived"'
"""In the line of such an entry: most journals have none, and are not parsed for a list."""


def find_runs(folder: Path) -> list[RunDirectory]:
    """All runs below a folder, newest activity last."""
    found = [RunDirectory(path.parent) for path in folder.glob(f"*/{CONFIG_FILE}")]
    return sorted(found, key=_last_activity)


def runs_without_config(folder: Path) -> list[RunDirectory]:
    """The folders of runs that have lost their `resolved.json` and still hold attempts or checkpoints."""
    left = {path.parent for name in (ATTEMPTS, CHECKPOINTS) for path in folder.glob(f"*/{name}")}
    known = {run.path for run in find_recorded_runs(folder)}
    return [run for run in map(RunDirectory, sorted(left - known)) if not run.config_file.exists()]


def find_recorded_runs(folder: Path) -> list[RecordedRunDirectory]:
    """All runs of other trainers below a folder, newest activity last."""
    found = [RecordedRunDirectory(path.parent) for path in folder.glob(f"*/{RECORD_FILE}")]
    return sorted(found, key=_last_report)


def archived_by(entries: Sequence[Entry]) -> bool:
    """Whether a person archived the run, by the entries of its journal."""
    return next((entry.archived for entry in reversed(entries) if isinstance(entry, Archived)), False)


def is_archived(journal: Journal) -> bool:
    """Whether a person archived the run; a run whose journal does not hold is listed."""
    try:
        if not journal.exists or _ARCHIVED not in read_bytes(journal.path):
            return False
        return archived_by([line.entry for line in journal.lines()])
    except (EvidenceError, OSError):
        return False


def run_is_archived(run: AnyRun) -> bool:
    """Whether a person archived the run, so that lists leave it out."""
    try:
        return is_archived(run.journal)
    except EvidenceError:  # nothing says which run it is: its line in the list does
        return False


def _last_report(run: RecordedRunDirectory) -> float:
    files = (*(attempt.rings_file for attempt in run.attempts()), run.record_file)
    return max(_modified_at(file) for file in files)


def find_recorded(folder: Path, name: str) -> tuple[RecordedRunDirectory, RecordedCheckpoint | None] | None:
    """The recorded run, and the checkpoint of it, that a person names; None where the name is not of a recorded run.

    Args:
        folder: folder of all runs.
        name: a run's folder, a prefix of its id, or the folder or file of a checkpoint that its trainer reported.

    Raises:
        NotFoundError: several runs fit, or the checkpoint's run is not where the checkpoint says.
        EvidenceError: the record of the checkpoint was changed.
    """
    path = Path(name)
    if (path / RECORD_FILE).exists():
        return RecordedRunDirectory(path), None
    beside = [path.with_name(f"{path.name}.{POINTER_FILE}")] if path.name else []  # `.` and no name have no neighbour
    for pointer in (path / POINTER_FILE, *beside):
        if path.name and pointer.is_file():
            return _pointed_at(pointer)
    if path.exists() or not name:
        return None
    wanted = short(name, RUN_ID_LENGTH)
    found = [run for run in find_recorded_runs(folder) if run.path.name.startswith(wanted)]
    if len(found) > 1:
        names = ", ".join(run.path.name for run in found)
        raise NotFoundError(f"{folder}: {name!r} fits several runs ({names}); give more characters")
    return (found[0], None) if found else None


def _pointed_at(pointer: Path) -> tuple[RecordedRunDirectory, RecordedCheckpoint]:
    content, _digest = read_document(pointer)
    run = RecordedRunDirectory(Path(os.path.normpath(pointer.parent / str(content["folder"]))))
    if not run.record_file.exists() or run.digest != content["run"]:
        raise NotFoundError(
            f"{pointer}: found no run {short(content['run'], RUN_ID_LENGTH)} in {run.path}, expected the run that "
            "recorded the checkpoint; bring the run's folder back to that place"
        )
    file = next((file for file in run.checkpoint_files() if content["checkpoint"] in read_text(file)), None)
    if file is None:
        raise NotFoundError(
            f"{run.path}: found no record of checkpoint {content['checkpoint']}; restore it from a copy"
        )
    return run, RecordedCheckpoint.read(file)[0]


def _last_activity(run: RunDirectory) -> float:
    files = (*(attempt.rings_file for attempt in run.attempts()), run.config_file)
    return max(_modified_at(file) for file in files)


def _modified_at(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except FileNotFoundError:  # not there yet, or its run is being removed
        return 0.0


def find_run(folder: Path, prefix: str) -> RunDirectory:
    """The one run whose id starts with `prefix`; a path to a run's folder is taken as well.

    Raises:
        NotFoundError: none or several fit.
    """
    if RunDirectory(Path(prefix)).config_file.exists():
        return RunDirectory(Path(prefix))
    wanted = short(prefix, RUN_ID_LENGTH)
    found = [run for run in find_runs(folder) if run.path.name.startswith(wanted)]
    found = found or [run for run in runs_without_config(folder) if run.path.name.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise NotFoundError(_no_run(folder, prefix, wanted))
    names = ", ".join(run.path.name for run in found)
    raise NotFoundError(f"{folder}: {prefix!r} fits several runs ({names}); give more characters")


def named_run(folder: Path, name: str) -> AnyRun:
    """The one run of any trainer that a person names: by a prefix of its id, its folder, or a recorded checkpoint.

    Raises:
        NotFoundError: none or several fit.
        EvidenceError: the record of the named checkpoint was changed.
    """
    recorded = find_recorded(folder, name)
    return find_run(folder, name) if recorded is None else recorded[0]


def named_original(folder: Path, name: str, command: str) -> AnyRun:
    """The run that a person names as to `named_run`, for a command that changes its folder.

    Raises:
        NotFoundError: none or several fit.
        UserError: it is a published copy of a run.
        EvidenceError: the record of the named checkpoint was changed.
    """
    run = named_run(folder, name)
    if isinstance(run, RunDirectory) and run.is_cut:
        raise UserError(
            f"{run.path}: a published copy, which DVC tracks; expected the run itself: `treering {command} {run.id}`"
        )
    return run


def runs_of_any_trainer(folder: Path) -> list[AnyRun]:
    """All runs below a folder: those of Treering's trainer, then the recorded ones."""
    return [*find_runs(folder), *find_recorded_runs(folder)]


def _no_run(folder: Path, prefix: str, wanted: str) -> str:
    if not folder.is_dir():
        return (
            f"{folder.parent.absolute()}: no project with runs, since {folder.name}/ is missing, and {prefix!r} is "
            "not a folder here; change to the folder of a project, or give the path of a run"
        )
    if re.fullmatch("[0-9a-f]+", wanted) is None:
        is_folder = "a folder without a run" if Path(prefix).is_dir() else "not a folder here"
        return f"{prefix!r} is {is_folder} and not a run's id (0-9, a-f); `treering runs` lists the runs"
    return f"{folder}: no run starts with {prefix!r}; `treering runs` lists them"


def named_checkpoint(runs: Path, name: str) -> CheckpointDirectory:
    """A checkpoint by its folder or as RUN@STEP, or the newest one of a run or of a published checkpoint's folder.

    Args:
        runs: folder of all runs.
        name: a folder, or any unique prefix of a run's id, with the step of a checkpoint behind `@` or without.

    Raises:
        NotFoundError: there is none, or several runs fit.
    """
    run, at, step = name.rpartition("@")
    if at and step.isdecimal() and not Path(name).exists():
        return find_checkpoint(find_run(runs, run).checkpoint_folder(int(step)))
    if "/" in name or Path(name).exists():
        return find_checkpoint(Path(name))
    return find_checkpoint(find_run(runs, name).path)


def find_checkpoint(path: Path) -> CheckpointDirectory:
    """A checkpoint by its folder, or the newest one of a run's or a published checkpoint's folder.

    Raises:
        NotFoundError: there is none.
    """
    if len(path.parts) < 3 or ".." in path.parts:  # the run is found by going up, which needs something to go up
        path = path.resolve()
    if CheckpointDirectory(path).manifest_file.exists():
        if not is_checkpoint_name(path.name):
            raise NotFoundError(
                f"{path}: the name is not a checkpoint's, expected one like runs/<id>/checkpoints/"
                f"{checkpoint_name(300)}: a checkpoint is audited beside its run log, or as published"
            )
        return CheckpointDirectory(path)
    if is_checkpoint_name(path.name) and path.is_dir() and RunDirectory(path.parent.parent).config_file.exists():
        return CheckpointDirectory(path)  # without its manifest: reading it is an error
    checkpoints = RunDirectory(path).checkpoints()
    if not checkpoints and is_checkpoint_name(path.name) and (others := RunDirectory(path.parent.parent).checkpoints()):
        raise NotFoundError(
            f"{path}: no such checkpoint; run {path.parent.parent.name} has those of the steps "
            f"{', '.join(str(checkpoint.step) for checkpoint in others)}; `treering batch RUN STEP` shows any step"
        )
    if not checkpoints:
        raise NotFoundError(
            f"{path}: no checkpoint there; expected a folder like runs/<id>/checkpoints/{checkpoint_name(300)}; "
            "`treering runs` lists runs and their checkpoints"
        )
    return checkpoints[-1]
