"""Removes checkpoints that no rule keeps and what interrupted saves left, and sets checkpoints aside.

A checkpoint loses its name before its files, so that a kill leaves none that is half removed under its name.
"""

import shutil
from pathlib import Path

from treering.config.operation import CheckpointConfig
from treering.errors import EvidenceError
from treering.files import rename_durably, sync_directory
from treering.foreign import say
from treering.runlog.chronicle import record_removed, record_set_aside
from treering.runlog.directory import EVALUATIONS, CheckpointDirectory, RunDirectory
from treering.runlog.retention import kept_by
from treering_trainer.checkpointing.checkpoint import SAVING_PREFIX

_REMOVING_PREFIX = ".removing-"


def remove_unfinished(run: RunDirectory) -> list[str]:
    """Removes what an interrupted save or removal left behind; returns the names of the unfinished saves."""
    _remove_nameless(run)
    found = sorted(run.checkpoints_folder.glob(f"{SAVING_PREFIX}*"))
    for path in found:
        shutil.rmtree(path)
    return [path.name.removeprefix(SAVING_PREFIX) for path in found]


def _take_name(path: Path) -> None:
    rename_durably(path, path.with_name(f"{_REMOVING_PREFIX}{path.name}"))


def _remove_nameless(run: RunDirectory) -> None:
    """Removes the files of checkpoints and conversions that have lost their names."""
    for folder in (run.checkpoints_folder, run.conversions_folder):
        for path in folder.glob(f"{_REMOVING_PREFIX}*"):
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
