"""Exports a checkpoint to a folder: checks the checkpoint first, then writes the folder, which appears whole."""

import os
import shutil
from pathlib import Path

import torch

from treering.config.canonical import digest_file
from treering.config.resolved import Resolved
from treering.data.corpus.tokenizer import check_tokenizer
from treering.errors import UserError
from treering.files import open_regular, replace_durably
from treering.progress import Progress
from treering.runlog.directory import CheckpointDirectory
from treering.runlog.export import EXPORT_RECORD, Export
from treering.runlog.export_format import ExportDtype, ExportFormat
from treering.runlog.records import CheckpointManifest, FileRecord
from treering_trainer.checkpointing.publish import check_provenance
from treering_trainer.export.huggingface import write_huggingface
from treering_trainer.export.names import output_tensors
from treering_trainer.export.shards import write_shards

_TYPES: dict[ExportDtype, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def check_output(output: Path, checkpoint: CheckpointDirectory, *, force: bool) -> None:
    """Refuses a folder that an export must not write to.

    Raises:
        UserError: it is a file, is inside the run's folder, or is neither empty nor an export that may be replaced.
    """
    run = checkpoint.run.path.resolve()
    if output.resolve() == run or run in output.resolve().parents or output.resolve() in run.parents:
        raise UserError(f"{output}: overlaps the folder of the checkpoint's run; give a folder outside {run}")
    if output.exists() and not output.is_dir():
        raise UserError(f"{output}: is a file, expected a folder or an unused name")
    if not output.exists() or not any(output.iterdir()):
        return
    if not (output / EXPORT_RECORD).exists():
        raise UserError(f"{output}: not empty and not an export (it has no {EXPORT_RECORD}); give another folder")
    if not force:
        raise UserError(f"{output}: has an export already; --force replaces it")


def export_checkpoint(
    checkpoint: CheckpointDirectory,
    output: Path,
    target: ExportFormat,
    *,
    dtype: ExportDtype | None,
    max_shard_size: int,
    tokenizer: Path,
    force: bool,
    progress: Progress,
) -> Export:
    """Exports a checkpoint's weights to a folder.

    Args:
        checkpoint: the checkpoint; its files and the rings up to it are checked first.
        output: the folder; it gets its name when it is complete.
        target: the names and shapes of the weights.
        dtype: of the written weights, None for that of the checkpoint.
        max_shard_size: of a weight file in bytes.
        tokenizer: the run's `tokenizer.json`; only read for `huggingface`.
        force: replace an earlier export.
        progress: called with the bytes of `verify` and of `write`.

    Returns:
        The record of the export, which is also in the folder.

    Raises:
        UserError: the output is taken, or a weight does not fit the type.
        EvidenceError: the checkpoint, its rings or the tokenizer do not hold.
    """
    check_output(output, checkpoint, force=force)
    resolved = checkpoint.run.resolved
    if target == "huggingface":
        check_tokenizer(tokenizer, checkpoint.manifest.tokenizer, resolved.run_id)
    manifest = check_provenance(checkpoint.run, checkpoint, progress)
    tensors = output_tensors(checkpoint.path, resolved.recipe.model, target, None if dtype is None else _TYPES[dtype])
    written: ExportDtype = next(name for name, type_ in _TYPES.items() if type_ == tensors[0].dtype)

    temporary = output.with_name(f".{output.name}.exporting")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        metadata = _metadata(resolved, manifest, checkpoint.digest, target)
        write_shards(temporary, tensors, metadata, max_shard_size, progress)
        if target == "huggingface":
            write_huggingface(temporary, checkpoint, written, tokenizer)
        record = Export(
            format=target,
            dtype=written,
            experiment=resolved.experiment,
            run=manifest.run,
            step=manifest.step,
            checkpoint=checkpoint.digest,
            ring=manifest.ring,
            blend=manifest.blend,
            tokenizer=manifest.tokenizer,
            model=resolved.recipe.model,
            sequence_length=resolved.blend.sequence_length,
            files=_seal(temporary),
        )
        record.write(temporary / EXPORT_RECORD)
        replace_durably(temporary, output)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return record


def _metadata(resolved: Resolved, manifest: CheckpointManifest, digest: str, target: ExportFormat) -> dict[str, str]:
    """The metadata of each weight file; Hugging Face's loaders need `format`."""
    return {
        "format": "pt",
        "treering.layout": "gpt2" if target == "huggingface" else "megatron-core",
        "treering.format_version": "1",
        "treering.experiment": resolved.experiment,
        "treering.run": manifest.run,
        "treering.step": str(manifest.step),
        "treering.checkpoint": digest,
        "treering.ring": manifest.ring,
        "treering.blend": manifest.blend,
    }


def _seal(directory: Path) -> tuple[FileRecord, ...]:
    records = []
    for path in sorted(directory.iterdir()):
        with open_regular(path) as file:
            os.fsync(file.fileno())
        records.append(FileRecord(path=path.name, size=path.stat().st_size, digest=digest_file(path)))
    return tuple(records)
