"""What is in a capsule: its own record, `capsule.json`, and the names of its parts."""

from typing import Any, Final, Literal

from pydantic import Field

from treering.config.model import Digest, Section
from treering.config.schema import Name
from treering.runlog.records import Record, RunState

RECORD: Final = "capsule.json"
METADATA: Final = "ro-crate-metadata.json"
RUN: Final = "run"
"""Folder of the run's own records, as they are in `runs/<id>`."""


class Packed(Section):
    """A file of the capsule, or of a corpus."""

    size: int = Field(ge=0, description="bytes")
    digest: Digest


class NeededCorpus(Section):
    """A corpus that the run read: not in the capsule, found by its content."""

    name: Name
    split: Literal["train", "heldout"]
    digest: Digest
    tokens: int | None
    documents: int | None
    licence: str
    source: tuple[str, ...]
    files: dict[Literal["corpus.bin", "corpus.idx", "documents.parquet"], Packed] = Field(
        description="by name in the corpus's folder; empty where the corpus was missing"
    )
    manifest: str | None = Field(description="its manifest in the capsule; None where the corpus was missing")

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(each.size for each in self.files.values())


class Vector(Section):
    """A sample of the data order."""

    sample: int = Field(ge=0)
    corpus: str
    epoch: int
    index: int = Field(ge=0, description="number inside the corpus")
    tokens: Digest | None = Field(description="of its tokens; None where the corpus was missing")


class OrderVectors(Section):
    """Golden vectors of one data order: what an implementation of the order must give."""

    blend: Digest
    sample_start: int
    sample_end: int
    vectors: tuple[Vector, ...] = Field(description="first and last sample of each component in the range")
    beginning: Digest = Field(description="of component, epoch and index of the first samples of the range")


class Capsule(Record):
    """What a capsule is."""

    schema_version: Literal[1] = 1
    treering: str = Field(description="version that made it")
    kind: Literal["trained", "recorded"] = Field(description="by Treering's trainer, or by another one")
    run: Digest
    experiment: str
    state: RunState
    steps: int = Field(ge=0, description="last step of the newest attempt")
    written_at: float = Field(description="time of the newest record, Unix seconds")
    code: dict[str, Any] = Field(description="of the newest attempt: digest, commit, dirty; without the diff")
    files: dict[str, Packed] = Field(description="everything else in the capsule but the RO-Crate metadata")
    corpora: tuple[NeededCorpus, ...]
    tokenizer: Packed | None = Field(description="of the corpora; None where it was missing, or none is known")
    orders: tuple[OrderVectors, ...]
    left_out: tuple[str, ...] = Field(description="what the run has and the capsule has not, in words")
