"""`treering export`: a checkpoint's weights for other programs, in the trainer's own process."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from treering.cli.options import JsonOption, NamedCheckpoint, TokenizerOption
from treering.runlog.export_format import ExportDtype, ExportFormat

OutputArgument = Annotated[Path, typer.Argument(help="The folder to write; appears when it is whole.")]
FormatOption = Annotated[
    ExportFormat,
    typer.Option(
        "--format",
        help="huggingface: a folder for transformers' GPT2LMHeadModel; safetensors: weights by megatron-core's names.",
    ),
]
DtypeOption = Annotated[ExportDtype | None, typer.Option("--dtype", help="Type of the weights; default: as stored.")]
ShardOption = Annotated[
    str, typer.Option("--max-shard-size", metavar="SIZE", help="Largest weight file, like 5GB, 500MB, 2GiB.")
]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace an earlier export.")]


def export(  # noqa: PLR0917 - one argument an option
    checkpoint: NamedCheckpoint,
    output: OutputArgument,
    target: FormatOption = "huggingface",
    dtype: DtypeOption = None,
    max_shard_size: ShardOption = "5GB",
    tokenizer: TokenizerOption = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Write a checkpoint's weights for other programs, with a record that leads back to it.

    Digests every file of the checkpoint first; a damaged one is never exported.

    Example: `treering export published exported`
    """
    arguments = [sys.executable, "-m", "treering_trainer.export", f"--format={target}"]
    arguments += [f"--dtype={dtype}"] if dtype is not None else []
    arguments += [f"--max-shard-size={max_shard_size}"]
    arguments += [f"--tokenizer={tokenizer}"] if tokenizer is not None else []
    arguments += ["--force"] if force else []
    arguments += ["--json"] if json else []
    arguments += ["--", checkpoint, str(output)]
    os.execv(sys.executable, arguments)  # noqa: S606 - becomes the trainer, which this package never imports
