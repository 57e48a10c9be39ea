"""What limits an answer: said beside the answer, with what helps."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Doubt:
    """One limit of an answer.

    Attributes:
        level: `missing`: not measured at all; `limited`: measured, on less than what was asked for; `imprecise`:
            measured with an error that hides all but large effects.
        text: what limits it.
        remedy: what helps.
    """

    level: Literal["missing", "limited", "imprecise"]
    text: str
    remedy: str

    @property
    def line(self) -> str:
        """The doubt in a line."""
        return f"{self.level}: {self.text}; {self.remedy}"
