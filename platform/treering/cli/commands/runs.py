"""`treering runs`: lists the runs of the project."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from treering.cli.alarms import alarm_counts
from treering.cli.numbers import age, counted, number_text, plain_numbers
from treering.cli.options import JsonOption, project
from treering.cli.output import console, print_json, print_table

if TYPE_CHECKING:
    from treering.metrics.lines.line import RunLine
    from treering.project import Project
    from treering.store.ledger.search.folds import Fold


SHOWN_ID = 8
"""Characters of a run's id in the list; more if two runs have the same prefix."""

_BARS = 8
"""Characters of the curve of the loss."""

_NUMBERS = ("step", "to go", "loss", "norm", "MFU", "risk", "age")
_RARE = ("to go", "norm", "MFU", "risk", "again")
"""Columns that are there only where a run has something in them."""

QueryArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="QUERY", help="Terms that must all hold; put -- before a query that begins with -."),
]
ByOption = Annotated[
    str | None,
    typer.Option(
        "--by",
        metavar="KEY",
        help="Fold runs into groups: configuration (without seeds), experiment, tags or tag.KEY.",
    ),
]
AllOption = Annotated[bool, typer.Option("--all", help="List archived runs as well.")]


def runs(
    query: QueryArgument = None, *, by: ByOption = None, json: JsonOption = False, every: AllOption = False
) -> None:
    """List the runs of this project by their run logs; the run that needs most attention is last.

    Needs attention, in this order: stalled, diverging, broken, failed, damaged, interrupted, at risk, alarmed. Below
    the list is why, with the step. Archived runs are left out, and counted below the list.

    norm is the gradient norm of the newest step, risk the steps that a crash now costs, curve the loss so far, again
    how the newest reproduction of the run came out.

    A query has the terms of `treering search`, about these fields:

    project experiment run state attention trainer host tag tag.KEY note started updated step tokens loss

    score.TASK score.TASK.METRIC@SHOTS, of any checkpoint

    model.NAME optimizer.NAME schedule.NAME blend.NAME seed ..., and config.NAME for any value of the config

    Examples:
        treering runs
        treering runs 'model.num_layers>=24 tag:ablation -state:finished'
        treering runs --by configuration
        treering runs --all --json
    """
    from treering.metrics.lines.attention import neediest_first
    from treering.metrics.lines.read import run_line
    from treering.metrics.run_summary import unlisted_runs
    from treering.runlog.find import run_is_archived, runs_of_any_trainer
    from treering.store.ledger.search.folders import FolderFacts, doubts, fits, folder_query
    from treering.store.ledger.search.folds import folded

    terms = folder_query(" ".join(query or ()))
    here = project()
    found = runs_of_any_trainer(here.runs)
    archived = {run.path.name for run in found if run_is_archived(run)}
    read = [(run, run_line(run)) for run in found if every or run.path.name not in archived]
    facts = {line.folder: FolderFacts(run, here.name) for run, line in read}
    lines = [line for _run, line in read if fits(line, facts[line.folder], terms)]
    said = doubts(terms, list(facts.values()))
    folds = folded(by, lines, [facts[line.folder] for line in lines])[::-1] if by else None
    lines = neediest_first(lines)[::-1]
    notes = [f"{line.id}: {note}" for line in lines for note in _notes(line)]
    notes += unlisted_runs(here.runs)
    notes += said
    if len(lines) < len(read):
        notes.append(f"{counted(len(read) - len(lines), 'run')} that the query does not fit not listed")
    notes += [f"{line.id}: archived" for line in lines if line.archived]
    if archived and not every:
        notes.append(f"{counted(len(archived), 'archived run')} not listed; `treering runs --all` lists all runs")
    if json:
        print_json([plain_numbers(each.to_json()) for each in (lines if folds is None else folds)])
        return
    if folds:
        _print_folds(folds)
    elif lines:
        _print(lines)
    elif not notes:
        console.print(no_runs_text(here))
    if notes:
        console.print("", *notes)


def _print(lines: "Sequence[RunLine]") -> None:
    length = _shown_length([line.id for line in lines])
    rows = [_row(line, length) for line in lines]
    names = [name for name in rows[0] if name not in _RARE or any(row[name] for row in rows)]
    print_table(names, [[row[name] for name in names] for row in rows], numbers=_NUMBERS)


def _print_folds(folds: "Sequence[Fold]") -> None:
    rows = []
    for fold in folds:
        states = ", ".join(f"{number} {state}" for state, number in fold.states.items())
        losses = " to ".join(dict.fromkeys(map(number_text, fold.losses or ())))
        rows.append([fold.name, str(len(fold.lines)), states, losses])
    print_table(("group", "runs", "states", "loss"), rows, numbers=("runs", "loss"))


def _shown_length(ids: list[str]) -> int:
    """The number of characters that make the ids unique, at least `SHOWN_ID`."""
    return next((size for size in range(SHOWN_ID, 64) if len({each[:size] for each in ids}) == len(set(ids))), 64)


def _notes(line: "RunLine") -> Iterator[str]:
    """Why a run needs attention, and what else the table has no column for."""
    if line.reason:
        yield line.reason
    if line.alarms:
        yield f"alarms: {alarm_counts(line.alarms)}"
    if line.incidents:
        yield f"{counted(line.incidents, 'incident')}; `treering show RUN --full` lists them"
    if line.problem and line.problem != line.reason:
        yield line.problem
    if line.mirror:
        yield line.mirror


def _row(line: "RunLine", shown: int) -> dict[str, str]:
    from treering.metrics.lines.curve import bars

    return {
        "run": line.id[:shown],
        "experiment": line.experiment,
        "state": line.state,
        "step": f"{line.step:,}" + ("" if line.num_steps is None else f"/{line.num_steps:,}"),
        "to go": age(line.remaining_s),
        "loss": number_text(line.loss),
        "curve": bars(line.loss_curve, _BARS),
        "norm": number_text(line.grad_norm),
        "MFU": "" if line.mfu is None else f"{100 * line.mfu:.1f}%",
        "risk": f"{line.at_risk_steps:,}" if line.at_risk_steps else "",
        "again": _again(line),
        "age": age(line.age_s),
    }


def _again(line: "RunLine") -> str:
    from treering.runlog.reproductions import OUTCOMES

    found = line.reproduction
    return "" if found is None else OUTCOMES[found["identical"]] if found["compared"] else "not compared"


def no_runs_text(here: "Project") -> str:
    """The text for a folder without runs, with the command that helps."""
    if here.runs.is_dir() or (here.root / "dvc.yaml").exists():
        data = "; `make repro` makes its data as well" if (here.root / "Makefile").exists() else ""
        return f"No runs yet. `treering train CONFIG` starts one{data}."
    return (
        f"No runs here: {here.root} has no runs/. Change to a project's folder, or start a run: `treering train CONFIG`"
    )
