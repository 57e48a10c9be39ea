"""Task files (JSON Lines of held-out documents) as tasks of lm-eval.

An item has one of two forms: a target that continues the context (`context`, `target`), or a choice between
continuations (`context`, `choices`, `gold`). `document` names the document that the item was cut from.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from datasets import Dataset
from lm_eval.api.samplers import ContextSampler
from lm_eval.api.task import ConfigurableTask

from treering.config.canonical import digest_file
from treering.errors import UserError
from treering.files import open_text
from treering.project import NO_TASKS

MIN_ITEMS = 2
"""A standard error needs at least so many items."""

_DELIMITER = "\n\n"
_BEHIND = "A"
_REMEDY = "`dvc repro -f curate` makes the tasks again"

Item = dict[str, Any]
TokenCount = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class TaskFile:
    """One task on disk.

    Attributes:
        name: the file's name without suffix.
        kind: `target`, to predict the continuation, or `choice`, to prefer the right continuation.
        items: the items in the order of the file.
        digest: of the file.
    """

    name: str
    kind: Literal["target", "choice"]
    items: tuple[Item, ...]
    digest: str

    def item_id(self, number: int) -> str:
        """The item's id, or its line if it has none."""
        return str(self.items[number].get("id", f"line {number + 1}"))


def read_tasks(directory: Path) -> list[TaskFile]:
    """All tasks of a folder, by name; none where no corpus has text.

    Raises:
        UserError: the folder has no task, or a file is broken; the text names file, line and field.
    """
    files = sorted(directory.glob("*.jsonl"))
    if not files and not (directory / NO_TASKS).is_file():
        raise UserError(f"{directory}: no task (*.jsonl), expected at least one; `dvc repro curate` makes them")
    return [_read_task(path) for path in files]


def _read_task(path: Path) -> TaskFile:
    """One task file.

    Raises:
        UserError: the file is broken.
    """
    try:
        with open_text(path) as file:
            items = tuple(_parse_item(line, f"{path} line {number}") for number, line in enumerate(file, 1))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not readable ({error}), expected a file of UTF-8 text; {_REMEDY}") from None
    if len(items) < MIN_ITEMS:
        raise UserError(f"{path}: {len(items)} items, expected at least {MIN_ITEMS}; {_REMEDY}")
    kinds = {_kind(item) for item in items}
    if len(kinds) != 1:
        raise UserError(f"{path}: some items have a target and some have choices, expected one form; {_REMEDY}")
    return TaskFile(name=path.stem, kind=kinds.pop(), items=items, digest=digest_file(path))


def _kind(item: Item) -> Literal["target", "choice"]:
    return "choice" if "choices" in item else "target"


def _parse_item(line: str, where: str) -> Item:
    """One item from its line.

    Raises:
        UserError: the line is not JSON, or a field is missing or wrong.
    """
    try:
        item = json.loads(line)
    except ValueError as error:
        raise UserError(f"{where}: not JSON ({error}), expected one item a line; {_REMEDY}") from error
    if not isinstance(item, dict):
        raise UserError(f"{where}: a {type(item).__name__}, expected an object; {_REMEDY}")
    for field in ("context", "document"):
        _require(isinstance(item.get(field), str) and item[field].strip(), where, field, item, "a text")
    if "choices" not in item:
        target = item.get("target")
        _require(isinstance(target, str) and target.strip(), where, "target", item, "a text, or choices and gold")
        return item
    choices, gold = item["choices"], item.get("gold")
    right = isinstance(choices, list) and len(choices) > 1 and all(isinstance(c, str) and c.strip() for c in choices)
    _require(right, where, "choices", item, "a list of two or more texts")
    right = isinstance(gold, int) and not isinstance(gold, bool) and 0 <= gold < len(choices)
    _require(right, where, "gold", item, f"a number from 0 to {len(choices) - 1}")
    return item


def _require(holds: object, where: str, field: str, item: Item, expected: str) -> None:
    """Refuses an item with a wrong field.

    Raises:
        UserError: `holds` is false.
    """
    if not holds:
        raise UserError(f"{where}: {field}: found {item.get(field)!r:.80}, expected {expected}; {_REMEDY}")


