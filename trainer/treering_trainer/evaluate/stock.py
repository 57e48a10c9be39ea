"""A task of lm-eval over the user's files: prompts, few-shot sampler and metrics are lm-eval's, nothing is downloaded.

Reads the config's `evaluation.tasks`; `harness.run_task` scores what `StockTask.build` makes.
"""

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import torch
from datasets import Dataset
from jinja2 import UndefinedError
from lm_eval.api.instance import Instance
from lm_eval.api.task import ConfigurableTask
from lm_eval.defaults import DEFAULT_OTHER_SEED, DEFAULT_RANDOM_SEED

from treering.config.canonical import digest_json
from treering_trainer.evaluate.recorded import Recorded

REFUSED: Final = (KeyError, UndefinedError, ValueError, TypeError, IndexError, AttributeError, pa.ArrowException)
"""What templates and functions of a definition raise for a record that they cannot read."""


@dataclass(frozen=True, slots=True)
class StockTask:
    """One task of lm-eval with its data.

    Attributes:
        name: its name in lm-eval.
        config: its definition, without the splits that have no file.
        splits: the records by split.
        digests: digests of the user's files by split.
        scored: the user's file that is scored.
        lines: of each item that is scored; None where the definition does not keep the records' order.
        shots: numbers of examples.
        max_items: how many items are scored, None for all.
    """

    name: str
    config: Mapping[str, Any]
    splits: Mapping[str, Dataset]
    digests: Mapping[str, str]
    scored: Path
    lines: tuple[int, ...] | None
    shots: tuple[int, ...]
    max_items: int | None

    @property
    def version(self) -> str:
        """The version that the definition gives itself."""
        return str((self.config.get("metadata") or {}).get("version", ""))

    @property
    def digest(self) -> str:
        """Of the items: definition, files, and how many of them."""
        return digest_json(
            {"task": self.name, "version": self.version, "files": dict(self.digests), "max_items": self.max_items}
        )

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields of the records that are kept beside the items' scores."""
        return tuple((self.config.get("metadata") or {}).get("fields", ()))

    def item_id(self, number: int) -> str:
        """`line N`, after the item's line in the user's file; `item N` where that is not known."""
        return f"item {number + 1}" if self.lines is None else f"line {self.lines[number]}"

    def build(self, shots: int, reads: Callable[[Instance, int], bool]) -> Recorded:
        """The task as lm-eval makes it, its sampler seeded as by `lm_eval.simple_evaluate`.

        Args:
            shots: examples in the prompt.
            reads: whether the model reads a request's text from a place on.
        """
        task = make(self.config, self.splits)
        task.set_config(key="num_fewshot", value=shots)
        task.set_fewshot_seed(DEFAULT_OTHER_SEED)
        task.places = lambda number: f"{self.scored} {self.item_id(number)}"
        task.reads = reads
        return task


def make(config: Mapping[str, Any], splits: Mapping[str, Dataset]) -> Recorded:
    """A task over splits in memory; a definition may name a class of its own."""
    random.seed(DEFAULT_RANDOM_SEED)
    np.random.seed(DEFAULT_OTHER_SEED)
    torch.manual_seed(DEFAULT_OTHER_SEED)
    base = config.get("class", ConfigurableTask)
    # As lm-eval's factory does.
    options = {key: value for key, value in config.items() if key not in ("tag", "group", "task_list")}
    task: Recorded = type(base.__name__, (Recorded, base), {"splits": splits})(config=options)
    task.set_config(key="task", value=config["task"])
    return task


def told(error: Exception) -> str:
    """The field that a record lacks, or else the error."""
    if isinstance(error, KeyError) and error.args:
        return f"{error.args[0]}: missing, expected a value"
    if match := re.match(r"'(\w+)' is undefined", str(error)):
        return f"{match[1]}: missing, expected a value"
    return f"the task's definition cannot read it ({type(error).__name__}: {error})"
