"""Arguments and options that several commands have, and the project and the keys that they name."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treering.project import Project

if TYPE_CHECKING:
    from treering.audit.attestation.keys import PublicKey


DEFAULT_CONFIG = Path("experiments/demo.yaml")


def only_config(config: Path) -> Path:
    """The config that was named; without one, the only experiment of a project that does not have the default's."""
    if config != DEFAULT_CONFIG or config.exists():
        return config
    found = sorted(config.parent.glob("*.yaml"))
    return found[0] if len(found) == 1 else config


ConfigArgument = Annotated[
    Path,
    typer.Argument(
        metavar="CONFIG", callback=only_config, help="The YAML file of the experiment; default: the only one."
    ),
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Override one value of the config; repeatable.")
]
NamedCheckpoint = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT",
        help="The folder of a checkpoint, of a run or of a published checkpoint, or a prefix of a run's id, or "
        "RUN@STEP. A run means its newest checkpoint.",
    ),
]
TokenizerOption = Annotated[
    Path | None,
    typer.Option("--tokenizer", metavar="FILE", help="The tokenizer.json of the run; default: the project's."),
]
PublicKeyOption = Annotated[
    list[Path] | None,
    typer.Option("--public-key", metavar="FILE", help="A public key in PEM whose signatures are trusted; repeatable."),
]
EngineOption = Annotated[
    str | None, typer.Option(help="Where: process (this one), pool (processes of this machine), or ray (a cluster).")
]
WorkersOption = Annotated[
    int | None, typer.Option(min=1, help="Shards at a time; default: curation.num_processes, on Ray all cores.")
]
AddressOption = Annotated[str | None, typer.Option(help="Of the Ray cluster: HOST:PORT, or auto on one of its nodes.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
LimitOption = Annotated[
    int, typer.Option("--limit", metavar="N", min=0, help="Show at most N documents or examples; counts include all.")
]
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="Any unique prefix of a run's id, or the folder of the run.")
]
TrustOption = Annotated[
    bool, typer.Option("--trust", help="Run recorded code although another machine or a capsule recorded it.")
]
VerifyOption = Annotated[
    bool,
    typer.Option("--verify", help="Also digest the corpora again, and recompute every batch digest."),
]
ReplayOption = Annotated[
    int | None,
    typer.Option(
        "--replay", min=1, metavar="K", help="Also train K random steps again, each from the checkpoint before it."
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


def step_range(text: str | None) -> range | None:
    """The steps that a person names as `A:B`, both with their ends; None without a text.

    Raises:
        UserError: the text is not of this form.
    """
    from treering.errors import UserError

    if text is None:
        return None
    match = re.fullmatch(r"(\d+):(\d+)", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise UserError(f"--steps: found {text!r}, expected first and last step, such as 100:200")
    return range(int(match[1]), int(match[2]) + 1)
