"""How commands print and end where evidence is missing for a part of an answer."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import typer

from treering.cli.output import console

if TYPE_CHECKING:
    from treering.audit.report import Gap


def print_gaps(gaps: "Iterable[Gap]", *, missing: bool = False) -> None:
    """Prints what is answered although something is missing, and with `missing` what that is."""
    for each in gaps:
        if missing:
            console.print(f"missing      {each.missing}")
        console.print(f"answered     {each.answered} (level {each.level})")


def exit_if_incomplete(gaps: "Sequence[Gap]") -> None:
    """Ends a command that has answered: with exit code 3 where evidence was missing for a part of it."""
    from treering.errors import EvidenceError

    if gaps:
        raise typer.Exit(EvidenceError.exit_code)
