"""Converts checkpoints so that another layout can load them.

DeepSpeed's files hold the parts of one layout. Its converter joins them into one tensor a parameter (the universal
form), which every rank of another layout cuts anew. `treering checkpoint convert` does it ahead; an attempt in another
layout does it by itself.

    checkpoints/step-00000300/  →  universal/step-00000300/{manifest.json, state/zero/<parameter>/fp32.pt, …}
"""

import fcntl
import io
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import deepspeed
import psutil

from treering.errors import EvidenceError, TrainingError, UserError
from treering.runlog.directory import CHECKPOINTS, CheckpointDirectory, RunDirectory
from treering.runlog.records import ConversionManifest, FileRecord, Layout
from treering_trainer.checkpointing.checkpoint import check_files, seal
from treering_trainer.checkpointing.weights import open_state
from treering_trainer.core.engine import STATE_TAG
from treering_trainer.core.universal import write_universal
from treering_trainer.monitor.processes import die_with_parent

_CONVERTING = ".converting-"
_COPIES = 3
"""A worker holds the parts of a tensor, the tensor that they make, and what it reads them from."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """A checkpoint that any layout can load.

    Attributes:
        path: its folder.
        digest: of its manifest.
        manifest: what it was made from, and its files.
        made: whether this call made it; else it was there and holds.
        problem: what was wrong with the conversion that this call replaced, None where it replaced none.
    """

    path: Path
    digest: str
    manifest: ConversionManifest
    made: bool
    problem: EvidenceError | None

    @property
    def message(self) -> str:
        """What was done, for people."""
        how = "converted" if self.made else "is converted already, every file holds"
        anew = f"; made anew, since {self.problem}" if self.problem else ""
        return (
            f"the checkpoint of step {self.manifest.step:,} of layout {self.manifest.layout} (TP x PP x DP) {how}: "
            f"{self.path}{anew}"
        )


def is_needed(saved: Layout, wanted: Layout) -> bool:
    """Whether a checkpoint of one layout must be converted for another; micro-batch and device are cut nowhere."""
    return str(saved) != str(wanted)


def convert(source: CheckpointDirectory) -> Conversion:
    """Converts a checkpoint, or finds that its conversion is there and holds.

    It appears whole: written under a temporary name, synced, digested, renamed. One process at a time does this in a
    run; another one waits for it.

    Args:
        source: the checkpoint; the caller has verified it.

    Raises:
        UserError: it lies outside its run's folder, or was saved before checkpoints could be converted.
        EvidenceError: DeepSpeed's converter found that its parts do not fit together, or a file holds more than state.
        TrainingError: the conversion could not be written.
    """
    final = source.conversion
    if source.path.parent.name != CHECKPOINTS:
        raise UserError(
            f"{source.path}: was set aside, no attempt goes on from it; convert one in {source.run.checkpoints_folder}"
        )
    _check_convertible(source)
    final.parent.mkdir(exist_ok=True)
    with _alone(final.parent, wait=True):
        problem: EvidenceError | None = None
        _remove_half_done(final.parent)
        if final.exists():
            try:
                manifest, digest = _read(source)
                return Conversion(final, digest, manifest, made=False, problem=None)
            except EvidenceError as error:
                problem = error
                shutil.rmtree(final)
        manifest, digest = _make(source, final)
        return Conversion(final, digest, manifest, made=True, problem=problem)


def remove_unfinished(run: RunDirectory) -> None:
    """Removes what an interrupted conversion left behind, unless one is being made at this moment."""
    folder = run.conversions_folder
    if folder.exists():
        with _alone(folder, wait=False) as free:
            if free:
                _remove_half_done(folder)


def _remove_half_done(folder: Path) -> None:
    for path in folder.glob(f"{_CONVERTING}*"):
        shutil.rmtree(path)


def _read(source: CheckpointDirectory) -> tuple[ConversionManifest, str]:
    """The manifest of a checkpoint's conversion, every file checked.

    Raises:
        EvidenceError: a file does not hold, or it was made from another checkpoint.
    """
    manifest, digest = ConversionManifest.read(source.conversion_file)
    if manifest.source != source.digest:
        raise EvidenceError(
            f"{source.conversion}: made from checkpoint {manifest.source}, {source.path} is {source.digest}",
            file=source.conversion_file,
            found=manifest.source,
            expected=source.digest,
        )
    check_files(source.conversion, manifest.files)
    return manifest, digest


def _check_convertible(source: CheckpointDirectory) -> None:
    """Looks for what DeepSpeed's converter needs to know.

    Raises:
        UserError: it was saved without.
    """
    path = source.path / STATE_TAG / "mp_rank_00_model_states.pt"
    if not open_state(path).get("universal_checkpoint_info"):
        raise UserError(
            f"{source.path}: saved before checkpoints could be converted ({path.name} does not say how parameters are "
            f"cut); go on in its layout {source.manifest.layout} (TP x PP x DP) to the next checkpoint, or start over"
        )


def _make(source: CheckpointDirectory, final: Path) -> tuple[ConversionManifest, str]:
    """Converts a checkpoint; the conversion's manifest and its digest.

    Raises:
        EvidenceError: the checkpoint's parts do not fit together, or a file holds more than state.
        TrainingError: the conversion could not be written.
    """
    manifest = source.manifest
    temporary = final.with_name(f"{_CONVERTING}{final.name}")
    (temporary / STATE_TAG).mkdir(parents=True)
    made: list[ConversionManifest] = []

    def describe(files: tuple[FileRecord, ...]) -> ConversionManifest:
        made.append(
            ConversionManifest(
                run=manifest.run,
                step=manifest.step,
                source=source.digest,
                layout=manifest.layout,
                converter=f"deepspeed {deepspeed.__version__}",
                created_at=time.time(),
                files=files,
            )
        )
        return made[0]

    chatter = io.StringIO()
    try:
        with _workers_die_with_us(), redirect_stdout(chatter), redirect_stderr(chatter):
            write_universal(source.path, temporary, _num_workers(source))
        digest = seal(temporary, final, describe)
    except EvidenceError:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    except AssertionError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise EvidenceError(
            f"{source.path}: cannot be converted: {error or 'its parts do not fit'}", file=source.path
        ) from error
    except (OSError, RuntimeError) as error:
        free = shutil.disk_usage(final.parent).free
        shutil.rmtree(temporary, ignore_errors=True)
        reason = str(error).partition("\n")[0]
        raise TrainingError(
            f"{source.path}: not converted: {reason} ({free:,} bytes were free in {final.parent}, a conversion takes "
            "about twice the checkpoint's size); nothing is left of it, the same command starts anew"
        ) from error
    return made[0], digest


def _num_workers(source: CheckpointDirectory) -> int:
    """Processes that this machine feeds: one a core, as many as fit into memory with a rank's optimizer state each."""
    largest = max(record.size for record in source.manifest.files)
    fitting = psutil.virtual_memory().available // (_COPIES * largest)
    return max(min(len(os.sched_getaffinity(0)), source.manifest.layout.world_size, fitting), 1)


_parent: int | None = None


def _follow_parent() -> None:
    if _parent is not None:
        die_with_parent(_parent)


os.register_at_fork(after_in_child=_follow_parent)


@contextmanager
def _workers_die_with_us() -> Iterator[None]:
    """The processes of DeepSpeed's pool would wait for ever for a parent that was killed."""
    global _parent  # noqa: PLW0603 - what is run in a forked child cannot be handed anything else
    _parent = os.getpid()
    try:
        yield
    finally:
        _parent = None


@contextmanager
def _alone(folder: Path, *, wait: bool) -> Iterator[bool]:
    """Keeps other conversions of the run away; a lock of this process alone, which its workers do not inherit."""
    with (folder / ".lock").open("w", encoding="utf-8") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True
