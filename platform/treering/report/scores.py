"""Scores as text: one row a task and number of shots, one column a metric, each with its standard error."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from treering.runlog.records import Evaluation

_NO_METRICS = ("items", "examples", "truncated")


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """Scores of one task with one number of shots.

    Attributes:
        task, shots: which.
        examples: examples that the prompt really held, on average.
        items: items scored.
        metrics: by name.
        stderrs: standard errors by the metric's name, where the harness gives one.
    """

    task: str
    shots: int
    examples: float
    items: int
    metrics: dict[str, float]
    stderrs: dict[str, float]

    def text(self, metric: str) -> str:
        """Value and standard error, empty for a metric that the task does not have."""
        if metric not in self.metrics:
            return ""
        value = abs(self.metrics[metric])
        digits = 0 if value >= 1000 else 1 if value >= 10 else 3
        error = f" ± {self.stderrs[metric]:,.{digits}f}" if metric in self.stderrs else ""
        return f"{self.metrics[metric]:,.{digits}f}{error}"


def score_rows(record: Evaluation) -> Iterator[ScoreRow]:
    """Every score of a checkpoint, by task and shots."""
    for task, by_shots in sorted(record.scores.items()):
        for shots, numbers in sorted(by_shots.items(), key=lambda entry: int(entry[0])):
            names = sorted(name for name in numbers if name not in _NO_METRICS and not name.endswith("_stderr"))
            yield ScoreRow(
                task=task,
                shots=int(shots),
                examples=numbers.get("examples", 0.0),
                items=int(numbers.get("items", 0)),
                metrics={name: numbers[name] for name in names},
                stderrs={name: numbers[f"{name}_stderr"] for name in names if f"{name}_stderr" in numbers},
            )


def metric_names(rows: Sequence[ScoreRow]) -> list[str]:
    """All metrics of the rows."""
    return sorted({name for row in rows for name in row.metrics})
