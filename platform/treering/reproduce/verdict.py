"""The verdict over two trainings in one sentence: identical, or what differs, with the cause."""

from dataclasses import dataclass
from typing import Any

from treering.reproduce.causes import CauseSearch
from treering.reproduce.difference import RunDifference, State
from treering.reproduce.sentence import difference_sentence


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a second training is the first one again.

    Attributes:
        state: `identical`, or what differs first: `data`, `numbers`, `weights`; `unknown` without evidence.
        steps: steps that were compared.
        first_step: the first step that differs, None where none does.
        difference: what differs, in a sentence.
        search: the search for the cause; None where nothing differs, or nobody searched.
    """

    state: State
    steps: int
    first_step: int | None
    difference: str
    search: CauseSearch | None

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        return self.difference if self.search is None else f"{self.difference} {self.search.sentence}"

    def to_json(self) -> dict[str, Any]:
        """The verdict as JSON values."""
        return {
            "state": self.state,
            "sentence": self.sentence,
            "steps": self.steps,
            "first_step": self.first_step,
            "causes": None if self.search is None else self.search.to_json(),
        }


def judge(difference: RunDifference, search: CauseSearch | None = None) -> Verdict:
    """The verdict over two runs.

    Args:
        difference: of the two.
        search: why they differ, where that was searched.
    """
    compared = 0 if difference.numbers is None else difference.numbers.compared_steps
    return Verdict(difference.state, compared, difference.first_step, difference_sentence(difference), search)
