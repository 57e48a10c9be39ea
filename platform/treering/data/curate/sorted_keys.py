"""Documents with equal keys, found by sorting on disk: digests for exact duplicates, band hashes for candidates.

Two steps, each a function of a part of the data. `SortedKeys.write` sorts the keys of one shard of documents into one
file. `parts` then cuts the range of all keys into parts that fit into memory, and `groups` merges one part of all
shards and returns the documents with equal keys. A part holds all documents of its keys, so parts are independent.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from treering.data.curate.disk_array import DiskArray, DiskList
from treering.data.words import Hashes

_ALL_KEYS = 1 << 64
_WORD_BYTES, _NUMBER_BYTES = 8, 4
_PART_ROW_BYTES = 160
"""Most memory for a document of a part: its key, number and place, before and after sorting, and as an object."""

Group = list[int] | DiskList
"""Numbers of at least two documents with the same key, ascending; on disk if they are too many for memory."""


@dataclass(frozen=True, slots=True)
class SortedKeys:
    """The keys of one shard on disk, sorted in each column, with the document of each key.

    For each column the file has the words of all keys (the most significant word first, uint64 [words, rows]) and then
    the documents' numbers, counted from `first` (uint32 [rows]).

    Attributes:
        path: the file.
        first: number that the documents' numbers are counted from.
        rows: number of documents.
        words: number of 64-bit words in a key.
    """

    path: Path
    first: int
    rows: int
    words: int

    @classmethod
    def write(cls, path: Path, numbers: npt.NDArray[np.int64], keys: Hashes) -> "SortedKeys":
        """Sorts the keys of a shard.

        Args:
            path: the new file.
            numbers: the documents, ascending; the highest is less than 2³² above the lowest: int64 [rows].
            keys: uint64 [rows, columns, words].
        """
        first = int(numbers[0]) if len(numbers) else 0
        offsets = (numbers - first).astype(np.uint32)
        with path.open("wb") as file:
            for column in range(keys.shape[1]):
                words = np.ascontiguousarray(keys[:, column].T)
                order = np.lexsort(words[::-1])  # stable: documents with equal keys stay in order
                for word in words:
                    word[order].tofile(file)
                offsets[order].tofile(file)
        return cls(path, first, len(numbers), keys.shape[2])

    def position(self, column: int, word: int, key: int, begin: int, end: int) -> int:
        """First row of a column's [begin, end) of which a word is at least `key`; the word must be sorted there."""
        start = self._start(column) + word * _WORD_BYTES * self.rows
        with self.path.open("rb") as file:

            def at(row: int) -> int:
                file.seek(start + _WORD_BYTES * row)
                return int.from_bytes(file.read(_WORD_BYTES), "little")

            return begin + bisect_left(range(begin, end), key, key=at)

    def keys(self, column: int, word: int, begin: int, end: int) -> Hashes:
        """A word of the keys of some rows."""
        start = self._start(column) + _WORD_BYTES * (word * self.rows + begin)
        return np.fromfile(self.path, np.uint64, end - begin, offset=start)

    def numbers(self, column: int, begin: int, end: int) -> npt.NDArray[np.int64]:
        """The documents of some rows."""
        start = self._start(column) + _WORD_BYTES * self.words * self.rows + _NUMBER_BYTES * begin
        return self.first + np.fromfile(self.path, np.uint32, end - begin, offset=start).astype(np.int64)

    def _start(self, column: int) -> int:
        return column * self.rows * (_WORD_BYTES * self.words + _NUMBER_BYTES)


@dataclass(frozen=True, slots=True)
class Part:
    """All documents of some keys of a column.

    Attributes:
        column: number of the column.
        slices: the rows [begin, end) of each shard.
        equal: all keys are the same, and their documents are more than fit into memory.
    """

    column: int
    slices: tuple[tuple[int, int], ...]
    equal: bool


def equal_keys(shards: Sequence[SortedKeys], num_columns: int, scratch: Path, memory_bytes: int) -> Iterator[Group]:
    """The documents with equal keys: column after column, each in order of the keys. Removes the shards at the end."""
    max_rows = max(2, memory_bytes // 4 // _PART_ROW_BYTES)
    for column in range(num_columns):
        for part in parts(shards, column, max_rows):
            yield from groups(shards, part, scratch / "group", max_rows)
    for shard in shards:
        shard.path.unlink()


def parts(shards: Sequence[SortedKeys], column: int, max_rows: int) -> Iterator[Part]:
    """Cuts a column into parts of at most `max_rows` documents, in order of the keys."""
    whole = tuple((0, shard.rows) for shard in shards)
    yield from _halves(shards, Part(column, whole, equal=False), 0, (0, _ALL_KEYS), max_rows)


def _halves(
    shards: Sequence[SortedKeys], part: Part, word: int, keys: tuple[int, int], max_rows: int
) -> Iterator[Part]:
    """Halves a part until it fits; the word is in the range of keys, and the words before it are one."""
    size = sum(end - begin for begin, end in part.slices)
    low, high = keys
    if size <= max_rows:
        if size > 1:
            yield part
    elif high - low > 1:
        middle = (low + high) // 2
        cuts = [
            shard.position(part.column, word, middle, begin, end)
            for shard, (begin, end) in zip(shards, part.slices, strict=True)
        ]
        lower = tuple((begin, cut) for (begin, _), cut in zip(part.slices, cuts, strict=True))
        upper = tuple((cut, end) for (_, end), cut in zip(part.slices, cuts, strict=True))
        yield from _halves(shards, Part(part.column, lower, equal=False), word, (low, middle), max_rows)
        yield from _halves(shards, Part(part.column, upper, equal=False), word, (middle, high), max_rows)
    elif word + 1 < shards[0].words:
        yield from _halves(shards, part, word + 1, (0, _ALL_KEYS), max_rows)
    else:
        yield Part(part.column, part.slices, equal=True)


def groups(shards: Sequence[SortedKeys], part: Part, scratch: Path, max_rows: int) -> Iterator[Group]:
    """Merges the shards' rows of a part: the groups of documents with equal keys, in order of the keys.

    A group is valid until the next one is taken.
    """
    if part.equal:
        yield _one_group(shards, part, scratch, max_rows)
        return
    taken = [(shard, *rows) for shard, rows in zip(shards, part.slices, strict=True)]
    words = np.stack(
        [
            np.concatenate([shard.keys(part.column, word, begin, end) for shard, begin, end in taken])
            for word in range(shards[0].words)
        ]
    )
    order = np.lexsort(words[::-1])  # stable, and shards are in order of their documents
    words = words[:, order]
    again = np.concatenate(([False], (words[:, 1:] == words[:, :-1]).all(axis=0)))
    shared = again.copy()
    shared[:-1] |= again[1:]
    del words
    numbers = np.concatenate([shard.numbers(part.column, begin, end) for shard, begin, end in taken])
    members = numbers[order[shared]].tolist()
    bounds = [*np.flatnonzero(~again[shared]).tolist(), len(members)]
    for start, end in pairwise(bounds):
        yield members[start:end]


def _one_group(shards: Sequence[SortedKeys], part: Part, scratch: Path, max_rows: int) -> DiskList:
    size = sum(end - begin for begin, end in part.slices)
    group = DiskArray(scratch, size, "q", _WORD_BYTES * max_rows)
    filled = 0
    for shard, (begin, end) in zip(shards, part.slices, strict=True):
        for start in range(begin, end, max_rows):
            numbers = shard.numbers(part.column, start, min(end, start + max_rows))
            group.array[filled : filled + len(numbers)] = numbers
            filled += len(numbers)
            group.release()
    return DiskList(group)
