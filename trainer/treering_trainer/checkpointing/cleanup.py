"""Removes checkpoints that no rule keeps and what interrupted saves left, and sets checkpoints aside.

A checkpoint is renamed before its files are removed, so a kill never leaves half a checkpoint under its name.
"""

import shutil
from pathlib import Path

from treering.config.operation import CheckpointConfig
from treering.errors import EvidenceError
from treering.files import rename_durably, sync_directory
from treering.foreign import say
from treering.runlog.chronicle import record_set_aside
from treering.runlog.directory import EVALUATIONS, CheckpointDirectory, RunDirectory
from treering.runlog.removal import SAVING_PREFIX, delete_renamed, rename_for_removal
from treering.runlog.retention import kept_by


def remove_unfinished(run: RunDirectory) -> list[str]:
    """Removes what an interrupted save or removal left; returns the names of the unfinished saves."""
    delete_renamed(run)
    found = sorted(run.checkpoints_folder.glob(f"{SAVING_PREFIX}*"))
    for path in found:
        shutil.rmtree(path)
    return [path.name.removeprefix(SAVING_PREFIX) for path in found]


def remove_old(run: RunDirectory, config: CheckpointConfig) -> None:
    """Removes checkpoints that no rule keeps; called when a new one is complete, by the process that has the lock.

    An error of the file system does not end the training: it is printed, and the next call or start tries again.
    """
    checkpoints = run.checkpoints()
    rules = kept_by({each.step: _validation_loss(each) for each in checkpoints}, config)
    try:
        for each in checkpoints:
            if not rules[each.step]:
                rename_for_removal(run, each, _reason(config))
        delete_renamed(run)
    except (OSError, EvidenceError) as error:
        say(f"an old checkpoint could not be removed: {error}")


def _reason(config: CheckpointConfig) -> str:
    rules = (("keep_last", config.keep_last), ("keep_every", config.keep_every), ("keep_best", config.keep_best))
    return "no rule keeps it: " + ", ".join(f"{name} {value}" for name, value in rules if value is not None)


def _validation_loss(checkpoint: CheckpointDirectory) -> float | None:
    try:
        return checkpoint.manifest.validation_loss
    except EvidenceError:  # a damaged manifest
        return None


def set_aside(run: RunDirectory, checkpoint: CheckpointDirectory, attempt: int) -> Path:
    """Moves a checkpoint that a new attempt will write again to `superseded-NNNN/`, with its scores.

    There it stays complete and can be audited; its name is free for the checkpoint of the new path.

    Args:
        run: the run's directory.
        checkpoint: the checkpoint.
        attempt: number of the attempt that wrote it, 0 if its manifest cannot be read.

    Returns:
        Its new folder.
    """
    folder, again = run.path / f"superseded-{attempt:04d}", 1
    while (folder / checkpoint.path.name).exists():  # attempt 0, of an unreadable manifest, may come twice
        again += 1
        folder = run.path / f"superseded-{attempt:04d}-{again}"
    folder.mkdir(exist_ok=True)
    target = folder / checkpoint.path.name
    record_set_aside(run, checkpoint, folder)
    rename_durably(checkpoint.path, target)
    shutil.rmtree(checkpoint.conversion, ignore_errors=True)  # no attempt continues from it
    name = f"{checkpoint.path.name}.json"
    for scores in (*run.evaluations_folder.glob(name), *run.evaluations_folder.glob(f"*/{name}")):
        aside = folder / EVALUATIONS / scores.relative_to(run.evaluations_folder)
        aside.parent.mkdir(parents=True, exist_ok=True)
        rename_durably(scores, aside)
    sync_directory(folder)
    return target
