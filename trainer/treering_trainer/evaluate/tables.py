"""Writes the tables that DVC compares: scores of the final checkpoint, and scores over training.

The same run gives the same files.
"""

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from treering.files import write_durably
from treering.project import Project
from treering.runlog.records import Evaluation

_NO_METRICS = ("items", "examples", "truncated")


def write_tables(project: Project, run_id: str, records: Sequence[Evaluation]) -> None:
    """Writes `metrics/evaluate.json` (the last record) and `plots/evaluate.csv` (all records, one row a score).

    Args:
        project: whose metrics and plots.
        run_id: id of the run.
        records: by step, at least one.
    """
    project.metrics.mkdir(exist_ok=True)
    project.plots.mkdir(exist_ok=True)
    text = json.dumps(_metrics(run_id, records[-1]), indent=2) + "\n"
    write_durably(project.metrics / "evaluate.json", text)
    table = io.StringIO(newline="")
    writer = csv.writer(table)
    writer.writerow(("step", "tokens", *(columns := _columns(records[-1]))))
    for record in records:
        values = _values(record)
        writer.writerow((record.step, record.consumed_tokens, *(values.get(column, "") for column in columns)))
    write_durably(project.plots / "evaluate.csv", table.getvalue())


def _metrics(run_id: str, record: Evaluation) -> dict[str, Any]:
    return {
        "run": run_id,
        "step": record.step,
        "validation_loss": record.validation_loss,
        "unigram_entropy": record.unigram_entropy,
        "below_unigram_entropy": record.unigram_entropy - record.validation_loss,
        "perplexity": {corpus: numbers["perplexity"] for corpus, numbers in record.perplexity.items()},
        "tasks": {
            task: {
                f"{shots}-shot": {key: value for key, value in numbers.items() if key not in _NO_METRICS}
                for shots, numbers in by_shots.items()
            }
            for task, by_shots in record.scores.items()
        },
    }


def _values(record: Evaluation) -> dict[str, float]:
    values = {"validation_loss": record.validation_loss, "unigram_entropy": record.unigram_entropy}
    for task, by_shots in record.scores.items():
        for shots, numbers in by_shots.items():
            values |= {f"{task}_{shots}shot_{key}": value for key, value in numbers.items() if key not in _NO_METRICS}
    for corpus, numbers in record.perplexity.items():
        values[f"loss_{corpus}"] = numbers["loss"]
    return values


def _columns(record: Evaluation) -> list[str]:
    return list(_values(record))
