"""Keeps the finished parts of an evaluation until its record is written, so that a killed one goes on where it was.

A part is one task with all its shots, or the held-out losses, of one checkpoint. Parts are below
`.treering/evaluate/<run>/<checkpoint>/<key>/`; the key is the digest of all that the scores depend on.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from treering.config.canonical import digest_bytes, digest_json, short
from treering.files import read_bytes, write_durably
from treering.runlog.directory import CheckpointDirectory
from treering.runlog.records import Evaluation
from treering_trainer.evaluate.harness import TaskScores
from treering_trainer.evaluate.inputs import Inputs
from treering_trainer.evaluate.stock import StockTask

PERPLEXITY: Final = "perplexity"
"""The part that holds the held-out losses."""


class PartStore:
    """The finished parts of one checkpoint's evaluation.

    Args:
        folder: the run's folder of unfinished evaluations.
        checkpoint: what is scored.
        inputs: what it is scored on.
        device: what computes.
        earlier: parts of an earlier record, see `unchanged_parts`.
    """

    def __init__(
        self,
        folder: Path,
        checkpoint: CheckpointDirectory,
        inputs: Inputs,
        device: str,
        earlier: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._earlier = earlier
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
        """The result of a part, of an earlier record if it has none; None where it is missing or damaged."""
        try:
            document = json.loads(read_bytes(self._file(name)))
        except (OSError, ValueError):
            return self._earlier.get(name)
        if not isinstance(document, dict) or document.get("part") != name:
            return self._earlier.get(name)
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


def unchanged_parts(record: Evaluation, checkpoint: CheckpointDirectory, inputs: Inputs, device: str) -> dict[str, Any]:
    """The parts of a checkpoint's record that would be scored the same again, where another part's inputs changed."""
    settings = record.settings
    same = (record.checkpoint, record.harness, record.device) == (checkpoint.digest, inputs.harness, device)
    if not same or settings is None or record.items is None:
        return {}
    found: dict[str, Any] = {}
    samples = settings.perplexity_samples == inputs.settings.perplexity_samples
    if samples and record.corpora == inputs.corpus_digests:
        found[PERPLEXITY] = {corpus: numbers["loss"] for corpus, numbers in record.perplexity.items()}
    for task in inputs.tasks:
        shots = {str(each) for each in inputs.shots(task)}
        limit = isinstance(task, StockTask) or settings.max_items == inputs.settings.max_items
        scores = record.scores.get(task.name, {})
        if limit and record.tasks.get(task.name) == task.digest and scores.keys() == shots:
            prompts = record.definitions[task.name].prompts
            fields = record.fields.get(task.name, {})
            found[task.name] = {
                each: TaskScores(numbers, record.items[task.name][each], fields.get(each, {}), prompts[each])
                for each, numbers in scores.items()
            }
    return found
