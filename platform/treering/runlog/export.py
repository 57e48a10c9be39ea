"""The record beside exported weights: the way back from a folder that has left the project to its checkpoint."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from treering.config.canonical import digest_file, short
from treering.config.model import Digest, ModelConfig, PositiveInt
from treering.config.resolve import RUN_ID_LENGTH
from treering.errors import EvidenceError, NotFoundError
from treering.project import Project
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering.runlog.records import FileRecord, Record

ExportFormat = Literal["safetensors", "huggingface"]
ExportDtype = Literal["fp32", "bf16", "fp16"]

EXPORT_RECORD = "export.json"


class Export(Record):
    """What was exported, from which checkpoint, and every written file's digest; without a clock: the same again."""

    schema_version: Literal[1] = 1
    format: ExportFormat
    dtype: ExportDtype = Field(description="of the written weights")
    experiment: str
    run: Digest
    step: PositiveInt
    checkpoint: Digest = Field(description="digest of the checkpoint's manifest")
    ring: Digest
    blend: Digest
    tokenizer: Digest | None
    model: ModelConfig
    sequence_length: PositiveInt
    files: tuple[FileRecord, ...]


def exported_checkpoint(folder: Path, project: Project) -> CheckpointDirectory:
    """The checkpoint that an export was made from, once the exported files have held.

    Raises:
        EvidenceError: the record or a file of the export is missing or was changed.
        NotFoundError: the project does not hold the checkpoint.
    """
    record, _ = Export.read(folder / EXPORT_RECORD)
    for file in record.files:
        path = folder / file.path
        found = digest_file(path) if path.is_file() else "missing"
        if found != file.digest:
            raise EvidenceError(f"{path}: {found}, expected {file.digest} by {EXPORT_RECORD}; export it again")
    run = RunDirectory(project.run(short(record.run, RUN_ID_LENGTH)))
    for checkpoint in (*run.checkpoints(), *run.superseded(), *RunDirectory(project.published).checkpoints()):
        there = checkpoint.step == record.step and (checkpoint.path / "manifest.json").exists()
        if there and checkpoint.digest == record.checkpoint:
            return checkpoint
    raise NotFoundError(
        f"{folder}: was exported from checkpoint {record.checkpoint}, which stands neither in {run.path} nor in "
        f"{project.published}"
    )
