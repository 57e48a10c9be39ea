"""Megatron's `.bin/.idx`: token files that megatron-core opens, and the reader of those that it wrote.

`.bin` holds the tokens of all sequences, one after the other. `.idx` holds a header of 34 bytes, then the length of
every sequence (int32), its byte position in `.bin` (int64) and, for every document, the number of its first sequence
(int64, with the end). We write one sequence a document.

Source: megatron-core 0.16.1, `megatron/core/datasets/indexed_dataset.py`, version 1 of the index.
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from treering.errors import EvidenceError

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
_HEADER = struct.Struct("<9sQBQQ")

_DTYPES: dict[int, type[np.generic]] = {
    1: np.uint8,
    2: np.int8,
    3: np.int16,
    4: np.int32,
    5: np.int64,
    6: np.float64,
    7: np.float32,
    8: np.uint16,
}
"""Codes of token types. Source: `DType` there."""
_UINT16 = 8


def index_bytes(lengths: npt.NDArray[np.int32]) -> bytes:
    """The whole `.idx` of documents with these token counts, one sequence a document, uint16 tokens.

    A pure function of the counts: a damaged index is found, and mended, from the document table.

    Args:
        lengths: tokens of each document: int32 [num_documents].
    """
    width = np.dtype(np.uint16).itemsize
    pointers = np.zeros(len(lengths), dtype=np.int64)
    np.cumsum(lengths[:-1], dtype=np.int64, out=pointers[1:])
    return b"".join(
        (
            _HEADER.pack(MAGIC, VERSION, _UINT16, len(lengths), len(lengths) + 1),
            lengths.astype("<i4").tobytes(),
            (pointers * width).astype("<i8").tobytes(),
            np.arange(len(lengths) + 1, dtype="<i8").tobytes(),
        )
    )


def index_document(position: int, num_documents: int) -> int | None:
    """The document that the byte at `position` of such an `.idx` describes; None in the header or past the end."""
    position -= _HEADER.size
    for width in (4, 8, 8):
        if 0 <= position < width * num_documents:
            return position // width
        position -= width * num_documents
    return None


def _read_header(path: Path, raw: bytes, size: int) -> tuple[np.dtype[np.generic], int, int]:
    """Token type, number of sequences and of document offsets, held against the size of the file.

    Raises:
        EvidenceError: no index of version 1, or of another size.
    """
    if len(raw) < _HEADER.size:
        raise EvidenceError(f"{path}: found {len(raw)} bytes, expected a header of {_HEADER.size}")
    magic, version, code, num_sequences, num_offsets = _HEADER.unpack_from(raw)
    if magic != MAGIC or version != VERSION or code not in _DTYPES:
        raise EvidenceError(
            f"{path}: found header {magic!r}, version {version}, token type {code}; expected an index of"
            f" version {VERSION} with a token type of 1 to {max(_DTYPES)}"
        )
    expected = _HEADER.size + 12 * num_sequences + 8 * num_offsets
    if size != expected or not num_offsets:
        raise EvidenceError(
            f"{path}: found {size} bytes, expected {expected} for {num_sequences} sequences and"
            f" {num_offsets} document offsets"
        )
    return np.dtype(_DTYPES[code]), num_sequences, num_offsets


def read_sequence_lengths(path: Path) -> npt.NDArray[np.int32]:
    """Tokens of each sequence by an `.idx`, without reading the rest of it: int32 [num_sequences], aligned.

    Raises:
        EvidenceError: the file is missing, or no index of version 1.
    """
    try:
        with path.open("rb") as file:
            _, num_sequences, _ = _read_header(path, file.read(_HEADER.size), path.stat().st_size)
            return np.fromfile(file, "<i4", num_sequences).astype(np.int32, copy=False)
    except OSError as error:
        raise EvidenceError(f"{path}: {error.strerror}; expected the index of a token file") from None


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A `.bin/.idx` pair, opened for reading.

    Attributes:
        tokens: all tokens, memory-mapped: [num_tokens].
        sequence_lengths: int32 [num_sequences].
        document_offsets: first token of each document, with the end, aligned: int64 [num_documents + 1].
    """

    tokens: npt.NDArray[np.generic]
    sequence_lengths: npt.NDArray[np.int32]
    document_offsets: npt.NDArray[np.int64]

    @classmethod
    def open(cls, bin_path: Path, idx_path: Path) -> "TokenFile":
        """Opens a pair, ours or megatron-core's.

        Raises:
            EvidenceError: a file is missing, no index of version 1, or the two do not fit together.
        """
        try:
            raw = idx_path.read_bytes()
            size = bin_path.stat().st_size
        except OSError as error:
            raise EvidenceError(
                f"{error.filename}: {error.strerror}; expected a pair of token and index file"
            ) from None
        dtype, num_sequences, num_offsets = _read_header(idx_path, raw, len(raw))
        # np.frombuffer would give views that start at byte 34, misaligned: every search would copy them whole.
        lengths = np.frombuffer(raw, "<i4", num_sequences, _HEADER.size).astype(np.int32)
        pointers = np.frombuffer(raw, "<i8", num_sequences, _HEADER.size + 4 * num_sequences)
        documents = np.frombuffer(raw, "<i8", num_offsets, _HEADER.size + 12 * num_sequences).astype(np.int64)
        starts = np.zeros(num_sequences + 1, dtype=np.int64)
        np.cumsum(lengths, out=starts[1:])
        if not np.array_equal(pointers, starts[:-1] * dtype.itemsize):
            raise EvidenceError(f"{idx_path}: the sequences do not lie one after the other in {bin_path.name}")
        if size != int(starts[-1]) * dtype.itemsize:
            raise EvidenceError(
                f"{bin_path}: found {size} bytes, expected {int(starts[-1]) * dtype.itemsize} by {idx_path.name}"
            )
        if documents.min() < 0 or documents.max() > num_sequences or np.any(np.diff(documents) < 0):
            raise EvidenceError(f"{idx_path}: the document offsets do not ascend from 0 to {num_sequences}")
        tokens = np.memmap(bin_path, dtype, "r") if size else np.empty(0, dtype)
        return cls(tokens, lengths, starts[documents])


