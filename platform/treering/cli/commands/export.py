"""`treering export`: becomes the trainer, which writes the weights of a checkpoint for other programs."""

from pathlib import Path
from typing import Annotated

import typer

from treering.cli.options import JsonOption, NamedCheckpoint, TokenizerOption
from treering.cli.trainer import become_trainer
from treering.runlog.export_format import ExportDtype, ExportFormat

OutputArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="The folder to write; it appears when it is complete.")
]
FormatOption = Annotated[
    ExportFormat,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="huggingface: a folder for transformers (GPT2LMHeadModel); safetensors: with names of megatron-core.",
    ),
]
DtypeOption = Annotated[
    ExportDtype | None,
    typer.Option("--dtype", metavar="TYPE", help="Type of the weights, fp32, bf16 or fp16; default: as stored."),
]
ShardOption = Annotated[
    str,
    typer.Option(
        "--max-shard-size", metavar="SIZE", help="The size of the largest file of weights, like 5GB, 500MB or 2GiB."
    ),
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
    """Write the weights of a checkpoint for other programs, with a record that names the checkpoint.

    Every file of the checkpoint is digested first. A damaged checkpoint is not exported.

    Exit codes:
        3: the checkpoint does not hold
        5: the export cannot be written

    Examples:
        treering export published exported
        treering export 0123 exported --format safetensors --dtype bf16
    """
    options = {
        "--format": target,
        "--dtype": dtype,
        "--max-shard-size": max_shard_size,
        "--tokenizer": tokenizer,
        "--force": force,
        "--json": json,
    }
    become_trainer("export", options, checkpoint, str(output))
