"""The documents of all shelves under one numbering, in order of the corpora's priority and of their shards."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from treering.data.curate.shards import Finished
from treering.data.curate.shelf import Shelf

_MAX_OPEN = 64
"""Shelves that are open at a time: a process may hold some hundreds of files, and a corpus may have more shards."""

_NAMES = 4096


@dataclass(frozen=True, slots=True)
class Training:
    """The training documents of a shard.

    Attributes:
        shard: where they are.
        places: in the shard: int64 [n].
    """

    shard: Finished
    places: npt.NDArray[np.int64]

    def texts(self) -> Iterator[tuple[int, str]]:
        """Place and text of each of them."""
        shelf = Shelf(self.shard.shelf, self.shard.signatures.ends)
        for place in self.places.tolist():
            yield place, shelf.document(place)["text"]
        shelf.close()


class Library:
    """Finds a document by its number, on disk.

    Args:
        names: of the corpora, in order of priority.
        shards: of each corpus.

    Attributes:
        names: of the corpora.
        shards: of each corpus.
        signatures: of each shard.
        starts: number of each corpus's first document, with the end: int64 [corpora + 1].
        name: `corpus:id` of a document's number; the names asked for last stay in memory.
    """

    def __init__(self, names: Sequence[str], shards: Sequence[Sequence[Finished]]) -> None:
        self.names = list(names)
        self.name = lru_cache(_NAMES)(self._name)
        self.shards = shards
        flat = [shard for corpus in shards for shard in corpus]
        self.signatures = [shard.signatures for shard in flat]
        self._paths = [shard.shelf for shard in flat]
        self._shard_starts = np.cumsum([0, *map(len, self.signatures)])
        self._first_shards = np.cumsum([0, *map(len, shards)])
        self.starts = self._shard_starts[self._first_shards]
        self._open: dict[int, Shelf] = {}

    def corpus(self, number: int) -> int:
        """Place of a document's corpus among the names."""
        return int(np.searchsorted(self.starts, number, side="right")) - 1

    def first(self, corpus: int, shard: int) -> int:
        """Number of the first document of a shard; behind the last shard the end of the corpus."""
        return int(self._shard_starts[self._first_shards[corpus] + shard])

    def document(self, number: int) -> dict[str, Any]:
        """The row of a document."""
        place = int(np.searchsorted(self._shard_starts, number, side="right")) - 1
        shelf = self._open.pop(place, None) or Shelf(self._paths[place], self.signatures[place].ends)
        self._open[place] = shelf
        if len(self._open) > _MAX_OPEN:
            self._open.pop(next(iter(self._open))).close()
        return shelf.document(int(number - self._shard_starts[place]))

    def _name(self, number: int) -> str:
        return f"{self.names[self.corpus(number)]}:{self.document(number)['id']}"

    def close(self) -> None:
        """Closes the shelves."""
        for shelf in self._open.values():
            shelf.close()
        self._open.clear()
