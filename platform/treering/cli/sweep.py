"""How `treering train` and `treering launch` show the plan of a sweep."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treering.cli.options import project
from treering.cli.output import console, print_json, print_table

if TYPE_CHECKING:
    from treering.launch.sweep import SweepPlan

SweepOption = Annotated[
    Path | None,
    typer.Option("--sweep", metavar="SWEEP", help="Train a run for each point of the grid in this YAML file."),
]


def print_plan(
    sweep: Path, overrides: list[str] | None, runs: Path | None, *, json: bool, dry_run: bool
) -> "SweepPlan":
    """Plans a sweep and prints the plan; with `json` only a dry run prints it, since a document is the only output."""
    from treering.launch.sweep import plan_sweep

    plan = plan_sweep(sweep, project(), overrides or (), runs)
    rows = [run.to_json() for run in plan.runs]
    if json:
        if dry_run:
            print_json({"experiment": str(plan.experiment), "runs": rows})
        return plan
    print_table(
        ("run", "values", "steps", "state"),
        [
            [row["run"][:8], run.words, f"{row['steps']:,}", _STATES.get(run.state, run.state)]
            for row, run in zip(rows, plan.runs, strict=True)
        ],
        numbers=("steps",),
    )
    console.print(f"{len(plan.left)} of {len(plan.runs)} runs of {plan.experiment} are not finished")
    return plan


_STATES = {"empty": "new", "finished": "finished, skipped"}
