"""Checkpoints: DeepSpeed's files under a manifest that names what they are and every byte of them.

A checkpoint appears whole: written under a temporary name, synced, digested, renamed. The rings up to it are on disk
before its manifest exists, so that no checkpoint is without its provenance.
"""

import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import torch
import torch.distributed

from treering.config.canonical import digest_file
from treering.config.operation import CheckpointConfig
from treering.errors import EvidenceError
from treering.files import open_regular, rename_durably, sync_directory, write_durably
from treering.foreign import say
from treering.runlog.chronicle import record_removed, record_saved, record_set_aside
from treering.runlog.directory import EVALUATIONS, MANIFEST_FILE, CheckpointDirectory, RunDirectory
from treering.runlog.journal import Journal
from treering.runlog.records import CheckpointManifest, FileRecord, Record
from treering.runlog.retention import kept_by
from treering.runlog.ring import Ring
from treering.runlog.writer import RingWriter
from treering_trainer.core.engine import STATE_TAG, Engine

_SAVING = ".saving-"
_REMOVING = ".removing-"
_LAYER_FILE = re.compile(r"^layer_(\d+)-model_(\d+)-model_states\.pt$")
_SPLIT_ROWS = re.compile(r"(word\.weight|linear_qkv\.(weight|bias)|linear_fc1\.(weight|bias))$")
_SPLIT_COLUMNS = re.compile(r"(linear_proj|linear_fc2)\.weight$")

Item = TypeVar("Item")
Result = TypeVar("Result")


class Saving:
    """A checkpoint on its way: DeepSpeed's files are written, each rank syncs and digests its own in a thread.

    Nobody needs to wait for that: nothing that training changes is in the files.
    What cannot be written whole, on whichever rank, leaves nothing behind; earlier checkpoints are not touched.

    Args:
        engine: what to save.
        run: the run.
        step: the step that was just laid.
        rings: the ring writer on rank 0, None elsewhere.
        facts: fields of the manifest that the run log knows, used on rank 0.
        documents: texts by file name that stand beside DeepSpeed's files, used on rank 0.

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
        self._temporary = self._final.with_name(f"{_SAVING}{self._final.name}")
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
        """Whether this rank has done its part; when all have, `finish` waits for none."""
        return self._records is None or self._records.done()

    def finish(self) -> str | None:
        """Waits for every rank's part, then writes the manifest and gives the checkpoint its name; collective.

        Returns:
            None, or why there is no checkpoint; the same on every rank.
        """
        written: list[Any] = []
        if self._failure is None:
            self._failure, written = _together(self._records.result if self._records is not None else None)
        self._thread.shutdown()
        if self._failure is None:
            self._failure, _ = _together((lambda: self._seal(written)) if self._leads else None)
        if self._failure is not None and self._leads:
            shutil.rmtree(self._temporary, ignore_errors=True)  # its room is needed, for rings first of all
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
    """Writes, and tells all ranks what came of it; collective.

    Args:
        act: what this rank has to write, if anything.

    Returns:
        The first failure in the order of ranks, and what each rank's `act` returned; the same on every rank.
    """
    mine: tuple[str | None, Any] = None, None
    try:
        if act is not None:
            mine = None, act()
    except (OSError, EvidenceError) as error:  # not printed: the log may lie on the same full disk
        mine = str(error), None
    every: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(every, mine)
    failures = (f"rank {rank}: {text}" for rank, (text, _result) in enumerate(every) if text is not None)
    return next(failures, None), [result for _text, result in every]


def record_file(path: Path, folder: Path) -> FileRecord:
    """Syncs a file and digests it: by the process that wrote it, whose node still has it in memory."""
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
        temporary: what was written.
        final: its name.
        describe: makes the manifest.
        recorded: files that are synced and digested already; the others are now.

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
    """Results in order of an action that waits for disks or digests, one thread a core; no thread outlives it."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        yield from pool.map(act, items)


def verify(
    checkpoint: CheckpointDirectory, progress: Callable[[int, int], None] = lambda _done, _total: None
) -> CheckpointManifest:
    """Checks a checkpoint's manifest and the digest of every file.

    Args:
        checkpoint: what to check.
        progress: told after each file how many bytes are checked, and of how many.

    Raises:
        EvidenceError: the manifest or a file is missing, incomplete or changed.
    """
    manifest = checkpoint.manifest
    check_files(checkpoint.path, manifest.files, progress)
    return manifest


def check_files(
    folder: Path, files: Collection[FileRecord], progress: Callable[[int, int], None] = lambda _done, _total: None
) -> None:
    """Checks every file of a manifest.

    Args:
        folder: where they lie.
        files: as the manifest has them.
        progress: told after each file how many bytes are checked, and of how many.

    Raises:
        EvidenceError: one is missing, incomplete or changed.
    """

    def check(record: FileRecord) -> None:
        path = folder / record.path
        if not path.exists():
            raise EvidenceError(f"{path}: missing, the manifest names it")
        if path.stat().st_size != record.size:
            raise EvidenceError(f"{path}: {path.stat().st_size} bytes, expected {record.size}")
        if (digest := digest_file(path)) != record.digest:
            raise EvidenceError(f"{path}: digest {digest}, expected {record.digest}")

    done, total = 0, sum(record.size for record in files)
    for record, _ in zip(files, in_threads(check, files), strict=True):
        done += record.size
        progress(done, total)


