"""Megatron's `.bin/.idx`: token files that megatron-core opens, and the reader of those that it wrote.

`.bin` holds the tokens of all sequences, one after the other. `.idx` holds a header of 34 bytes, then the length of
every sequence (int32), its byte position in `.bin` (int64) and, for every document, the number of its first sequence
(int64, with the end). A multimodal data set adds a mode for every sequence (int8). We write one sequence a document.

An index says everything about a sequence twice: a sequence begins where the lengths before it end, and the last one
ends with the `.bin`. So a changed number is an error, and not another answer. What cannot be seen: the length of the
last sequence where there is no `.bin`, numbers that were changed together so that they fit again, and a document offset
that was moved between its neighbours, which no order of GPT reads.

Source: megatron-core 0.16.1, `megatron/core/datasets/indexed_dataset.py`, version 1 of the index.
"""

import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np
import numpy.typing as npt

from treering.errors import EvidenceError
from treering.files import open_regular

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
_HEADER = struct.Struct("<9sQBQQ")

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
_UINT16 = 8
_CODES = ", ".join(f"{code} ({np.dtype(dtype).name})" for code, dtype in _DTYPES.items())
_CHUNK = 1 << 20


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


@dataclass(frozen=True, slots=True)
class _Header:
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
        return _HEADER.size + 4 * self.num_sequences

    @property
    def documents_at(self) -> int:
        """The byte at which the document offsets begin."""
        return self.pointers_at + 8 * self.num_sequences

    @property
    def modes_at(self) -> int:
        """The byte at which the modes begin."""
        return self.documents_at + 8 * self.num_offsets

    @classmethod
    def read(cls, path: Path, file: BinaryIO) -> "_Header":
        """Reads the header, field by field; nothing is allocated by what it says.

        Raises:
            EvidenceError: no index of version 1, or its counts do not fit the size of the file.
        """
        raw, size = file.read(_HEADER.size), os.fstat(file.fileno()).st_size
        if raw.startswith(_OLD_MAGIC):
            raise EvidenceError(
                f"{path}: an index of fairseq's format (`--data-impl lazy` or `cached`), expected Megatron's format"
                f" (`--data-impl mmap`), which begins with {MAGIC!r}"
            )
        if len(raw) < _HEADER.size:
            raise EvidenceError(f"{path}: found {len(raw)} bytes, expected a header of {_HEADER.size}")
        magic, version, code, num_sequences, num_offsets = _HEADER.unpack(raw)
        if magic != MAGIC:
            raise EvidenceError(f"{path}: found header {magic!r} at byte 0, expected {MAGIC!r}")
        if version != VERSION:
            raise EvidenceError(f"{path}: found version {version} at byte 9, expected {VERSION}")
        if code in _FLOATS:
            raise EvidenceError(
                f"{path}: found token type {code} (floating point) at byte 17: rewards or features, not tokens;"
                " expected whole numbers"
            )
        if code not in _DTYPES:
            raise EvidenceError(f"{path}: found token type {code} at byte 17, expected one of {_CODES}")
        expected = _HEADER.size + 12 * num_sequences + 8 * num_offsets
        modes = size == expected + num_sequences and num_sequences > 0
        if (size != expected and not modes) or not num_offsets:
            raise EvidenceError(
                f"{path}: found {size} bytes, expected {expected} for {num_sequences} sequences and"
                f" {num_offsets} document offsets (bytes 18 to 33)"
            )
        return cls(np.dtype(_DTYPES[code]), num_sequences, num_offsets, modes)


@contextmanager
def _opened(path: Path, wanted: str) -> Iterator[BinaryIO]:
    """An index, opened for reading.

    Raises:
        EvidenceError: the file is missing, cannot be read, or is not a regular file.
    """
    try:
        with open_regular(path) as file:
            yield file
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        reason = error.strerror if isinstance(error, OSError) else error
        raise EvidenceError(f"{path}: {reason}; expected {wanted}") from None


