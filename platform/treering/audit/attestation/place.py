"""Where attestations are: beside their checkpoint, never inside it, since a manifest lists every file of its folder."""

from pathlib import Path

from treering.errors import NotFoundError
from treering.runlog.directory import CheckpointDirectory
from treering.runlog.find import find_checkpoint

SUFFIX = ".attestation.json"


def attestation_file(checkpoint: CheckpointDirectory) -> Path:
    """Where the attestation of a checkpoint is written.

    Beside the checkpoint's folder; of a published checkpoint beside the published folder, which is a DVC out by itself.
    """
    beside, published = _places(checkpoint)
    return beside if checkpoint.run.path.resolve().name == checkpoint.run.id else published


def find_attestation(checkpoint: CheckpointDirectory) -> Path | None:
    """The attestation of a checkpoint, wherever `attestation_file` has ever put it; None if there is none."""
    return next((path for path in _places(checkpoint) if path.exists()), None)


def _places(checkpoint: CheckpointDirectory) -> tuple[Path, Path]:
    folder, run = checkpoint.path.resolve(), checkpoint.run.path.resolve()
    return folder.with_name(folder.name + SUFFIX), run.with_name(run.name + SUFFIX)


def attested_checkpoint(file: Path) -> CheckpointDirectory | None:
    """The checkpoint beside an attestation, None if it is missing."""
    if not file.name.endswith(SUFFIX):
        return None
    try:
        return find_checkpoint(file.with_name(file.name.removesuffix(SUFFIX)))
    except NotFoundError:
        return None
