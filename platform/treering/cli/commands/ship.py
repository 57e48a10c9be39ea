"""`treering ship`: brings MLflow, the ledger and the copies up to date with the run logs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from treering.cli.commands.runs import no_runs_text
from treering.cli.numbers import counted
from treering.cli.options import JsonOption, project
from treering.cli.output import console, print_json

if TYPE_CHECKING:
    from treering.ship.target import ShipReport


ShipArgument = Annotated[
    str | None, typer.Argument(metavar="RUN", help="Any unique prefix of a run's id; default: all runs.")
]
FollowOption = Annotated[
    bool, typer.Option("--follow", help="Continue until nothing trains any more and everything has arrived.")
]


def ship(run: ShipArgument = None, follow: FollowOption = False, json: JsonOption = False) -> None:
    """Bring MLflow, the ledger and the copies up to date with the run logs; nothing is sent twice.

    MLflow is the server of `MLFLOW_TRACKING_URI`, or `mlflow.db` of this project; the ledger is the database of
    `TREERING_DATABASE_URL`, or `treering.db`; copies go to `TREERING_STORE_URL`, where that is set. The command prints
    where it ships to, what was new in each run, and which runs it skipped. With `--follow`, it runs beside a training,
    waits for a server that is down, and ends when nothing trains any more. A target that is down does not delay another
    one.

    Exit codes:
        0: everything arrived
        2: a URL is wrong, or the driver of the database is missing
        3: a run was skipped, because its log does not hold
        4: a target did not answer

    Examples:
        treering ship
        treering ship --follow
    """
    from dataclasses import asdict

    from treering.ship import follow as following
    from treering.ship.target import targets

    here = project()
    runs = following.selected(here, run)
    if not runs and not follow:
        print_json([]) if json else console.print(no_runs_text(here))
        return
    places = {target.name: target.place for target in targets(here)}
    reports: list[ShipReport] = []

    def report(done: "ShipReport") -> None:
        reports.append(done)
        if not json:
            console.print(str(done) if done.problem is None else f"{done}; the reason is printed last")

    if not json:
        what = "all runs" if follow and run is None else counted(len(runs), "run")
        console.print(f"shipping {what} to {', '.join(f'{name} ({place})' for name, place in places.items())}")
    try:
        if follow:
            following.follow(here, run, report=report)
        else:
            following.ship_once(here, run, report=report)
    finally:
        if json:
            print_json([{**asdict(each), "place": places[each.target]} for each in reports])
    if not json and (follow or len(runs) > 1):
        for name in places:
            console.print(_total(name, [each for each in reports if each.target == name]))


def _total(target: str, reports: "Sequence[ShipReport]") -> str:
    """A line about all runs: what was sent."""
    from treering.ship.target import sum_of

    new = {each.run for each in reports if each.news}
    sent = f"{sum_of(reports) or 'changes'} of {counted(len(new), 'run')}" if new else "nothing new"
    return f"{target} is up to date: {sent}"
