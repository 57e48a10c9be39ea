"""The header of Megatron's `.idx`, and how an index is opened and read part by part.

Source: megatron-core 0.16.1, `megatron/core/datasets/indexed_dataset.py`, version 1 of the index.
"""

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from treering.errors import EvidenceError
from treering.files import open_regular, reason

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
HEADER = struct.Struct("<9sQBQQ")

_OLD_MAGIC = b"TNTIDX"
_DTYPES: dict[int, type[np.generic]] = {
    1: np.uint8,
    2: np.int8,
    3: np.int16,
    4: np.int32,
    5: np.int64,
    8: np.uint16,
}
"""Codes of token types. Source: `DType` there."""
_FLOATS = (6, 7)
"""Codes of floating point; which of them has 4 bytes differs from program to program."""
UINT16, INT32 = 8, 4
_CODES = ", ".join(f"{code} ({np.dtype(dtype).name})" for code, dtype in _DTYPES.items())


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """The header of an `.idx`, whose counts fit the size of the file.

    Attributes:
        dtype: type of a token.
        num_sequences: sequences.
        num_offsets: document offsets, the end included.
        modes: whether a mode for each sequence follows, as megatron-core's multimodal data sets have it.
    """

    dtype: np.dtype[np.generic]
    num_sequences: int
    num_offsets: int
    modes: bool

    @property
    def pointers_at(self) -> int:
        """The byte at which the pointers begin; the lengths begin behind the header."""
        return HEADER.size + 4 * self.num_sequences

    @property
    def documents_at(self) -> int:
        """The byte at which the document offsets begin."""
        return self.pointers_at + 8 * self.num_sequences

    @property
    def modes_at(self) -> int:
        """The byte at which the modes begin."""
        return self.documents_at + 8 * self.num_offsets

    @classmethod
    def read(cls, path: Path, file: BinaryIO) -> "IndexHeader":
        """Reads the header, field by field; no memory is allocated by its counts before they fit the file's size.

        Raises:
            EvidenceError: it is not an index of version 1, or its counts do not fit the size of the file.
        """
        raw, size = file.read(HEADER.size), os.fstat(file.fileno()).st_size
        if raw.startswith(_OLD_MAGIC):
            raise EvidenceError(
                f"{path}: an index of fairseq's format (`--data-impl lazy` or `cached`), expected Megatron's format"
                f" (`--data-impl mmap`), which begins with {MAGIC!r}",
                file=path,
                found=_OLD_MAGIC,
                expected=MAGIC,
            )
        if len(raw) < HEADER.size:
            raise EvidenceError(
                f"{path}: found {len(raw)} bytes, expected a header of {HEADER.size}",
                file=path,
                found=len(raw),
                expected=HEADER.size,
            )
        magic, version, code, num_sequences, num_offsets = HEADER.unpack(raw)
        if magic != MAGIC:
            raise EvidenceError(
                f"{path}: found header {magic!r} at byte 0, expected {MAGIC!r}", file=path, found=magic, expected=MAGIC
            )
        if version != VERSION:
            raise EvidenceError(
                f"{path}: found version {version} at byte 9, expected {VERSION}",
                file=path,
                found=version,
                expected=VERSION,
            )
        if code in _FLOATS:
            raise EvidenceError(
                f"{path}: found token type {code} (floating point) at byte 17: rewards or features, not tokens;"
                " expected whole numbers",
                file=path,
                found=code,
                expected=_CODES,
            )
        if code not in _DTYPES:
            raise EvidenceError(
                f"{path}: found token type {code} at byte 17, expected one of {_CODES}",
                file=path,
                found=code,
                expected=_CODES,
            )
        expected = HEADER.size + 12 * num_sequences + 8 * num_offsets
        modes = size == expected + num_sequences and num_sequences > 0
        if (size != expected and not modes) or not num_offsets:
            raise EvidenceError(
                f"{path}: found {size} bytes, expected {expected} for {num_sequences} sequences and"
                f" {num_offsets} document offsets (bytes 18 to 33)",
                file=path,
                found=size,
                expected=expected,
            )
        return cls(np.dtype(_DTYPES[code]), num_sequences, num_offsets, modes)


@contextmanager
def opened_index(path: Path, wanted: str) -> Iterator[BinaryIO]:
    """An index, opened for reading.

    Raises:
        EvidenceError: the file is missing, cannot be read, or is not a regular file.
    """
    try:
        with open_regular(path) as file:
            yield file
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        found = reason(error)
        raise EvidenceError(f"{path}: {found}; expected {wanted}", file=path, found=found, expected=wanted) from None


def read_numbers(path: Path, file: BinaryIO, start: int, dtype: str, count: int) -> npt.NDArray[Any]:
    """Numbers of an index from a byte on.

    Raises:
        EvidenceError: the file became shorter since its header was read.
    """
    file.seek(start)
    found = np.fromfile(file, dtype, count)
    if len(found) != count:
        raise EvidenceError(
            f"{path}: found {len(found)} numbers from byte {start} on, expected {count}",
            file=path,
            found=len(found),
            expected=count,
        )
    return found
