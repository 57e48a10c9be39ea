"""Wraps a task of lm-eval: gives it records in memory, and records which examples of each prompt the model reads."""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from datasets import Dataset
from lm_eval.api.instance import Instance

from treering.errors import UserError

_CHOICE: Final = "multiple_choice"
_Mixed: Any = object
"""The class of the definition, which need not be lm-eval's `ConfigurableTask`."""


class Recorded(_Mixed):
    """A task of lm-eval over splits in memory; mixed into the class that its definition names.

    Attributes:
        splits: the records.
        places: gives the place of an item in the user's file, for errors.
        reads: whether the model reads a request's text from a place on.
        examples: by item, the labels of the examples that the model reads; empty where the class makes other prompts.
    """

    splits: ClassVar[Mapping[str, Dataset]]
    places: Callable[[int], str]
    reads: Callable[[Instance, int], bool]
    examples: dict[int, list[str]]

    def download(self, *_: Any, **__: Any) -> None:
        """Takes the records in memory."""
        self.dataset = self.splits
        self.examples = {}
        self._turns: list[tuple[int, str]] = []

    def fewshot_context(self, doc: Any, *arguments: Any, **options: Any) -> Any:
        """The prompt, as lm-eval makes it."""
        self._turns.clear()
        return super().fewshot_context(doc, *arguments, **options)

    def build_qa_turn(self, **parts: Any) -> Any:
        """A question with or without its answer; remembers its length and its label.

        Raises:
            UserError: the answer of an example is none of its choices.
        """
        answer, choices = parts.get("a"), parts.get("c")
        if isinstance(answer, int) and choices and not 0 <= answer < len(choices):
            raise UserError(f"evaluation.tasks: {self.config.task}: an example: {_no_answer(answer, choices)}")
        messages = super().build_qa_turn(**parts)
        self._turns.append((sum(len(message.to_text()) for message in messages), str(answer)))
        return messages

    def construct_requests(self, doc: Any, ctx: Any, **options: Any) -> Any:
        """The requests of an item, as lm-eval makes them.

        Raises:
            UserError: the item's answer is none of its choices.
        """
        number = options["metadata"][1]
        if self.OUTPUT_TYPE == _CHOICE:
            choices, right = self.doc_to_choice(doc), right_choice(self, doc)
            if not 0 <= right < len(choices):
                place = f"evaluation.tasks: {self.config.task}: {self.places(number)}"
                raise UserError(f"{place}: {_no_answer(right, choices)}")
        requests = super().construct_requests(doc, ctx, **options)
        shots = self.config.num_fewshot or 0
        if shots and len(self._turns) > shots:
            context = ctx[0] if isinstance(ctx, list) else ctx
            lengths = [length for length, _ in self._turns[: shots + 1]]
            begin = len(context) - sum(lengths)  # the description
            starts = [begin + sum(lengths[:example]) for example in range(shots)]
            each = requests if isinstance(requests, list) else [requests]
            first = bisect_left(starts, True, key=lambda start: all(self.reads(request, start) for request in each))
            self.examples[number] = [label for _, label in self._turns[first:shots]]
        return requests


def right_choice(task: Any, doc: Any) -> int:
    """The number of an item's right choice, or of the first of several; -1 if the answer is no choice."""
    right = task.doc_to_text(doc) if task.multiple_input else task.doc_to_target(doc)
    if isinstance(right, list):
        right = right[0]
    if isinstance(right, str):
        choices = task.doc_to_choice(doc)
        return choices.index(right) if right in choices else -1
    return int(right)


def _no_answer(found: int, choices: Sequence[str]) -> str:
    expected = f"a number from 0 to {len(choices) - 1}"
    return f"the answer is {found}, expected {expected}: a file without its answers cannot be scored"
