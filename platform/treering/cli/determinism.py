"""`treering train --check-determinism`: prints whether the first steps of a training repeat."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from treering.cli.numbers import plain_numbers
from treering.cli.options import project
from treering.cli.output import console, print_json

if TYPE_CHECKING:
    from treering.reproduce.difference import RunDifference
    from treering.runlog.records import KnownNondeterminism


def check_repeats(config: Path, overrides: Sequence[str], *, alone: bool, json: bool) -> None:
    """Trains the first steps twice, and prints whether they are the same.

    Args:
        config: the experiment's file.
        overrides: the `--set` texts.
        alone: whether no other option was given.
        json: whether to print JSON.

    Raises:
        UserError: another option was given.
        Exit: the steps differ, or could not be compared.
    """
    from treering.ending import EXIT_DIFFERS
    from treering.errors import EvidenceError, UserError
    from treering.reproduce.repeat import train_twice

    if not alone:
        raise UserError("train: found --check-determinism with another option, expected CONFIG, --set and --json alone")
    found, known = train_twice(config, overrides, project())
    if json:
        known_json = None if known is None else known.model_dump(mode="json")
        print_json(plain_numbers({**found.to_json(), "nondeterminism": known_json}))
    else:
        _print(found, known)
    if found.state == "unknown":
        raise typer.Exit(EvidenceError.exit_code)
    if found.state != "identical":
        raise typer.Exit(EXIT_DIFFERS)


def _print(found: "RunDifference", known: "KnownNondeterminism | None") -> None:
    from treering.reproduce.sentence import difference_sentence

    console.print(difference_sentence(found), style="bold")
    if (weights := found.other_weights) is not None and weights.differences:
        first = asdict(weights)["differences"][0]
        count = f"{len(weights.differences):,} of {weights.weights:,}"
        console.print(f"weights      after step {weights.step:,} {count} differ, the first is {first['name']}")
    elif weights is None and found.weights is not None and found.weights.steps:
        console.print(f"weights      {found.weights.steps[-1].weights:,} are equal after the last step")
    if known is not None:
        named = ", ".join(each.operation for each in known.operations)
        console.print(f"known        {named + '; ' if named else ''}{known.reason}")
    for doubt in found.doubts:
        console.print("", doubt.line)
