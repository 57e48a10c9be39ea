"""A run cut to one checkpoint: what is published, and what a replay starts from."""

import shutil
from pathlib import Path

from treering.config.resolve import ANCESTORS
from treering.runlog.directory import CheckpointDirectory, RunDirectory


def cut_run(run: RunDirectory, checkpoint: CheckpointDirectory, target: Path) -> None:
    """Copies a checkpoint with the rings of its ancestry into a new folder, which is a run directory by itself.

    Copies, not links: DVC makes files of its outs read-only or moves them to its cache.

    Raises:
        EvidenceError: a record or a ring on the way does not hold.
    """
    target.mkdir(parents=True)
    shutil.copy2(run.path / "resolved.json", target / "resolved.json")
    shutil.copytree(checkpoint.path, target / "checkpoints" / checkpoint.path.name)
    for segment in run.path_to(checkpoint):
        own = segment.run.path == run.path
        folder = target if own else target / ANCESTORS / segment.run.id
        attempt = folder / "attempts" / segment.attempt.path.name
        attempt.mkdir(parents=True)
        if not own:
            shutil.copy2(segment.run.path / "resolved.json", folder / "resolved.json")
        shutil.copy2(segment.attempt.path / "header.json", attempt / "header.json")
        with (attempt / "rings.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(f"{ring.to_line()}\n" for ring in segment.rings())
