"""Writes an `.idx` block by block, and reads its lengths so: memory does not grow with the number of documents."""

import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from treering.data.corpus.index_header import (
    HEADER,
    INT32,
    MAGIC,
    UINT16,
    VERSION,
    IndexHeader,
    opened_index,
    read_numbers,
)

_BLOCK = 1 << 20


class IndexWriter:
    """Writes what `indexed.index_bytes` gives for all lengths together, when it is left without an error.

    Args:
        path: the `.idx`.
        width: bytes of a token, 2 or 4.
    """

    def __init__(self, path: Path, width: int) -> None:
        self._width = width
        self._file = path.open("w+b")
        self._file.seek(HEADER.size)
        self.num_documents = 0
        self.num_tokens = 0

    def add(self, lengths: npt.NDArray[np.int32]) -> None:
        """Takes the tokens of the next documents: int32 [documents]."""
        self._file.write(lengths.astype("<i4").tobytes())
        self.num_documents += len(lengths)
        self.num_tokens += int(lengths.sum(dtype=np.int64))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._file:
            if error is None:
                self._finish()

    def _finish(self) -> None:
        file, count = self._file, self.num_documents
        file.seek(0)
        file.write(HEADER.pack(MAGIC, VERSION, {2: UINT16, 4: INT32}[self._width], count, count + 1))
        file.flush()
        file.seek(0, os.SEEK_END)
        end = 0
        for start in range(0, count, _BLOCK):
            block = os.pread(file.fileno(), 4 * min(_BLOCK, count - start), HEADER.size + 4 * start)
            ends = end + np.cumsum(np.frombuffer(block, "<i4"), dtype=np.int64) * self._width
            file.write(np.concatenate(([end], ends[:-1])).astype("<i8").tobytes())
            end = int(ends[-1])
        for start in range(0, count + 1, _BLOCK):
            file.write(np.arange(start, min(start + _BLOCK, count + 1), dtype="<i8").tobytes())


def length_blocks(path: Path) -> Iterator[npt.NDArray[np.int32]]:
    """The tokens of each document by an `.idx` that was written here: int32 arrays, one after the other.

    Raises:
        EvidenceError: the index cannot be read.
    """
    with opened_index(path, "the index of a token file") as file:
        count = IndexHeader.read(path, file).num_sequences
        for start in range(0, count, _BLOCK):
            yield read_numbers(path, file, HEADER.size + 4 * start, "<i4", min(_BLOCK, count - start))
