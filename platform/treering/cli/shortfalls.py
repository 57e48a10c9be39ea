"""How commands print and end where evidence is missing for a part of an answer."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import typer

from treering.cli.output import console

if TYPE_CHECKING:
    from treering.audit.report import Shortfall


def print_shortfalls(shortfalls: "Iterable[Shortfall]", *, missing: bool = False) -> None:
    """Prints what is answered although something is missing, and with `missing` what that is."""
    for each in shortfalls:
        if missing:
            console.print(f"missing      {each.missing}")
        console.print(f"answered     {each.answered} (level {each.level})")


def exit_if_incomplete(shortfalls: "Sequence[Shortfall]") -> None:
    """Ends a command that has answered: with exit code 3 where evidence was missing for a part of it."""
    from treering.errors import EvidenceError

    if shortfalls:
        raise typer.Exit(EvidenceError.exit_code)
