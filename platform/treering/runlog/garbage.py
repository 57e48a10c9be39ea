"""What of a project may be deleted, and what is lost with it. A run's rings, headers and journals are never offered.

Of the checkpoints only those are offered that no path to the newest ring needs: set aside, or abandoned by a rewind.
Never offered is a checkpoint that was promoted or that another run started from, nor anything of a run that trains.
Of a finished reproduction all but its record is offered, its rings too, once a newer one is finished.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from treering.errors import EvidenceError
from treering.files import rename_durably
from treering.project import Project
from treering.runlog.columns.attempt import COLUMNS
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering.runlog.find import find_runs, runs_of_any_trainer
from treering.runlog.folders import TELEMETRY, RunFolder
from treering.runlog.journal import Promoted
from treering.runlog.lock import acquire, is_held
from treering.runlog.removal import (
    CONVERTING_PREFIX,
    SAVING_PREFIX,
    delete_renamed,
    rename_for_removal,
    renamed_for_removal,
)
from treering.runlog.reproductions import ReproductionFolder, reproductions_of
from treering.runlog.telemetry.parts import PARTS
from treering.runlog.telemetry.rolled_up import not_rolled_up, record_rolled_up

Kind = Literal["unfinished", "superseded", "abandoned", "conversion", "reproduction", "columns", "index", "telemetry"]

LOST: Final[dict[Kind, str]] = {
    "unfinished": "nothing: an interrupted save, conversion or removal left it",
    "superseded": "its weights: it cannot be exported, scored, replayed or continued from; trace and takedown no "
    "longer list it",
    "abandoned": "its weights: it cannot be exported, scored, replayed or continued from; trace and takedown no "
    "longer list it",
    "conversion": "nothing: `treering checkpoint convert` makes it again",
    "reproduction": "its rings and checkpoints: lists and pages keep its verdict",
    "columns": "nothing: the next reader makes them again from the rings",
    "telemetry": "the sensors' single readings: charts draw minutes, TFLOP/s a watt and the ranks' own clocks are "
    "missing, MLflow gets no more of them; the roll-up by minute, energy and XID errors stay",
    "index": "trace --text and contamination need `treering index` again",
}
"""What the project can no longer answer once a thing of a kind is deleted."""


@dataclass(frozen=True, slots=True)
class Garbage:
    """One thing that may be deleted.

    Attributes:
        kind: what it is.
        path: its folder.
        size: bytes of its files.
        run: its run; None for an index.
        checkpoint: the checkpoint that it is, None where it is none.
    """

    kind: Kind
    path: Path
    size: int
    run: RunFolder | None
    checkpoint: CheckpointDirectory | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """What may be deleted.

    Attributes:
        things: all of it.
        kept: what was left out and why, in words.
    """

    things: tuple[Garbage, ...]
    kept: tuple[str, ...]


def find_garbage(project: Project, runs: Sequence[RunFolder] | None, kinds: Iterable[Kind]) -> Found:
    """Looks for what may be deleted.

    Args:
        project: the project.
        runs: runs to look into; None: all, and the indexes.
        kinds: what to look for.
    """
    wanted = set(kinds)
    things: list[Garbage] = []
    kept: list[str] = []
    started_from = _started_from(project)
    for run in runs_of_any_trainer(project.runs) if runs is None else runs:
        if run.is_held:
            kept.append(f"{run.path}: the run is running")
            continue
        try:
            things += [each for each in _of_run(run, started_from, kept) if each.kind in wanted]
            if "reproduction" in wanted:
                things += _reproductions(run, kept)
            if "telemetry" in wanted:
                things += _telemetry(run, kept)
        except EvidenceError as error:
            kept.append(f"{run.path}: {error}")
    if runs is None and "index" in wanted:
        things += [_thing("index", path, None) for path in sorted(project.index.glob("[!.]*"))]
    return Found(tuple(things), tuple(kept))


def delete(things: Sequence[Garbage], done: Callable[[Garbage], None]) -> None:
    """Deletes things, those of a run under the run's lock.

    A process that is killed leaves what it has not reached, and folders without a name, which the next call deletes.

    Args:
        things: as `find_garbage` found them.
        done: called after each.

    Raises:
        RunLockedError: a run began to train meanwhile, or a reproduction is made.
        EvidenceError: a run's journal was changed.
        OSError: a folder cannot be deleted.
    """
    for each in things:
        if each.kind == "reproduction":
            _empty(ReproductionFolder(each.path))
            done(each)
            continue
        if each.run is None or each.kind == "columns":
            _delete_folder(each.path)
            done(each)
            continue
        lock = acquire(each.run.lock)
        try:
            if each.checkpoint is not None and isinstance(each.run, RunDirectory):
                rename_for_removal(each.run, each.checkpoint, f"treering gc: {each.kind}")
                delete_renamed(each.run)
            else:
                if each.kind == "telemetry":
                    record_rolled_up(each.path.parent)
                _delete_folder(each.path)
        finally:
            os.close(lock)
        done(each)


def _of_run(run: RunFolder, started_from: Mapping[str, str], kept: list[str]) -> Iterator[Garbage]:
    for attempt in run.attempt_folders():
        for folder in (attempt / COLUMNS, *sorted(attempt.glob(f"ranks/*/{COLUMNS}"))):
            if folder.is_dir():
                yield _thing("columns", folder, run)
    if not isinstance(run, RunDirectory) or run.mirror_file.exists():
        return
    for path in _unfinished(run):
        yield _thing("unfinished", path, run)
    needed = {**started_from, **_promoted(run)}
    for kind, checkpoint in _off_path(run):
        if reason := needed.get(checkpoint.digest):
            kept.append(f"{checkpoint.path}: {reason}")
        else:
            yield _thing(kind, checkpoint.path, run, checkpoint)
    for path in sorted(run.conversions_folder.glob("step-*")):
        yield _thing("conversion", path, run)


def _telemetry(run: RunFolder, kept: list[str]) -> Iterator[Garbage]:
    """The single readings of a finished run that are rolled up."""
    if run.state() != "finished" or run.mirror_file.exists():
        return
    for attempt in run.attempt_folders():
        folder = attempt / TELEMETRY
        left = folder / f".{PARTS}.deleted"
        if left.is_dir():
            yield _thing("telemetry", left, run)
        if not (folder / PARTS).is_dir():
            continue
        if reason := not_rolled_up(folder):
            kept.append(f"{folder / PARTS}: {reason}")
        else:
            yield _thing("telemetry", folder / PARTS, run)


def _reproductions(run: RunFolder, kept: list[str]) -> Iterator[Garbage]:
    """The finished reproductions but the newest of them."""
    finished = []
    for folder in reproductions_of(run):
        try:
            ended = folder.record.ended_at
        except EvidenceError as error:
            kept.append(str(error))
            continue
        if ended is not None:
            finished.append(folder)
    for folder in finished[:-1]:
        size = sum(_bytes(path) for path in _beside_record(folder))
        if is_held(folder.lock):
            kept.append(f"{folder.path}: a process makes it")
        elif size:
            yield Garbage("reproduction", folder.path, size, run)


def _beside_record(folder: ReproductionFolder) -> list[Path]:
    return [path for path in sorted(folder.path.iterdir()) if path not in {folder.file, folder.lock}]


def _empty(folder: ReproductionFolder) -> None:
    """Deletes all of a reproduction but its record."""
    lock = acquire(folder.lock, "makes this reproduction")
    try:
        for path in _beside_record(folder):
            if path.is_dir() and not path.is_symlink():
                _delete_folder(path)
            else:
                path.unlink()
    finally:
        os.close(lock)


def _off_path(run: RunDirectory) -> Iterator[tuple[Kind, CheckpointDirectory]]:
    """The checkpoints that the path to the newest ring does not need; none where there is no path."""
    for checkpoint in run.superseded():
        yield "superseded", checkpoint
    segments = run.path_to(own=True)
    for checkpoint in run.checkpoints() if segments else ():
        manifest = checkpoint.manifest
        if not any(segment.holds(manifest.attempt, manifest.step) for segment in segments):
            yield "abandoned", checkpoint


def _unfinished(run: RunDirectory) -> Iterator[Path]:
    yield from sorted(run.checkpoints_folder.glob(f"{SAVING_PREFIX}*"))
    yield from sorted(run.conversions_folder.glob(f"{CONVERTING_PREFIX}*"))
    yield from renamed_for_removal(run)


def _promoted(run: RunDirectory) -> dict[str, str]:
    """The checkpoints that were promoted, by digest, with the reason to keep them."""
    entries = [line.entry for line in run.journal.lines()]
    return {each.checkpoint: f"promoted as {each.alias}" for each in entries if isinstance(each, Promoted)}


def _started_from(project: Project) -> dict[str, str]:
    """The checkpoints that another run of the project started from, by digest, with the reason to keep them."""
    found: dict[str, str] = {}
    for run in find_runs(project.runs):
        for attempt in run.attempts():
            parent = attempt.header.parent if attempt.has_header else None
            if parent is not None and parent.run != attempt.header.run:
                found.setdefault(parent.checkpoint, f"run {run.path.name} started from it")
    return found


def _thing(kind: Kind, path: Path, run: RunFolder | None, checkpoint: CheckpointDirectory | None = None) -> Garbage:
    return Garbage(kind, path, _bytes(path), run, checkpoint)


def _bytes(path: Path) -> int:
    """Bytes of a file, or of the files in a folder; what links lead to does not count."""
    return sum(each.lstat().st_size for each in (path, *path.rglob("*")) if each.is_file() and not each.is_symlink())


def _delete_folder(path: Path) -> None:
    """Deletes a folder, which loses its name first."""
    if not path.name.startswith("."):
        renamed = path.with_name(f".{path.name}.deleted")
        shutil.rmtree(renamed, ignore_errors=True)
        rename_durably(path, renamed)
        path = renamed
    shutil.rmtree(path)
