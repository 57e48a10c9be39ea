"""`treering ship`: brings MLflow up to date with the run logs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from treering.cli.commands.runs import no_runs_text
from treering.cli.numbers import counted
from treering.cli.options import JsonOption, project
from treering.cli.output import console, print_json

if TYPE_CHECKING:
    from treering.ship.shipper import ShipReport


ShipArgument = Annotated[
    str | None, typer.Argument(metavar="RUN", help="Any unique prefix of a run's id; default: all runs.")
]
FollowOption = Annotated[
    bool, typer.Option("--follow", help="Continue until nothing trains any more and everything has arrived.")
]


def ship(run: ShipArgument = None, follow: FollowOption = False, json: JsonOption = False) -> None:
    """Bring MLflow up to date with the run logs; what MLflow has already is not sent again.

    MLflow is the server of `MLFLOW_TRACKING_URI`, or `mlflow.db` of this project. The command prints where it ships to,
    what was new in each run, and which runs it skipped. With `--follow`, it runs beside a training, waits for a server
    that is down, and ends when nothing trains any more.

    Exit codes:
        0: everything arrived
        2: the URI is wrong, or the driver of the database is missing
        3: a run was skipped, because its log does not hold
        4: MLflow did not answer

    Examples:
        treering ship
        treering ship --follow
    """
    from dataclasses import asdict

    from treering.redact import redact
    from treering.runlog.find import find_run, find_runs
    from treering.ship import follow as following
    from treering.store.registry import default_uri

    here = project()
    registry = redact(default_uri(here))
    runs = find_runs(here.runs) if run is None else [find_run(here.runs, run)]
    if not runs and not follow:
        print_json([]) if json else console.print(no_runs_text(here))
        return
    reports: list[ShipReport] = []

    def report(done: "ShipReport") -> None:
        reports.append(done)
        if not json:
            console.print(_shipped(done))

    if not json:
        console.print(f"shipping {'all runs' if follow and run is None else counted(len(runs), 'run')} to {registry}")
    try:
        if follow:
            following.follow(here, run, report=report)
        else:
            following.ship_once(here, run, report=report)
    finally:
        if json:
            print_json([{**asdict(each), "registry": registry} for each in reports])
    if not json and (follow or len(runs) > 1):
        console.print(_total(reports))


def _shipped(done: "ShipReport") -> str:
    """A line about one run: what was sent."""
    if done.problem is not None:
        return f"{done.run} skipped: its run log does not hold or cannot be read; the reason is printed last"
    if done.mlflow_run is None:
        return f"{done.run} {done.state}: no attempt yet, nothing to ship"
    if not done.news:
        return f"{done.run} {done.state}: nothing new"
    return f"{done.run} {done.state}: {_sent([done])}" + (", an abandoned branch moved aside" if done.abandoned else "")


def _total(reports: "Sequence[ShipReport]") -> str:
    """A line about all runs: what was sent."""
    new = {each.run for each in reports if each.news}
    sent = f"{_sent(reports)} of {counted(len(new), 'run')}" if new else "nothing new"
    return f"up to date: {sent}"


def _sent(reports: "Sequence[ShipReport]") -> str:
    counts = (
        counted(sum(each.rings for each in reports), "ring"),
        counted(sum(each.models for each in reports), "checkpoint"),
        counted(sum(each.evaluations for each in reports), "evaluation"),
    )
    return ", ".join(counts)
