"""The documents of a recorded run: what the run is, how an attempt started, and each checkpoint."""

from typing import Any, Literal

from pydantic import Field

from treering.config.model import Digest, GrowingSection, PositiveInt, Section
from treering.runlog.records import Record


class RecordedRun(Record):
    """What a run of another trainer is; the digest of this document is the run's id."""

    schema_version: Literal[1] = 1
    experiment: str
    config: dict[str, Any] = Field(description="the trainer's settings, as it reported them")
    blend: Digest | None = Field(description="of the data order, where the trainer reads by Treering's")
    repetition: int = Field(ge=0, description="how many finished runs of the same experiment and config came before")


class ResumePoint(Section):
    """The ring after which an attempt goes on."""

    attempt: PositiveInt
    step: PositiveInt
    ring: Digest


class RecordedHeader(Record, GrowingSection):
    """What an attempt was started with; its digest is `prev` of the first ring of every rank."""

    added = frozenset({"folder", "process_started_at"})

    attempt: PositiveInt
    run: Digest
    parent: ResumePoint | None
    started_at: float = Field(description="Unix seconds")
    process_started_at: float | None = Field(None, description="of this process; None in older headers")
    host: str
    process: int
    world_size: PositiveInt = Field(description="ranks that write rings")
    command: tuple[str, ...] = Field(description="of the process, without passwords")
    folder: str | None = Field(None, description="working directory of the process; None in older headers")
    code: dict[str, Any] = Field(description="script and its digest, commit, dirty, diff of the trainer's repository")
    environment: dict[str, Any] = Field(description="digest, python, packages, variables, drivers")
    devices: tuple[dict[str, Any], ...]
    launch: dict[str, Any] | None = Field(description="the launcher of the ranks, where there is one")
    data: dict[str, Any] | None = Field(
        description="where the samples come from, where the trainer reads by a blend: first sample, corpora"
    )

    @property
    def writes_since(self) -> float | None:
        """The earliest time at which the process may have written a file, Unix seconds; None where it is not known."""
        return None if self.process_started_at is None else min(self.started_at, self.process_started_at)

    @property
    def resumed_step(self) -> int:
        """The step after which the attempt goes on, 0 at the beginning."""
        return self.parent.step if self.parent else 0


class RecordedFile(Section):
    """One file of a checkpoint."""

    path: str
    size: int = Field(ge=0)
    digest: Digest | None = Field(description="None where the trainer asked for sizes alone")


class RecordedCheckpoint(Record):
    """A checkpoint that the trainer wrote, wherever it wrote it."""

    run: Digest
    attempt: PositiveInt
    step: PositiveInt
    ring: Digest = Field(description="of rank 0, newest at the time")
    path: str = Field(description="folder or file as the trainer named it, absolute")
    created_at: float
    files: tuple[RecordedFile, ...]
