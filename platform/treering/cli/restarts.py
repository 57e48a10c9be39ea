"""Prints whether the restarts of a run changed anything."""

from typing import TYPE_CHECKING

import typer

from treering.cli.numbers import plain_numbers
from treering.cli.options import project
from treering.cli.output import console, print_json, print_table

if TYPE_CHECKING:
    from treering.reproduce.restarts.border import RestartAudit


def print_restarts(name: str, *, alone: bool, json: bool) -> None:
    """Prints the border before each attempt of a run.

    Args:
        name: the run, as a person names it.
        alone: whether no other option was given.
        json: whether to print JSON.

    Raises:
        UserError: another option was given, or no run.
        Exit: a restart changed something.
    """
    from treering.ending import EXIT_DIFFERS
    from treering.errors import UserError
    from treering.reproduce.restarts.report import audit_restarts, restarts_json
    from treering.runlog.find import named_run

    if not alone or not name:
        raise UserError(
            "audit: found --restarts without a RUN or with another option, expected RUN, and at most --json"
        )
    found = audit_restarts(named_run(project().runs, name))
    if json:
        print_json(plain_numbers(restarts_json(found)))
    else:
        _print(found)
    if not found.holds:
        raise typer.Exit(EXIT_DIFFERS)


def _print(found: "RestartAudit") -> None:
    console.print(found.verdict, style="bold")
    for border in found.borders:
        console.print(f"  - {border.text}" + ("" if border.on_path else " (off the path)"))
    rows = [
        [str(border.attempt), each.name, each.proof, each.text] for border in found.borders for each in border.aspects
    ]
    if rows:
        console.print()
        print_table(("attempt", "what", "proof", "found"), rows, numbers=("attempt",))
    if found.remedies:
        console.heading("What would show what was not seen")
        for remedy in found.remedies:
            console.print(f"  - {remedy}")