@dataclass(frozen=True, slots=True)
class SequenceIndex:
    """The sequences that an `.idx` lists. Each entry fits its neighbours, and the last one fits the `.bin`.

    Attributes:
        lengths: tokens of each sequence, aligned: int32 [num_sequences].
        num_documents: documents by the document offsets; 0 where GPT-NeoX merged files, which loses the offsets.
        num_bytes: bytes that the `.bin` has by the index.
        bin_found: whether there is a `.bin` to compare that with.
    """

    lengths: npt.NDArray[np.int32]
    num_documents: int
    num_bytes: int
    bin_found: bool

    @classmethod
    def open(cls, idx_path: Path, bin_path: Path) -> "SequenceIndex":
        """Reads an index part by part and checks every entry; the tokens are not read.

        Args:
            idx_path: the index.
            bin_path: the token file; only its size is read, and it may be missing.

        Raises:
            EvidenceError: the index is missing, damaged or not of text, lists no sequence, or does not fit the `.bin`.
        """
        with _opened(idx_path, "the index of a token file") as file:
            header = _Header.read(idx_path, file)
            if not header.num_sequences:
                raise EvidenceError(f"{idx_path}: found 0 sequences (bytes 18 to 25), expected at least one")
            lengths, num_bytes = _read_sequences(idx_path, file, header)
        bin_found = _check_bin(bin_path, idx_path, num_bytes)
        return cls(lengths, header.num_offsets - 1, num_bytes, bin_found)


def read_sequence_lengths(path: Path) -> npt.NDArray[np.int32]:
    """Tokens of each sequence by an `.idx`: int32 [num_sequences], aligned.

    Raises:
        EvidenceError: as `SequenceIndex.open`.
    """
    return SequenceIndex.open(path, path.with_name(f"{path.name.removesuffix('.idx')}.bin")).lengths


def _part(path: Path, file: BinaryIO, start: int, dtype: str, count: int) -> npt.NDArray[Any]:
    """Numbers of an index from a byte on.

    Raises:
        EvidenceError: the file became shorter since its header was read.
    """
    file.seek(start)
    found = np.fromfile(file, dtype, count)
    if len(found) != count:
        raise EvidenceError(f"{path}: found {len(found)} numbers from byte {start} on, expected {count}")
    return found


def _read_sequences(path: Path, file: BinaryIO, header: _Header) -> tuple[npt.NDArray[np.int32], int]:
    """Reads the lengths of an index and checks all of it; every writer puts the sequences one after the other.

    Returns:
        Tokens of each sequence, and bytes of all of them.

    Raises:
        EvidenceError: a length is negative, a sequence does not begin where the one before it ends, a document offset
            is out of order or out of range, or a sequence is not text.
    """
    lengths = _part(path, file, _HEADER.size, "<i4", header.num_sequences).astype(np.int32, copy=False)
    end = 0
    for start in range(0, len(lengths), _CHUNK):
        part = lengths[start : start + _CHUNK]
        negative = np.flatnonzero(part < 0)
        if len(negative):
            at = start + int(negative[0])
            raise EvidenceError(
                f"{path}: sequence {at} has length {lengths[at]} (byte {_HEADER.size + 4 * at}), expected at least 0"
            )
        ends = end + np.cumsum(part, dtype=np.int64) * header.dtype.itemsize
        expected = np.concatenate(([end], ends[:-1]))
        pointers = _part(path, file, header.pointers_at + 8 * start, "<i8", len(part))
        wrong = np.flatnonzero(pointers != expected)
        if len(wrong):
            at = start + int(wrong[0])
            raise EvidenceError(
                f"{path}: sequence {at} begins at byte {pointers[wrong[0]]} of the token file (byte"
                f" {header.pointers_at + 8 * at} of the index), expected {expected[wrong[0]]}, where the lengths before"
                f" it end (tokens of {header.dtype.itemsize} bytes)"
            )
        end = int(ends[-1])
    _check_documents(path, file, header)
    _check_modes(path, file, header)
    return lengths, end


def _check_documents(path: Path, file: BinaryIO, header: _Header) -> None:
    """Checks that the document offsets ascend from 0 to the number of sequences.

    GPT-NeoX writes a single 0 where it merges files. Megatron reads sequences for GPT, and no document offset.

    Raises:
        EvidenceError: an offset is out of order or out of range.
    """
    before = 0
    for start in range(0, header.num_offsets, _CHUNK):
        offsets = _part(path, file, header.documents_at + 8 * start, "<i8", min(_CHUNK, header.num_offsets - start))
        least = np.concatenate(([before], offsets[:-1]))
        most = np.full(len(offsets), header.num_sequences)
        if start == 0:
            most[0] = 0
        wrong = np.flatnonzero((offsets < least) | (offsets > most))
        if len(wrong):
            at = start + int(wrong[0])
            raise EvidenceError(
                f"{path}: document {at} begins at sequence {offsets[wrong[0]]} (byte {header.documents_at + 8 * at}),"
                f" expected {least[wrong[0]]} to {most[wrong[0]]}"
            )
        before = int(offsets[-1])
    if before != header.num_sequences and header.num_offsets > 1:
        raise EvidenceError(
            f"{path}: the documents end at sequence {before} (byte {header.modes_at - 8}), expected"
            f" {header.num_sequences}, the number of sequences"
        )