@dataclass(frozen=True, slots=True)
class MappedOffsets:
    """First token of each document, with the end, looked up in a memory-mapped `.idx`; a `treering.data.spans.Offsets`.

    Opening reads the header and the last entries alone, whatever the number of documents. For an index with one
    sequence a document, as `index_bytes` writes it. The index says of each document where it begins and how long it is:
    of those that are looked up both are held against each other, so that a changed byte gives no other answer.
    `Corpus.verify` digests all of it.

    Attributes:
        path: the index.
        num_tokens: tokens of all documents.
        positions: byte of `.bin` at which each document begins: [num_documents], not aligned.
        lengths: tokens of each document: [num_documents], not aligned.
        token_width_bytes: bytes of a token.
    """

    path: Path
    num_tokens: int
    positions: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int32]
    token_width_bytes: int

    @classmethod
    def open(cls, idx_path: Path) -> "MappedOffsets":
        """Opens an index.

        Raises:
            EvidenceError: there is none, or it has not one sequence for each document.
        """
        try:
            size = idx_path.stat().st_size
            with idx_path.open("rb") as file:
                raw = file.read(_HEADER.size)
        except OSError as error:
            raise EvidenceError(f"{idx_path}: {error.strerror}; expected an index of tokens") from None
        dtype, num_sequences, num_offsets = _read_header(idx_path, raw, size)
        if num_offsets != num_sequences + 1 or not num_sequences:
            raise EvidenceError(
                f"{idx_path}: found {num_sequences} sequences of {num_offsets - 1} documents, expected one for each"
            )
        lengths = np.memmap(idx_path, "<i4", "r", _HEADER.size, (num_sequences,))
        positions = np.memmap(idx_path, "<i8", "r", _HEADER.size + 4 * num_sequences, (num_sequences,))
        width = dtype.itemsize
        num_tokens = int(positions[-1]) // width + int(lengths[-1])
        return cls(idx_path, num_tokens, np.asarray(positions), np.asarray(lengths), width)

    def __len__(self) -> int:
        return len(self.positions) + 1

    def __getitem__(self, key: Any, /) -> Any:
        """Offsets by position: a whole number, a slice, or an array of whole numbers of at least 0.

        Raises:
            EvidenceError: the index contradicts itself about one of these documents.
        """
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            return self._stretch(start, stop) if step == 1 else self[np.arange(start, stop, step)]
        if isinstance(key, np.ndarray):
            found = self._at(key)
            self._check(key, found, self._at(np.minimum(key + 1, len(self) - 1)))
            return found
        return int(self[np.array([range(len(self))[key]])][0])

    def _at(self, key: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Offsets as they stand there."""
        found = self.positions[np.minimum(key, len(self) - 2)] // self.token_width_bytes
        found[key == len(self) - 1] = self.num_tokens
        return found

    def _stretch(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Offsets [start, stop), read and not mapped: a walk through all of them leaves no page of the file behind."""
        count = max(min(stop, len(self) - 1) - start, 0)
        begin = _HEADER.size + 4 * len(self.positions) + 8 * start
        found = np.fromfile(self.path, "<i8", count, offset=begin) // self.token_width_bytes
        if stop == len(self) > start:
            found = np.append(found, self.num_tokens)
        if len(found) > 1:
            lengths = np.fromfile(self.path, "<i4", len(found) - 1, offset=_HEADER.size + 4 * start)
            wrong = np.flatnonzero((np.diff(found) != lengths) | (lengths < 1))
            if len(wrong):
                self._contradiction(start + int(wrong[0]), *found[wrong[0] :][:2].tolist())
        return found

    def _check(self, key: npt.NDArray[np.int64], begin: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> None:
        """Holds where documents begin and where the next ones do against their lengths; the end is no document."""
        lengths = self.lengths[np.minimum(key, len(self) - 2)]
        wrong = np.flatnonzero(((end - begin != lengths) | (lengths < 1)) & (key < len(self) - 1))
        if len(wrong):
            self._contradiction(int(key[wrong[0]]), int(begin[wrong[0]]), int(end[wrong[0]]))

    def _contradiction(self, document: int, begin: int, end: int) -> NoReturn:
        raise EvidenceError(
            f"{self.path}: document {document} begins at token {begin} and has {self.lengths[document]} tokens, but the"
            f" next one begins at token {end}: the index was changed; `treering verify` names what, `dvc checkout`"
            " restores it"
        )

    def searchsorted(self, v: Any, side: str = "left") -> Any:
        """As `numpy.searchsorted`; that itself would copy the whole of an array that is not aligned.

        Raises:
            EvidenceError: the index contradicts itself about the documents that a search ends between.
        """
        values = np.asarray(v, dtype=np.int64).reshape(-1)
        low, high = np.zeros(values.shape, dtype=np.int64), np.full(values.shape, len(self), dtype=np.int64)
        for _ in range(len(self).bit_length()):
            middle = np.minimum((low + high) // 2, len(self) - 1)
            at = self._at(middle)
            after = (at <= values if side == "right" else at < values) & (low < high)
            low, high = np.where(after, middle + 1, low), np.where(after, high, np.minimum(middle, high))
        inside = low[(low > 0) & (low < len(self))] - 1
        self._check(inside, self._at(inside), self._at(inside + 1))
        return low.reshape(np.shape(v))
