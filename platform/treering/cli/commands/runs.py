"""`treering runs`: lists the runs of the project."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from treering.cli.alarms import alarm_counts
from treering.cli.numbers import age, counted, number_text, plain_numbers, short_count
from treering.cli.options import JsonOption, project
from treering.cli.output import console, print_json, print_table

if TYPE_CHECKING:
    from treering.metrics.run_summary import RunLine
    from treering.project import Project
    from treering.store.ledger.search.folders import AnyRun, Asked


SHOWN_ID = 8
"""Characters of a run's id in the list; more if two runs have the same prefix."""


QueryArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="QUERY", help="Terms that must all hold; put -- before a query that begins with -."),
]
AllOption = Annotated[bool, typer.Option("--all", help="List archived runs as well.")]


def runs(query: QueryArgument = None, *, json: JsonOption = False, every: AllOption = False) -> None:
    """List the runs of this project by their run logs; the run with the newest activity is last.

    Archived runs are left out, and counted below the list.

    A query has the terms of `treering search`, about these fields:

    experiment run state trainer tag tag.KEY note step tokens loss

    model.NAME optimizer.NAME schedule.NAME blend.NAME seed ..., and config.NAME for any value of the config

    Examples:
        treering runs
        treering runs 'model.num_layers>=24 tag:ablation -state:broken'
        treering runs --all --json
    """
    from treering.metrics.recorded_summary import recorded_line
    from treering.metrics.run_summary import run_line, unlisted_runs
    from treering.runlog.find import find_recorded_runs, find_runs, run_is_archived
    from treering.store.ledger.search.folders import fits, folder_query, unknown_names

    terms = folder_query(" ".join(query or ()))
    here = project().runs
    own, recorded = find_runs(here), find_recorded_runs(here)
    archived = {run.path for run in own if run_is_archived(run)}
    archived |= {run.path for run in recorded if run_is_archived(run)}
    shown = [(run, run_line(run)) for run in own if every or run.path not in archived]
    others = [(run, recorded_line(run)) for run in recorded if every or run.path not in archived]
    lines = [*(line for _run, line in shown), *(line for _run, line in others)]
    listed, asked = len(lines), []
    if terms:  # without a query, no config and no journal is read
        asked = [_asked(run, line) for run, line in shown] + [_asked(run, line) for run, line in others]
        lines = [line for line, each in zip(lines, asked, strict=True) if fits(each, terms)]
    archived_ids = {path.name for path in archived}
    lines.sort(key=lambda line: -math.inf if line.age_s is None else -line.age_s)
    notes = [f"{line.id}: {note}" for line in lines for note in _notes(line)]
    notes += unlisted_runs(here)
    notes += unknown_names(terms, asked)
    if len(lines) < listed:
        notes.append(f"{counted(listed - len(lines), 'run')} that the query does not fit not listed")
    notes += [f"{line.id}: archived" for line in lines if line.id in archived_ids]
    if archived and not every:
        notes.append(f"{counted(len(archived), 'archived run')} not listed; `treering runs --all` lists all runs")
    if json:
        print_json([{**plain_numbers(line.to_json()), "archived": line.id in archived_ids} for line in lines])
        return
    if lines:
        columns = ("run", "experiment", "state", "step", "loss", "val. loss", "tokens", "saves", "age")
        length = _shown_length([line.id for line in lines])
        print_table(columns, [_row(line, length) for line in lines], numbers=columns[3:])
    elif not notes:
        console.print(no_runs_text(project()))
    if notes:
        console.print("", *notes)


def _asked(run: "AnyRun", line: "RunLine") -> "Asked":
    from treering.store.ledger.search.folders import Asked

    numbers = {"step": line.step, "tokens": line.consumed_tokens, "loss": line.loss}
    return Asked.of(run, line.experiment, line.state, numbers)


def _shown_length(ids: list[str]) -> int:
    """The number of characters that make the ids unique, at least `SHOWN_ID`."""
    return next((size for size in range(SHOWN_ID, 64) if len({each[:size] for each in ids}) == len(set(ids))), 64)


def _notes(line: "RunLine") -> Iterator[str]:
    """The notes about a run, for which the table has no column."""
    if line.stall:
        yield f"stalled: {line.stall}"
    if line.alarms:
        yield f"alarms: {alarm_counts(line.alarms)}"
    if line.incidents:
        counted = "1 incident" if line.incidents == 1 else f"{line.incidents} incidents"
        yield f"{counted}; `treering show RUN --full` lists them"
    if line.problem:
        yield line.problem
    if line.mirror:
        yield line.mirror


def _row(line: "RunLine", shown: int) -> list[str]:
    return [
        line.id[:shown],
        line.experiment,
        line.state,
        f"{line.step:,}" + ("" if line.num_steps is None else f"/{line.num_steps:,}"),
        number_text(line.loss),
        number_text(line.validation_loss),
        "" if line.consumed_tokens is None else short_count(line.consumed_tokens),
        str(line.checkpoints),
        age(line.age_s),
    ]


def no_runs_text(here: "Project") -> str:
    """The text for a folder without runs, with the command that helps."""
    if here.runs.is_dir() or (here.root / "dvc.yaml").exists():
        data = "; `make repro` makes its data as well" if (here.root / "Makefile").exists() else ""
        return f"No runs yet. `treering train CONFIG` starts one{data}."
    return (
        f"No runs here: {here.root} has no runs/. Change to a project's folder, or start a run: `treering train CONFIG`"
    )