def _check_modes(path: Path, file: BinaryIO, header: _Header) -> None:
    """Refuses an index of images or other features beside the text.

    Raises:
        EvidenceError: a sequence has another mode than 0.
    """
    if not header.modes:
        return
    for start in range(0, header.num_sequences, _CHUNK):
        count = min(_CHUNK, header.num_sequences - start)
        other = np.flatnonzero(_part(path, file, header.modes_at + start, "<i1", count))
        if len(other):
            raise EvidenceError(
                f"{path}: an index with modes (a multimodal data set): sequence {start + int(other[0])} has another"
                " mode than 0; expected an index of text alone"
            )


def _check_bin(bin_path: Path, idx_path: Path, expected: int) -> bool:
    """Compares the size of a token file with its index.

    Returns:
        Whether there is a token file.

    Raises:
        EvidenceError: it has another size, or is not a regular file.
    """
    try:
        found = bin_path.stat()
    except (OSError, ValueError):
        return False
    if not stat.S_ISREG(found.st_mode):
        raise EvidenceError(f"{bin_path}: found no regular file, expected a token file")
    if found.st_size != expected:
        raise EvidenceError(f"{bin_path}: found {found.st_size} bytes, expected {expected} by {idx_path.name}")
    return True


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
            EvidenceError: a file is missing, the index is damaged, or the two do not fit together.
        """
        with _opened(idx_path, "a pair of token and index file") as file:
            header = _Header.read(idx_path, file)
            lengths, num_bytes = _read_sequences(idx_path, file, header)
            documents = _part(idx_path, file, header.documents_at, "<i8", header.num_offsets)
        if not _check_bin(bin_path, idx_path, num_bytes):
            raise EvidenceError(f"{bin_path}: No such file or directory; expected a pair of token and index file")
        starts = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(lengths, out=starts[1:])
        try:
            tokens = np.memmap(bin_path, header.dtype, "r") if num_bytes else np.empty(0, header.dtype)
        except OSError as error:
            raise EvidenceError(f"{bin_path}: {error.strerror}; expected a pair of token and index file") from None
        return cls(tokens, lengths, starts[documents])


@dataclass(frozen=True, slots=True)
class MappedOffsets:
    """First token of each document, with the end, looked up in a memory-mapped `.idx`; a `data.order.spans.Offsets`.

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
        with _opened(idx_path, "an index of tokens") as file:
            header = _Header.read(idx_path, file)
        num_sequences = header.num_sequences
        if header.num_offsets != num_sequences + 1 or not num_sequences or header.modes:
            raise EvidenceError(
                f"{idx_path}: found {num_sequences} sequences of {header.num_offsets - 1} documents"
                f"{' with modes' * header.modes}, expected one for each"
            )
        lengths = np.memmap(idx_path, "<i4", "r", _HEADER.size, (num_sequences,))
        positions = np.memmap(idx_path, "<i8", "r", header.pointers_at, (num_sequences,))
        width = header.dtype.itemsize
        if lengths[-1] < 1 or positions[-1] < 0 or positions[-1] % width:
            raise EvidenceError(
                f"{idx_path}: document {num_sequences - 1} begins at byte {positions[-1]} and has {lengths[-1]} tokens"
                f" of {width} bytes, expected a multiple of {width} and at least one token"
            )
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
        found, rest = np.divmod(np.fromfile(self.path, "<i8", count, offset=begin), self.token_width_bytes)
        if rest.any():
            self._within(start + int(np.flatnonzero(rest)[0]))
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
        documents = np.minimum(key, len(self) - 2)
        within = np.flatnonzero(self.positions[documents] % self.token_width_bytes)
        if len(within):
            self._within(int(documents[within[0]]))
        lengths = self.lengths[documents]
        wrong = np.flatnonzero(((end - begin != lengths) | (lengths < 1)) & (key < len(self) - 1))
        if len(wrong):
            self._contradiction(int(key[wrong[0]]), int(begin[wrong[0]]), int(end[wrong[0]]))

    def _contradiction(self, document: int, begin: int, end: int) -> NoReturn:
        raise EvidenceError(
            f"{self.path}: document {document} begins at token {begin} and has {self.lengths[document]} tokens, but the"
            f" next one begins at token {end}: the index was changed; `treering verify` names what, `dvc checkout`"
            " restores it"
        )

    def _within(self, document: int) -> NoReturn:
        raise EvidenceError(
            f"{self.path}: document {document} begins at byte {self.positions[document]} of the token file, expected a"
            f" multiple of {self.token_width_bytes}: the index was changed; `treering verify` names what,"
            " `dvc checkout` restores it"
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
