"""How checkpoints are removed, by the trainer's rules or by `treering gc`: recorded, renamed, and only then deleted.

So a kill never leaves half a checkpoint under its name, and no audit takes a removed checkpoint for a lost one.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from treering.files import rename_durably
from treering.runlog.chronicle import record_removed
from treering.runlog.directory import CheckpointDirectory, RunDirectory

SAVING_PREFIX: Final = ".saving-"
"""Before the name of a checkpoint that is being written."""

CONVERTING_PREFIX: Final = ".converting-"
"""Before the name of a conversion that is being written."""

_REMOVING_PREFIX: Final = ".removing-"


def rename_for_removal(run: RunDirectory, checkpoint: CheckpointDirectory, reason: str) -> None:
    """Takes a checkpoint out of the run: it is recorded as removed, and loses its name with its conversion.

    Args:
        run: the checkpoint's run; the caller has its lock.
        checkpoint: of the run's path, or set aside.
        reason: for the journal.

    Raises:
        EvidenceError: the journal was changed.
        OSError: the checkpoint cannot be renamed.
    """
    record_removed(run, checkpoint, reason)
    _rename(checkpoint.path)
    if checkpoint.path.parent == run.checkpoints_folder and checkpoint.conversion.exists():
        _rename(checkpoint.conversion)


def renamed_for_removal(run: RunDirectory) -> Iterator[Path]:
    """Folders that lost their name and are not deleted yet."""
    for folder in (run.checkpoints_folder, run.conversions_folder, *run.path.glob("superseded-*")):
        yield from sorted(folder.glob(f"{_REMOVING_PREFIX}*"))


def delete_renamed(run: RunDirectory) -> None:
    """Deletes the folders that lost their name.

    Raises:
        OSError: one cannot be deleted.
    """
    for path in renamed_for_removal(run):
        shutil.rmtree(path)


def _rename(path: Path) -> None:
    rename_durably(path, path.with_name(f"{_REMOVING_PREFIX}{path.name}"))
