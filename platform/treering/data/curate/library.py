"""The documents of all shelves under one numbering, in order of the corpora's priority."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from treering.data.curate.shelf import Shelf, Signatures

_NAMES = 4096


class Library:
    """Finds a document by its number, on disk.

    Args:
        names: of the corpora, in order of priority.
        work: folder of their shelves.

    Attributes:
        names: of the corpora.
        signatures: of each corpus.
        starts: number of each corpus's first document, with the end: int64 [corpora + 1].
        name: `corpus:id` of a document's number; the names asked for last stay in memory.
    """

    def __init__(self, names: Sequence[str], work: Path) -> None:
        self.names = list(names)
        self.name = lru_cache(_NAMES)(self._name)
        self.signatures = [Signatures(work / name) for name in names]
        self.starts = np.cumsum([0, *map(len, self.signatures)])
        self._shelves = [
            Shelf(work / f"{name}.jsonl", signatures.ends)
            for name, signatures in zip(names, self.signatures, strict=True)
        ]

    def corpus(self, number: int) -> int:
        """Place of a document's corpus among the names."""
        return int(np.searchsorted(self.starts, number, side="right")) - 1

    def document(self, number: int) -> dict[str, Any]:
        """The row of a document."""
        corpus = self.corpus(number)
        return self._shelves[corpus].document(int(number - self.starts[corpus]))

    def _name(self, number: int) -> str:
        return f"{self.names[self.corpus(number)]}:{self.document(number)['id']}"

    def close(self) -> None:
        """Closes the shelves."""
        for shelf in self._shelves:
            shelf.close()
