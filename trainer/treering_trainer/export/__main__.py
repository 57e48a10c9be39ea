"""Exports a checkpoint: `python -m treering_trainer.export CHECKPOINT OUTPUT`, run by `treering export`."""

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from treering.ending import run_command
from treering.errors import TrainingError
from treering.progress import progress_bars
from treering.project import Project
from treering.runlog.export_format import ExportDtype, ExportFormat
from treering.runlog.find import named_checkpoint


def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the command line and exports.

    Returns:
        0; 2 usage, 3 the checkpoint does not hold, 5 the folder cannot be written; 130 interrupted.
    """
    parser = argparse.ArgumentParser(prog="treering export", description="Write a checkpoint for other programs.")
    parser.add_argument("checkpoint", help="a checkpoint's folder, or that of a run, or a prefix of a run's id")
    parser.add_argument("output", type=Path, help="the folder to write")
    parser.add_argument("--format", dest="target", choices=get_args(ExportFormat), default="huggingface")
    parser.add_argument("--dtype", choices=get_args(ExportDtype), default=None, help="default: as stored")
    parser.add_argument("--max-shard-size", default="5GB")
    parser.add_argument("--tokenizer", type=Path, default=None, help="default: the project's")
    parser.add_argument("--force", action="store_true", help="replace an earlier export")
    parser.add_argument("--json", action="store_true", help="print the record")
    options = parser.parse_args(arguments)
    return run_command(
        lambda: _export(Project(Path.cwd()), options),
        trouble="the export cannot read or write: {}; it left no files",
        trouble_code=TrainingError.exit_code,
        interrupted="; the export left no files",
    )


def _export(project: Project, options: argparse.Namespace) -> None:
    checkpoint = named_checkpoint(project.runs, options.checkpoint)
    os.environ["DS_ACCELERATOR"] = "cpu"
    warnings.filterwarnings("ignore", module="megatron")  # about kernels that an export does not use
    # Slow imports (torch, megatron-core), so that a wrong argument is reported at once.
    from treering_trainer.export.folder import export_checkpoint  # noqa: PLC0415
    from treering_trainer.export.shards import parse_size  # noqa: PLC0415

    with progress_bars(in_bytes=True) as progress:
        record = export_checkpoint(
            checkpoint,
            options.output,
            options.target,
            dtype=options.dtype,
            max_shard_size=parse_size(options.max_shard_size),
            tokenizer=options.tokenizer or project.tokenizer,
            force=options.force,
            progress=progress,
        )
    if options.json:
        sys.stdout.write(record.model_dump_json(indent=2) + "\n")
        return
    size = sum(file.size for file in record.files)
    sys.stdout.write(
        f"exported step {record.step} of run {checkpoint.run.id} ({record.checkpoint}) to {options.output}: "
        f"{record.format}, {record.dtype}, {len(record.files)} files, {size:,} bytes\n"
    )


if __name__ == "__main__":
    sys.exit(main())
