"""How commands print gaps, which are missing evidence for a part of an answer, and how they end with gaps."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import typer

from treering.cli.output import console

if TYPE_CHECKING:
    from treering.audit.report import Gap


def print_gaps(gaps: "Iterable[Gap]", *, missing: bool = False) -> None:
    """Prints for each gap what is answered all the same, and with `missing` also what is missing."""
    for each in gaps:
        if missing:
            console.print(f"missing      {each.missing}")
        console.print(f"answered     {each.answered} (level {each.level})")


def exit_if_incomplete(gaps: "Sequence[Gap]") -> None:
    """Ends a command after its answer: with exit code 3 if evidence was missing for a part of it.

    Raises:
        Exit: evidence was missing for a part of the answer.
    """
    from treering.errors import EvidenceError

    if gaps:
        raise typer.Exit(EvidenceError.exit_code)
