"""Converts checkpoints so that another layout can load them.

DeepSpeed's files hold the parts of one layout. Its converter joins them into one tensor a parameter (the universal
form), and each rank of another layout takes its part. An attempt in another layout converts its checkpoint by itself;
`treering checkpoint convert` does so in advance.

    checkpoints/step-00000300/  →  universal/step-00000300/{manifest.json, state/zero/<parameter>/fp32.pt, …}

The manifest of a conversion names its source and the digest of every file. A conversion is checked before use, and made
anew if it does not fit.
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
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering.runlog.folders import CHECKPOINTS
from treering.runlog.records import AttemptLayout, ConversionManifest, FileRecord
from treering.runlog.removal import CONVERTING_PREFIX
from treering_trainer.checkpointing.checkpoint import check_files, seal
from treering_trainer.checkpointing.weights import open_state
from treering_trainer.core.engine import STATE_TAG
from treering_trainer.core.universal import write_universal
from treering_trainer.monitor.processes import die_with_parent

_COPIES = 3
"""A worker holds the parts of a tensor, the joined tensor, and the file that it reads the parts from."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """A checkpoint that any layout can load.

    Attributes:
        path: its folder.
        digest: of its manifest.
        manifest: what it was made from, and its files.
        made: whether this call made it; otherwise it was complete already.
        problem: what was wrong with the conversion that this call replaced, None where it replaced none.
    """

    path: Path
    digest: str
    manifest: ConversionManifest
    made: bool
    problem: EvidenceError | None

    @property
    def message(self) -> str:
        """What was done, for the user."""
        how = "converted" if self.made else "is converted already, every file holds"
        reason = f"; made again, since {self.problem}" if self.problem else ""
        return (
            f"the checkpoint of step {self.manifest.step:,} of layout {self.manifest.layout} (TP x PP x DP) {how}: "
            f"{self.path}{reason}"
        )


def is_needed(saved: AttemptLayout, wanted: AttemptLayout) -> bool:
    """Whether a checkpoint of one layout must be converted for another: where TP, PP or DP differ."""
    return str(saved) != str(wanted)


def convert(source: CheckpointDirectory) -> Conversion:
    """Converts a checkpoint, or returns its conversion if that is complete.

    A conversion appears whole: written under a temporary name, synced, digested, renamed. One process of a run converts
    at a time; others wait for it.

    Args:
        source: the checkpoint; the caller has verified it.

    Raises:
        UserError: the checkpoint was set aside, or was saved before checkpoints could be converted.
        EvidenceError: the checkpoint's parts do not fit together, or a file holds more than state.
        TrainingError: the conversion could not be written.
    """
    final = source.conversion
    if source.path.parent.name != CHECKPOINTS:
        raise UserError(
            f"{source.path}: was set aside and is not used any more; convert one in {source.run.checkpoints_folder}"
        )
    _check_convertible(source)
    final.parent.mkdir(exist_ok=True)
    with _locked(final.parent, wait=True):
        problem: EvidenceError | None = None
        _remove_partial(final.parent)
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
    """Removes what an interrupted conversion left, unless another process converts at this moment."""
    folder = run.conversions_folder
    if folder.exists():
        with _locked(folder, wait=False) as free:
            if free:
                _remove_partial(folder)


def _remove_partial(folder: Path) -> None:
    for path in folder.glob(f"{CONVERTING_PREFIX}*"):
        shutil.rmtree(path)


def _read(source: CheckpointDirectory) -> tuple[ConversionManifest, str]:
    """The manifest of a checkpoint's conversion, every file checked.

    Raises:
        EvidenceError: a file is missing or changed, or the conversion was made from another checkpoint.
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
    """Checks that a checkpoint has what DeepSpeed's converter needs: how each parameter is cut.

    Raises:
        UserError: the checkpoint was saved without it.
    """
    path = source.path / STATE_TAG / "mp_rank_00_model_states.pt"
    if not open_state(path).get("universal_checkpoint_info"):
        raise UserError(
            f"{source.path}: saved before checkpoints could be converted ({path.name} lacks how parameters are cut); "
            f"continue in its layout {source.manifest.layout} (TP x PP x DP) to the next checkpoint, or start over"
        )


def _make(source: CheckpointDirectory, final: Path) -> tuple[ConversionManifest, str]:
    """Converts a checkpoint; the conversion's manifest and its digest.

    Raises:
        EvidenceError: the checkpoint's parts do not fit together, or a file holds more than state.
        TrainingError: the conversion could not be written.
    """
    manifest = source.manifest
    temporary = final.with_name(f"{CONVERTING_PREFIX}{final.name}")
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
            "about twice the checkpoint's size); nothing was left, the same command starts again"
        ) from error
    return made[0], digest


def _num_workers(source: CheckpointDirectory) -> int:
    """Worker processes: one a core, at most as many as fit into memory with a rank's optimizer state each."""
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
    """Makes the processes of DeepSpeed's pool end with this one; they would wait for ever for a killed parent."""
    global _parent  # noqa: PLW0603 - a function that runs after a fork takes no argument
    _parent = os.getpid()
    try:
        yield
    finally:
        _parent = None


@contextmanager
def _locked(folder: Path, *, wait: bool) -> Iterator[bool]:
    """Locks a run's conversions; yields whether the lock was free. Forked workers do not inherit the lock."""
    with (folder / ".lock").open("w", encoding="utf-8") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True
