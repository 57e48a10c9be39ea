"""`treering contamination`: which evaluation examples a checkpoint had read."""

from pathlib import Path
from typing import Annotated

import typer

from treering.cli.exposures import print_unanswered
from treering.cli.gaps import exit_if_incomplete
from treering.cli.options import (
    JsonOption,
    LimitOption,
    NamedCheckpoint,
    project,
)
from treering.cli.output import console, print_json, print_table
from treering.progress import progress_bars


def contamination(
    checkpoint: NamedCheckpoint,
    tasks: Annotated[
        Path | None,
        typer.Option("--tasks", metavar="DIR", help="The folder of the task files (*.jsonl); default: the project's."),
    ] = None,
    limit: LimitOption = 20,
    json: JsonOption = False,
) -> None:
    """Show which evaluation examples a checkpoint had read, when, and its scores without them.

    The command needs `treering index`.

    Exit codes:
        3: evidence is missing for a part of the answer

    Examples:
        treering contamination 0123
    """
    from treering.audit.documents.contamination import find_contamination
    from treering.runlog.find import named_checkpoint

    here = project()
    with progress_bars() as progress:
        found = find_contamination(named_checkpoint(here.runs, checkpoint), here, tasks, progress)
    if json:
        print_json(found.to_json())
        exit_if_incomplete(found.gaps)
        return
    console.print(f"run {found.run}, step {found.step:,}", "")
    print_table(
        ("task", "examples", "with an n-gram", "in corpora", "seen"),
        [
            [each.task, f"{each.examples:,}", f"{each.checkable:,}", f"{each.in_corpora:,}", f"{each.seen:,}"]
            for each in found.tasks
        ],
        numbers=("examples", "with an n-gram", "in corpora", "seen"),
    )
    rows = [
        [each.task, score.shots, score.metric, _mean(score.clean, score.num_clean), _mean(score.seen, score.num_seen)]
        for each in found.tasks
        for score in each.scores
    ]
    if rows:
        console.print()
        print_table(("task", "shots", "metric", "clean", "seen"), rows, numbers=("shots", "clean", "seen"))
    if found.examples:
        console.print()
        print_table(
            ("example", "n-grams", "exposures", "steps", "documents"),
            [
                [
                    f"{each.task}:{each.id}",
                    f"{each.ngrams:,}",
                    f"{each.exposures:,}",
                    f"{each.first_step:,} to {each.last_step:,}" if each.seen else "not read",
                    ", ".join(each.documents),
                ]
                for each in found.examples[:limit]
            ],
            numbers=("n-grams", "exposures"),
        )
        if len(found.examples) > limit:
            console.print(f"{len(found.examples) - limit:,} more examples; --limit shows more of them")
    print_unanswered(found.unanswered)
    exit_if_incomplete(found.gaps)


def _mean(value: float | None, count: int) -> str:
    return f"none of {count}" if value is None else f"{value:.3f} of {count:,}"
