"""Scores as text: value, standard error, how many examples the prompt really held."""

from collections.abc import Iterator
from dataclasses import dataclass

from treering.runlog.records import Evaluation

_NO_METRICS = ("items", "examples", "truncated")


@dataclass(frozen=True, slots=True)
class ScoreLine:
    """One metric of one task with one number of shots.

    Attributes:
        task, shots, metric: which.
        value: the score.
        stderr: its standard error, None if the harness gives none.
        items: items scored.
        examples: examples in the prompt, on average.
    """

    task: str
    shots: int
    metric: str
    value: float
    stderr: float | None
    items: int
    examples: float

    @property
    def text(self) -> str:
        """Value and standard error."""
        digits = 3 if self.metric.startswith("acc") else 1
        error = "" if self.stderr is None else f" ± {self.stderr:,.{digits}f}"
        return f"{self.value:,.{digits}f}{error}"


def score_lines(record: Evaluation) -> Iterator[ScoreLine]:
    """Every score of a checkpoint, by task, shots and metric."""
    for task, by_shots in sorted(record.scores.items()):
        for shots, numbers in sorted(by_shots.items(), key=lambda entry: int(entry[0])):
            for metric, value in sorted(numbers.items()):
                if metric in _NO_METRICS or metric.endswith("_stderr"):
                    continue
                yield ScoreLine(
                    task=task,
                    shots=int(shots),
                    metric=metric,
                    value=value,
                    stderr=numbers.get(f"{metric}_stderr"),
                    items=int(numbers.get("items", 0)),
                    examples=numbers.get("examples", 0.0),
                )