class FittingSampler(ContextSampler):
    """Chooses few-shot examples that fit into the sequence, whole.

    A digest orders the examples of an item, so an item always gets the same examples, and the examples of fewer shots
    are among those of more shots. Items of the same document are never examples for each other.

    Args:
        items: where examples come from.
        count: counts the tokens of a text.
        render: an example as text of the prompt, with the delimiter after it.
        scored: the texts that are scored for an item, from the start of its context.
        room: tokens of a sequence.
    """

    def __init__(
        self,
        items: Iterable[Item],
        *,
        count: TokenCount,
        render: Callable[[Item], str],
        scored: Callable[[Item], list[str]],
        room: int,
    ) -> None:
        super().__init__(list(items))
        self.taken: list[int] = []
        self._count = count
        self._scored = scored
        self._room = room
        self._keys = [json.dumps(item, sort_keys=True) for item in self.df]
        # Trailing white space is tokenized differently before more text, so an example is counted with text after it.
        self._sizes = [count(render(item) + _BEHIND) - count(_BEHIND) for item in self.df]

    def sample(self, n: int, eval_doc: Item | None = None, df: Any = None, **_: Any) -> list[Item]:  # noqa: ARG002 - lm-eval's signature
        """The examples of an item; adds their number to `taken`.

        Raises:
            ValueError: no item is given.
        """
        if eval_doc is None:
            raise ValueError("eval_doc: found None, expected the item to choose examples for")
        own = json.dumps(eval_doc, sort_keys=True)
        others = [i for i, item in enumerate(self.df) if item["document"] != eval_doc["document"]]
        order = sorted(others, key=lambda i: sha256(f"{own}\n{self._keys[i]}".encode()).digest())
        room = self._room - max(self._count(text) for text in self._scored(eval_doc))
        taken: list[Item] = []
        for i in order:
            if len(taken) == n:
                break
            if self._sizes[i] <= room:
                room -= self._sizes[i]
                taken.append(self.df[i])
        self.taken.append(len(taken))
        return taken


def build_task(file: TaskFile, shots: int, count: TokenCount, room: int) -> ConfigurableTask:
    """A task of lm-eval over a task file.

    Args:
        file: the items.
        shots: examples in the prompt, at most.
        count: counts the tokens of a text.
        room: tokens of a sequence.
    """
    config: dict[str, Any] = {
        "task": file.name,
        "custom_dataset": lambda **_: {"test": Dataset.from_list(list(file.items))},
        "test_split": "test",
        "num_fewshot": shots,
        "fewshot_config": {"split": "test"},
        "fewshot_delimiter": _DELIMITER,
        "doc_to_text": _context,
    }
    if file.kind == "target":
        config |= {
            "output_type": "loglikelihood",
            "target_delimiter": "",
            "doc_to_target": _target,
            "metric_list": [_metric("acc"), _metric("perplexity", better="lower")],
        }
    else:
        config |= {
            "output_type": "multiple_choice",
            "target_delimiter": " ",
            "doc_to_choice": _choices,
            "doc_to_target": _gold,
            "metric_list": [_metric("acc"), _metric("acc_norm")],
        }
    task = ConfigurableTask(config=config)
    # lm-eval makes samplers from a class and the items only; this sampler also needs lengths.
    task.sampler = FittingSampler(
        task.fewshot_docs(), count=count, render=lambda item: _solved(item) + _DELIMITER, scored=_scored, room=room
    )
    return task


def _metric(name: str, better: Literal["higher", "lower"] = "higher") -> dict[str, Any]:
    aggregation = "perplexity" if name == "perplexity" else "mean"
    return {"metric": name, "aggregation": aggregation, "higher_is_better": better == "higher"}


def _context(item: Item) -> str:
    return str(item["context"])


def _target(item: Item) -> str:
    return f" {item['target'].strip()}"


def _choices(item: Item) -> list[str]:
    return list(item["choices"])


def _gold(item: Item) -> int:
    return int(item["gold"])


def _continuations(item: Item) -> list[str]:
    return [f" {choice}" for choice in item["choices"]] if "choices" in item else [_target(item)]


def _solved(item: Item) -> str:
    return _context(item) + _continuations(item)[item.get("gold", 0)]


def _scored(item: Item) -> list[str]:
    return [_context(item) + continuation for continuation in _continuations(item)]
