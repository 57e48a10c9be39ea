"""Writes and checks checkpoints: DeepSpeed's files with a manifest that holds the size and digest of each file.

A checkpoint appears whole: written under a temporary name, synced, digested, renamed. The rings up to it are on disk
before its manifest exists, so no checkpoint lacks its provenance.
"""

import os
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import torch
import torch.distributed

from treering.config.canonical import digest_file
from treering.errors import EvidenceError
from treering.files import open_regular, rename_durably, sync_directory, write_durably
from treering.progress import Progress, quiet
from treering.runlog.chronicle import record_saved
from treering.runlog.directory import MANIFEST_FILE, CheckpointDirectory, RunDirectory
from treering.runlog.journal import Journal
from treering.runlog.records import CheckpointManifest, FileRecord, Record
from treering.runlog.removal import SAVING_PREFIX
from treering.runlog.ring import Ring
from treering.runlog.writer import RingWriter
from treering_trainer.core.engine import Engine

Item = TypeVar("Item")
Result = TypeVar("Result")


class Saving:
    """A checkpoint that is being saved: DeepSpeed's files are written, each rank syncs and digests its own in a thread.

    Training may continue meanwhile: it changes nothing that is in the files.
    If any rank cannot write its part, the checkpoint is removed; earlier checkpoints are not touched.

    Args:
        engine: what to save.
        run: the run.
        step: the newest step, whose ring is appended.
        rings: the ring writer on rank 0, None elsewhere.
        facts: fields of the manifest that come from the run log, used on rank 0.
        documents: texts by file name to store beside DeepSpeed's files, used on rank 0.

    Raises:
        OSError: the rings could not be synced.
    """

    def __init__(
        self,
        engine: Engine,
        run: RunDirectory,
        step: int,
        rings: RingWriter[Ring] | None,
        facts: Mapping[str, Any],
        *,
        documents: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.step = step
        self._documents = documents
        self._run = run
        self._leads = rings is not None
        self._final = run.checkpoint_folder(step)
        self._temporary = self._final.with_name(f"{SAVING_PREFIX}{self._final.name}")
        self._thread = ThreadPoolExecutor(1)
        self._records: Future[list[FileRecord]] | None = None
        self._failure, _ = _together(self._begin if self._leads else None)
        if self._failure is None:
            self._failure, _ = _together(lambda: self._write(engine))
        if rings is not None:
            rings.sync()
            facts = {**facts, "step": step, "ring": rings.last_digest}
        self._facts = facts

    @property
    def ready(self) -> bool:
        """Whether this rank has done its part; when all ranks have, `finish` does not wait."""
        return self._records is None or self._records.done()

    def finish(self) -> str | None:
        """Waits for every rank's part, then writes the manifest and gives the checkpoint its name; collective.

        Returns:
            None, or why the checkpoint could not be saved; the same on every rank.
        """
        written: list[Any] = []
        if self._failure is None:
            self._failure, written = _together(self._records.result if self._records is not None else None)
        self._thread.shutdown()
        if self._failure is None:
            self._failure, _ = _together((lambda: self._seal(written)) if self._leads else None)
        if self._failure is not None and self._leads:
            shutil.rmtree(self._temporary, ignore_errors=True)  # frees the space, which the rings need
        return self._failure

    def _begin(self) -> None:
        shutil.rmtree(self._temporary, ignore_errors=True)
        self._temporary.mkdir(parents=True)
        for name, text in self._documents.items():
            write_durably(self._temporary / name, text)

    def _write(self, engine: Engine) -> None:
        paths = engine.save(self._temporary)
        self._records = self._thread.submit(lambda: [record_file(path, self._temporary) for path in paths])

    def _seal(self, written: list[list[FileRecord]]) -> None:
        made: list[CheckpointManifest] = []

        def describe(files: tuple[FileRecord, ...]) -> Record:
            journal = Journal.of(self._run.path, self._facts["run"]).head()
            made.append(CheckpointManifest(**self._facts, created_at=time.time(), files=files, journal=journal))
            return made[0]

        records = [record for records in written for record in records]
        digest = seal(self._temporary, self._final, describe, records)
        record_saved(self._run, made[0], digest)


def _together(act: Callable[[], Any] | None) -> tuple[str | None, list[Any]]:
    """Writes this rank's part, and exchanges the results of all ranks; collective.

    Args:
        act: writes this rank's part, None where the rank has none.

    Returns:
        The first failure in the order of ranks, and what each rank's `act` returned; the same on every rank.
    """
    mine: tuple[str | None, Any] = None, None
    try:
        if act is not None:
            mine = None, act()
    except (OSError, EvidenceError) as error:  # travels as text, for an incident; no log: its disk may be full
        mine = str(error), None
    every: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(every, mine)
    failures = (f"rank {rank}: {text}" for rank, (text, _result) in enumerate(every) if text is not None)
    return next(failures, None), [result for _text, result in every]


def record_file(path: Path, folder: Path) -> FileRecord:
    """Syncs a file and digests it, in the process that wrote it: its node still has the file in memory."""
    with open_regular(path) as file:
        os.fsync(file.fileno())
    return FileRecord(path=path.relative_to(folder).as_posix(), size=path.stat().st_size, digest=digest_file(path))


def seal(
    temporary: Path,
    final: Path,
    describe: Callable[[tuple[FileRecord, ...]], Record],
    recorded: Collection[FileRecord] = (),
) -> str:
    """Gives a written folder its manifest and its name.

    Args:
        temporary: the folder as it was written.
        final: its name.
        describe: makes the manifest.
        recorded: files that are synced and digested already; the others are synced and digested here.

    Returns:
        The manifest's digest.
    """
    known = {record.path: record for record in recorded}
    paths = sorted(temporary.rglob("*"))
    rest = [path for path in paths if path.is_file() and path.relative_to(temporary).as_posix() not in known]
    known |= {record.path: record for record in in_threads(lambda path: record_file(path, temporary), rest)}
    for path in paths:
        if path.is_dir():
            sync_directory(path)
    digest = describe(tuple(known[name] for name in sorted(known))).write(temporary / MANIFEST_FILE)
    rename_durably(temporary, final)
    return digest


def in_threads(act: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Applies a function that reads or digests files in one thread a core; yields the results in order."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        yield from pool.map(act, items)


def verify(checkpoint: CheckpointDirectory, progress: Progress = quiet) -> CheckpointManifest:
    """Checks a checkpoint's manifest and the digest of every file.

    Args:
        checkpoint: what to check.
        progress: called before the first file and after each, with `verify` and the bytes.

    Raises:
        EvidenceError: the manifest or a file is missing, incomplete or changed.
    """
    manifest = checkpoint.manifest
    check_files(checkpoint.path, manifest.files, progress)
    return manifest


def check_files(folder: Path, files: Collection[FileRecord], progress: Progress = quiet) -> None:
    """Checks every file of a manifest.

    Args:
        folder: where the files are.
        files: the manifest's records of them.
        progress: called before the first file and after each, with `verify` and the bytes.

    Raises:
        EvidenceError: a file is missing, incomplete or changed.
    """

    def check(record: FileRecord) -> None:
        path = folder / record.path
        if not path.exists():
            raise EvidenceError(
                f"{path}: missing, the manifest names it", file=path, found="no file", expected=record.digest
            )
        if (size := path.stat().st_size) != record.size:
            raise EvidenceError(
                f"{path}: {size} bytes, expected {record.size}", file=path, found=size, expected=record.size
            )
        if (digest := digest_file(path)) != record.digest:
            raise EvidenceError(
                f"{path}: digest {digest}, expected {record.digest}", file=path, found=digest, expected=record.digest
            )

    done, total = 0, sum(record.size for record in files)
    progress("verify", done, total)
    for record, _ in zip(files, in_threads(check, files), strict=True):
        done += record.size
        progress("verify", done, total)
