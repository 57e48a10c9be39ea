"""What scores depend on beside the checkpoint: harness, version of each task, and digest of its prompts."""

from collections.abc import Sequence

import pandas as pd

from treering.runlog.records import Evaluation
from treering_dashboard.panels.tables import table
from treering_dashboard.panels.text import NOTHING


def definition_table(evaluations: Sequence[tuple[str, Evaluation]]) -> None:
    """Draws one row for each task and number of shots of some evaluations.

    Args:
        evaluations: each with the name of its run; empty: the page has one run.
    """
    frame = definitions_frame(evaluations)
    if frame.empty:
        return
    widths = {"Prompts": 150, "Items": 150}
    named = any(name for name, _ in evaluations)
    table(frame if named else frame.drop(columns="Run"), "Versions of the tasks and digests", widths=widths)


def definitions_frame(evaluations: Sequence[tuple[str, Evaluation]]) -> pd.DataFrame:
    """These rows; older records have neither versions nor prompts."""
    return pd.DataFrame(
        [
            {
                "Run": name,
                "Task": task,
                "Shots": shots,
                "Version": _version(evaluation, task),
                "Prompts": evaluation.prompts_of(task, int(shots)) or NOTHING,
                "Items": evaluation.tasks.get(task, NOTHING),
                "Harness": evaluation.harness,
            }
            for name, evaluation in evaluations
            for task, by_shots in evaluation.scores.items()
            for shots in by_shots
        ]
    )


def _version(evaluation: Evaluation, task: str) -> str:
    definition = evaluation.definitions.get(task)
    return (definition and definition.version) or NOTHING
