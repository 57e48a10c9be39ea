"""Arguments and options that several commands have, and the project and the keys that they name."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

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
LimitOption = Annotated[
    int, typer.Option("--limit", min=0, help="How many documents to show with their exposures; counts are of all.")
]
RunArgument = Annotated[str, typer.Argument(help="Any unique prefix of a run's id, or its folder.")]
VerifyOption = Annotated[
    bool,
    typer.Option("--verify", help="Also read the content: digest the corpora again, recompute every batch digest."),
]
ReplayOption = Annotated[
    int | None,
    typer.Option(
        "--replay", min=1, metavar="K", help="Also train K random steps again, from the checkpoint before each."
    ),
]


def project() -> Project:
    """The project that commands work on: the working directory."""
    return Project(Path.cwd())


def trusted_keys(files: list[Path] | None) -> "list[PublicKey]":
    """The keys of `PublicKeyOption`."""
    if not files:
        return []
    from treering.audit.attestation.keys import PublicKey

    return [PublicKey.read(file) for file in files]
