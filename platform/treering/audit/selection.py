"""Which documents are meant: by id, by source, by licence."""

import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from treering.audit.shelf import Shelf
from treering.data.corpus import Corpus
from treering.errors import UserError

_KINDS: Final[tuple[Literal["source", "licence"], ...]] = ("source", "licence")
_SHORTEST_DIGEST: Final = len("sha256:")


@dataclass(frozen=True, slots=True)
class Selector:
    """Documents that somebody asks about.

    Attributes:
        kind: what `value` is compared with.
        value: an id, a shell pattern over source URIs, or a licence as the document table spells it.
        corpus: for an id, the name or the digest (or its beginning) of its corpus.
    """

    kind: Literal["document", "source", "licence"]
    value: str
    corpus: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads `CORPUS:ID`, `source=PATTERN` or `licence=NAME`.

        Raises:
            UserError: it is none of them.
        """
        for kind in _KINDS:
            if text.startswith(f"{kind}="):
                return cls(kind, text.removeprefix(f"{kind}="))
        corpus, colon, document = text.partition(":")
        if not (corpus and colon and document):
            raise UserError(f"documents: found {text!r}, expected CORPUS:ID, source=PATTERN or licence=NAME")
        return cls("document", document, corpus)

    def __str__(self) -> str:
        return f"{self.corpus}:{self.value}" if self.kind == "document" else f"{self.kind}={self.value}"

    def matches(self, corpus: Corpus) -> NDArray[np.int64]:
        """Numbers of a corpus's documents that are meant, ascending.

        Raises:
            EvidenceError: the document table cannot be read.
        """
        own = self.corpus == corpus.name or (
            len(self.corpus) > _SHORTEST_DIGEST and corpus.digest.startswith(self.corpus)
        )
        if self.kind == "document" and not own:
            return np.empty(0, dtype=np.int64)
        table = {name: corpus.column(name) for name in ("id", "source", "licence")}
        return np.flatnonzero(np.asarray(self.mask(table))).astype(np.int64)

    def mask(self, table: Mapping[str, Any] | pa.RecordBatch) -> Any:
        """Which rows of a table with the columns id, source and licence are meant, whatever corpus they are of."""
        if self.kind == "document":
            return pc.equal(table["id"], self.value)
        if self.kind == "licence":
            return pc.equal(table["licence"], self.value)
        fitting = [each for each in pc.unique(table["source"]).to_pylist() if fnmatch.fnmatchcase(each, self.value)]
        return pc.is_in(table["source"], pa.array(fitting, pa.string()))


def select(selectors: Iterable[Selector], shelf: Shelf) -> dict[str, NDArray[np.int64]]:
    """Numbers of the documents that any of some selectors means, ascending, by digest of their corpus.

    Raises:
        EvidenceError: a document table cannot be read.
    """
    found: dict[str, NDArray[np.int64]] = {}
    for selector in selectors:
        for digest, corpus in shelf.corpora.items():
            numbers = selector.matches(corpus)
            if len(numbers):
                found[digest] = np.union1d(found.get(digest, numbers), numbers)
    return found