def remove_unfinished(run: RunDirectory) -> list[str]:
    """Removes what an interrupted save or removal left behind; returns the names of the unfinished saves."""
    _remove_nameless(run)
    found = sorted(run.checkpoints_folder.glob(f"{_SAVING}*"))
    for path in found:
        shutil.rmtree(path)
    return [path.name.removeprefix(_SAVING) for path in found]


def _take_name(path: Path) -> None:
    rename_durably(path, path.with_name(f"{_REMOVING}{path.name}"))


def _remove_nameless(run: RunDirectory) -> None:
    """Removes the files of checkpoints and conversions that have lost their names."""
    for folder in (run.checkpoints_folder, run.conversions_folder):
        for path in folder.glob(f"{_REMOVING}*"):
            shutil.rmtree(path)


def remove_old(run: RunDirectory, config: CheckpointConfig) -> None:
    """Removes checkpoints that no rule keeps; called when a new one is complete, by the process that has the lock.

    Each loses its name first, so that a kill leaves none that is half. A file system that refuses is no reason to end a
    training: it is told, and the next call or start tries again.
    """
    checkpoints = run.checkpoints()
    rules = kept_by({each.step: _validation_loss(each) for each in checkpoints}, config)
    try:
        for each in checkpoints:
            if not rules[each.step]:
                record_removed(run, each, _reason(config))
                _take_name(each.path)
                if each.conversion.exists():
                    _take_name(each.conversion)
        _remove_nameless(run)
    except (OSError, EvidenceError) as error:
        say(f"an old checkpoint could not be removed: {error}")


def _reason(config: CheckpointConfig) -> str:
    rules = (("keep_last", config.keep_last), ("keep_every", config.keep_every), ("keep_best", config.keep_best))
    return "no rule keeps it: " + ", ".join(f"{name} {value}" for name, value in rules if value is not None)


def _validation_loss(checkpoint: CheckpointDirectory) -> float | None:
    try:
        return checkpoint.manifest.validation_loss
    except EvidenceError:  # damaged: nothing is known of it
        return None


def set_aside(run: RunDirectory, checkpoint: CheckpointDirectory, attempt: int) -> Path:
    """Moves a checkpoint that a new attempt will write again to `superseded-NNNN/`, scores with it.

    It stays complete and can be audited there; its name is free for the checkpoint of the new path.
    """
    folder, again = run.path / f"superseded-{attempt:04d}", 1
    while (folder / checkpoint.path.name).exists():  # an unreadable manifest names no attempt: 0, perhaps twice
        again += 1
        folder = run.path / f"superseded-{attempt:04d}-{again}"
    folder.mkdir(exist_ok=True)
    target = folder / checkpoint.path.name
    record_set_aside(run, checkpoint, folder)
    rename_durably(checkpoint.path, target)
    shutil.rmtree(checkpoint.conversion, ignore_errors=True)  # nothing goes on from there
    scores = run.evaluations_folder / f"{checkpoint.path.name}.json"
    if scores.exists():
        (folder / EVALUATIONS).mkdir(exist_ok=True)
        rename_durably(scores, folder / EVALUATIONS / scores.name)
    sync_directory(folder)
    return target


@dataclass(frozen=True, slots=True)
class Weight:
    """One weight of a checkpoint, mapped from its files: nothing is read before it is asked for.

    Attributes:
        name: `<layer>.<parameter>`, where layer is the position in `model.build_layers`.
        parts: of each tensor rank, in their order.
    """

    name: str
    parts: tuple[torch.Tensor, ...]

    def full(self, device: str = "cpu") -> torch.Tensor:
        """The whole tensor in memory of its own; on `meta` only its shape and type, without reading."""
        parts = [part.to(device) for part in self.parts]
        if len(parts) > 1 and _SPLIT_ROWS.search(self.name):
            return torch.cat(parts, dim=0)
        if len(parts) > 1 and _SPLIT_COLUMNS.search(self.name):
            return torch.cat(parts, dim=1)
        return parts[0].clone()


def open_weights(directory: Path) -> list[Weight]:
    """All weights of a checkpoint in the order of its layers, whatever layout it was trained in.

    Args:
        directory: a checkpoint's folder; its files must not be changed while a weight is in use.

    Raises:
        EvidenceError: there are no layer files.
    """
    files: dict[int, dict[int, Path]] = {}
    for path in (directory / STATE_TAG).glob("layer_*.pt"):
        if match := _LAYER_FILE.match(path.name):
            files.setdefault(int(match[1]), {})[int(match[2])] = path
    if not files:
        raise EvidenceError(f"{directory / STATE_TAG}: no layer files; expected layer_NN-model_NN-model_states.pt")
    weights = []
    for layer, by_rank in sorted(files.items()):
        states = [open_state(by_rank[rank]) for rank in sorted(by_rank)]
        # Beside tensors, megatron-core's layers put an empty `_extra_state` into their state.
        names = [name for name, value in states[0].items() if isinstance(value, torch.Tensor)]
        weights += [Weight(f"{layer}.{name}", tuple(state[name] for state in states)) for name in names]
    return weights


def read_weights(directory: Path) -> dict[str, torch.Tensor]:
    """All weights of a checkpoint as full tensors on the CPU, by name: see `open_weights`."""
    return {weight.name: weight.full() for weight in open_weights(directory)}


def open_state(path: Path) -> dict[str, Any]:
    """What a file of a checkpoint holds, its tensors mapped; no code is run from it."""
    state: dict[str, Any] = torch.load(path, map_location="cpu", mmap=True, weights_only=True)  # noqa: TID251 - this is the place
    return state
