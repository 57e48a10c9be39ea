"""How commands print: tables for people, JSON for machines."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from treering.project import Project

if TYPE_CHECKING:
    from treering.audit.attestation.keys import PublicKey

ConfigArgument = Annotated[Path, typer.Argument(help="The experiment's YAML file.", show_default=True)]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Override one value of the config; repeatable.")
]
NamedCheckpoint = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT",
        help="A checkpoint's folder, or that of a run or a published checkpoint, or a prefix of a run's id "
        "(its newest one).",
    ),
]
TokenizerOption = Annotated[
    Path | None, typer.Option("--tokenizer", help="The run's tokenizer.json; default: the project's.")
]
PublicKeyOption = Annotated[
    list[Path] | None,
    typer.Option("--public-key", metavar="FILE", help="A key whose signature counts, in PEM; repeatable."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]

DEFAULT_CONFIG = Path("experiments/demo.yaml")

# Curation steps whose names would make a table wider than a terminal; `heldout` drops twins of held-out documents.
STEP_TITLES = {"heldout": "twins", "decontaminate": "decontam."}

console = Console(highlight=False, soft_wrap=True)


def project() -> Project:
    """The project that commands work on: the working directory."""
    return Project(Path.cwd())


def trusted_keys(files: list[Path] | None) -> "list[PublicKey]":
    """The keys of `PublicKeyOption`."""
    if not files:
        return []
    from treering.audit.attestation.keys import PublicKey

    return [PublicKey.read(file) for file in files]


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[str] = ()) -> None:
    """A plain table; columns in `numbers` are aligned to the right."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)
