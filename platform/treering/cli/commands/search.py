"""`treering search`: finds runs and checkpoints of all projects in the ledger."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treering.cli.numbers import age, counted, number_text, plain_numbers, short_count
from treering.cli.options import JsonOption, project
from treering.cli.output import console, print_json, print_table

if TYPE_CHECKING:
    from treering.store.ledger.database import Database
    from treering.store.ledger.search.find import Answer, Found


QueryArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="QUERY", help="Terms that must all hold; put -- before a query that begins with -."),
]
SortOption = Annotated[
    str,
    typer.Option(
        "--sort",
        metavar="FIELD",
        help="updated, started, project, experiment, step, tokens or score.NAME; with - the largest first.",
    ),
]
MostOption = Annotated[int, typer.Option("--limit", metavar="N", min=0, help="Show at most N; the count is of all.")]

_SHOWN_ID = 8


def search(
    query: QueryArgument = None, *, sort: SortOption = "-updated", limit: MostOption = 20, json: JsonOption = False
) -> None:
    """Find runs and checkpoints of all projects in the ledger, which `treering ship` fills.

    A term is FIELD:PATTERN, where * is any text, or FIELD with one of = != > >= < <=, or a word of a name, tag or note.
    With - before it, it must not hold. Commas separate alternatives; texts with blanks stand in double quotes.

    All terms must hold of one checkpoint. Of a checkpoint's scores, corpora, licences, tags or notes one must fit; with
    - none may. Without a term about checkpoints each run is listed once.

    About runs: project experiment run state trainer host tag tag.KEY note started updated

    About checkpoints: step tokens corpus licence promoted checkpoint score.TASK score.TASK.METRIC@SHOTS

    Dates are UTC, such as 2026-11-05. Abandoned checkpoints are found by checkpoint:abandoned alone.

    Examples:
        treering search 'licence:GPL* score.hellaswag>0.7' --sort -score.hellaswag
        treering search tag.owner:ada state:running 'updated>=2026-11'
        treering search -- '-licence:GPL*,AGPL* promoted:production'
    """
    from treering.store.ledger.database import Database, default_url
    from treering.store.ledger.search.find import search as find

    database = Database(default_url(project()))
    answer = find(database, " ".join(query or ()), sort=sort, limit=limit)
    doubt = [*answer.doubt, *_not_shipped(database)]
    if json:
        print_json({"ledger": database.place, **plain_numbers(answer.to_json()), "doubt": doubt})
        return
    _print(answer, sort)
    console.print(*(f"doubt: {each}" for each in doubt), f"{database.place}: {_freshness(answer.seen_at)}")


def _print(answer: "Answer", sort: str) -> None:
    what = "checkpoint" if answer.each_checkpoint else "run"
    if answer.found:
        scores = answer.asked_scores(sort)
        columns = ("project", "experiment", "run", "state", "step", "checkpoint", "tokens", *scores, "promoted", "tags")
        numbers = ("step", "tokens", *scores)
        print_table(columns, [_row(found, scores) for found in answer.found], numbers=numbers)
        console.print("")
    left = answer.count - len(answer.found)
    console.print(counted(answer.count, what) + (f", {left:,} of them not shown; --limit shows more" if left else ""))


def _row(found: "Found", scores: Sequence[str]) -> list[str]:
    run, checkpoint = found.run, found.checkpoint
    return [
        run["project"],
        run["experiment"],
        run["id"][:_SHOWN_ID],
        run["state"],
        f"{checkpoint['step']:,}",
        checkpoint["status"],
        "" if checkpoint["tokens"] is None else short_count(checkpoint["tokens"]),
        *(_best(found, part) for part in scores),
        ", ".join(found.promoted),
        ", ".join(found.tags),
    ]


def _best(found: "Found", part: str) -> str:
    best = found.best_score(part)
    if best is None:
        return ""
    value, name = best
    return number_text(value) if name == part else f"{name} {number_text(value)}"


def _not_shipped(database: "Database") -> list[str]:
    """The runs of this folder that the ledger does not have, in words."""
    from sqlalchemy import select

    from treering.runlog.find import find_recorded_runs, find_runs
    from treering.store.ledger.models import RunRow

    here = project().runs
    names = {run.path.name for run in (*find_runs(here), *find_recorded_runs(here)) if run.attempt_folders()}
    if not names:
        return []
    with database.reading() as connection:
        names -= set(connection.execute(select(RunRow.id)).scalars())
    if not names:
        return []
    shown = ", ".join(sorted(each[:_SHOWN_ID] for each in names)[:5])
    return [f"{counted(len(names), 'run')} of {Path.cwd()} ({shown}) not in the ledger yet; `treering ship` adds them"]


def _freshness(seen_at: float | None) -> str:
    if seen_at is None:
        return "nothing was shipped to it yet; `treering ship` does"
    return f"a shipper reported {age(max(0.0, time.time() - seen_at))} ago"
