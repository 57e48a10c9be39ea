"""Keeps the finished parts of an evaluation until its record is written, so that a killed one goes on where it was.

A part is one task with all its shots, or the held-out losses, of one checkpoint. Parts are below
`.treering/evaluate/<run>/<checkpoint>/<key>/`; the key is the digest of all that the scores depend on.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from treering.config.canonical import digest_bytes, digest_json, short
from treering.files import read_bytes, write_durably
from treering.runlog.directory import CheckpointDirectory
from treering_trainer.evaluate.harness import TaskScores
from treering_trainer.evaluate.inputs import Inputs


class PartStore:
    """The finished parts of one checkpoint's evaluation.

    Args:
        folder: the run's folder of unfinished evaluations.
        checkpoint: what is scored.
        inputs: what it is scored on.
        device: what computes.
    """

    def __init__(self, folder: Path, checkpoint: CheckpointDirectory, inputs: Inputs, device: str) -> None:
        self._folder = folder / checkpoint.path.name
        key = {
            "checkpoint": checkpoint.digest,
            "harness": inputs.harness,
            "settings": inputs.settings.model_dump(mode="json"),
            "tasks": inputs.task_digests,
            "corpora": inputs.corpus_digests,
            "device": device,
        }
        self._key = short(digest_json(key))

    def read(self, name: str) -> Any:
        """The result of a part; None where it is missing or damaged."""
        try:
            document = json.loads(read_bytes(self._file(name)))
        except (OSError, ValueError):
            return None
        if not isinstance(document, dict) or document.get("part") != name:
            return None
        found: Mapping[str, Any] = document["result"]
        return {each: TaskScores(**value) if isinstance(value, dict) else value for each, value in found.items()}

    def write(self, name: str, result: Mapping[str, Any]) -> None:
        """Keeps the result of a part: held-out losses by corpus, or scores by number of shots."""
        plain = {each: asdict(value) if is_dataclass(value) else value for each, value in result.items()}  # type: ignore[arg-type]
        path = self._file(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(path, json.dumps({"part": name, "result": plain}) + "\n")

    def drop(self) -> None:
        """Removes all parts of the checkpoint: its record is written."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _file(self, name: str) -> Path:
        return self._folder / self._key / f"{short(digest_bytes(name.encode()))}.json"
