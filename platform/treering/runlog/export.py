"""The record beside exported weights: the way back from a folder that has left the project to its checkpoint."""

from typing import Literal

from pydantic import Field

from treering.config.model import Digest, ModelConfig, PositiveInt
from treering.runlog.export_format import ExportDtype, ExportFormat
from treering.runlog.records import FileRecord, Record

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
