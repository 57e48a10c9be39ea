"""A run's checkpoints, as `treering checkpoint list` prints them, from the run's folder alone."""

from typing import Any

from treering.errors import EvidenceError
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering.runlog.records import CheckpointManifest, ConversionManifest
from treering.runlog.retention import kept_by


def list_checkpoints(run: RunDirectory) -> list[dict[str, Any]]:
    """The checkpoints by step, each with why it stays; files are not read, only manifests.

    Returns:
        Of each: `step`, `path`, `digest`, `attempt`, `layout`, `bytes`, `created_at` (Unix seconds), `validation_loss`,
        `converted` (digest of its conversion), `kept_by` (rules of the run's newest attempt) and `problem`. What an
        unreadable manifest would say is None.
    """
    found = [(each, *_read(each)) for each in run.checkpoints()]
    losses = {each.step: manifest.validation_loss if manifest else None for each, manifest, _error in found}
    rules = kept_by(losses, run.resolved.attempt.checkpoint) if found else {}
    return [
        {
            "step": each.step,
            "path": str(each.path),
            "digest": each.digest if manifest else None,
            "attempt": manifest.attempt if manifest else None,
            "layout": str(manifest.layout) if manifest else None,
            "bytes": sum(file.size for file in manifest.files) if manifest else None,
            "created_at": manifest.created_at if manifest else None,
            "validation_loss": losses[each.step],
            "converted": _conversion(each) if manifest else None,
            "kept_by": list(rules[each.step]),
            "problem": "" if error is None else str(error),
        }
        for each, manifest, error in found
    ]


def _read(checkpoint: CheckpointDirectory) -> tuple[CheckpointManifest | None, EvidenceError | None]:
    try:
        return checkpoint.manifest, None
    except EvidenceError as error:
        return None, error


def _conversion(checkpoint: CheckpointDirectory) -> str | None:
    """Digest of the checkpoint's conversion, None where there is none that was made from it."""
    try:
        manifest, digest = ConversionManifest.read(checkpoint.conversion_file)
    except EvidenceError:
        return None
    return digest if manifest.source == checkpoint.digest else None
