"""Megatron's `.bin/.idx`: writes indexes that megatron-core opens, and reads token files that megatron-core wrote.

`.bin` holds the tokens of all sequences, one after the other. `.idx` holds a header of 34 bytes, then the length of
every sequence (int32), its byte position in `.bin` (int64) and, for every document, the number of its first sequence
(int64, with the end). A multimodal data set adds a mode for every sequence (int8). We write one sequence a document.

An index holds everything about a sequence twice: a sequence begins where the lengths before it end, and the last one
ends with the `.bin`. So a changed number is an error and never another answer. Four changes cannot be detected: the
length of the last sequence without a `.bin` (the report names it), numbers that were changed together so that they fit
again, a token type of the same width, and a document offset that was moved between its neighbours. No order of GPT
reads the last two.

Source: megatron-core 0.16.1, `megatron/core/datasets/indexed_dataset.py`, version 1 of the index.

Read are whole numbers of any width, sequences without tokens, documents of several sequences (GPT reads sequences, and
the numbers are theirs), and an index that GPT-NeoX merged. An index with modes other than text, of floating point, or
of fairseq's format (`--data-impl lazy`, `cached`) is refused by name.
"""

import stat
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn

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
from treering.errors import EvidenceError
from treering.files import reason

_CHUNK = 1 << 20


def index_bytes(lengths: npt.NDArray[np.int32], width: int = 2) -> bytes:
    """The whole `.idx` of documents with these token counts, one sequence a document, uint16 or int32 tokens.

    A pure function of its arguments, so that a damaged index is found, and made again, from the document table.

    Args:
        lengths: tokens of each document: int32 [num_documents].
        width: bytes of a token, 2 or 4.
    """
    pointers = np.zeros(len(lengths), dtype=np.int64)
    np.cumsum(lengths[:-1], dtype=np.int64, out=pointers[1:])
    return b"".join(
        (
            HEADER.pack(MAGIC, VERSION, {2: UINT16, 4: INT32}[width], len(lengths), len(lengths) + 1),
            lengths.astype("<i4").tobytes(),
            (pointers * width).astype("<i8").tobytes(),
            np.arange(len(lengths) + 1, dtype="<i8").tobytes(),
        )
    )


def index_document(position: int, num_documents: int) -> int | None:
    """The document that the byte at `position` of such an `.idx` describes; None in the header or past the end."""
    position -= HEADER.size
    for width in (4, 8, 8):
        if 0 <= position < width * num_documents:
            return position // width
        position -= width * num_documents
    return None


@dataclass(frozen=True, slots=True)
class SequenceIndex:
    """The sequences that an `.idx` lists. Each entry fits its neighbours, and the last one fits the `.bin`.

    Attributes:
        lengths: tokens of each sequence, aligned: int32 [num_sequences].
        num_documents: documents by the document offsets; 0 where GPT-NeoX merged files, which loses the offsets.
        num_bytes: bytes that the `.bin` has by the index.
        bin_found: whether the `.bin` exists, and so was compared with that.
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
        with opened_index(idx_path, "the index of a token file") as file:
            header = IndexHeader.read(idx_path, file)
            if not header.num_sequences:
                raise EvidenceError(
                    f"{idx_path}: found 0 sequences (bytes 18 to 25), expected at least one",
                    file=idx_path,
                    found=0,
                    expected="at least one",
                )
            lengths, num_bytes = _read_sequences(idx_path, file, header)
        bin_found = _check_bin(bin_path, idx_path, num_bytes)
        return cls(lengths, header.num_offsets - 1, num_bytes, bin_found)


def read_sequence_lengths(path: Path) -> npt.NDArray[np.int32]:
    """Tokens of each sequence by an `.idx`: int32 [num_sequences], aligned.

    Raises:
        EvidenceError: as `SequenceIndex.open`.
    """
    return SequenceIndex.open(path, path.with_name(f"{path.name.removesuffix('.idx')}.bin")).lengths


def _read_sequences(path: Path, file: BinaryIO, header: IndexHeader) -> tuple[npt.NDArray[np.int32], int]:
    """Reads the lengths of an index and checks all of it; every writer puts the sequences one after the other.

    Returns:
        Tokens of each sequence, and bytes of all of them.

    Raises:
        EvidenceError: a length is negative, a sequence does not begin where the one before it ends, a document offset
            is out of order or out of range, or a sequence is not text.
    """
    lengths = read_numbers(path, file, HEADER.size, "<i4", header.num_sequences).astype(np.int32, copy=False)
    end = 0
    for start in range(0, len(lengths), _CHUNK):
        part = lengths[start : start + _CHUNK]
        negative = np.flatnonzero(part < 0)
        if len(negative):
            at = start + int(negative[0])
            raise EvidenceError(
                f"{path}: sequence {at} has length {lengths[at]} (byte {HEADER.size + 4 * at}), expected at least 0",
                file=path,
                found=int(lengths[at]),
                expected="at least 0",
            )
        ends = end + np.cumsum(part, dtype=np.int64) * header.dtype.itemsize
        expected = np.concatenate(([end], ends[:-1]))
        pointers = read_numbers(path, file, header.pointers_at + 8 * start, "<i8", len(part))
        wrong = np.flatnonzero(pointers != expected)
        if len(wrong):
            at = start + int(wrong[0])
            raise EvidenceError(
                f"{path}: sequence {at} begins at byte {pointers[wrong[0]]} of the token file (byte"
                f" {header.pointers_at + 8 * at} of the index), expected {expected[wrong[0]]}, where the lengths before"
                f" it end (tokens of {header.dtype.itemsize} bytes)",
                file=path,
                found=int(pointers[wrong[0]]),
                expected=int(expected[wrong[0]]),
            )
        end = int(ends[-1])
    _check_documents(path, file, header)
    _check_modes(path, file, header)
    return lengths, end


def _check_documents(path: Path, file: BinaryIO, header: IndexHeader) -> None:
    """Checks that the document offsets ascend from 0 to the number of sequences.

    GPT-NeoX writes a single 0 where it merges files. Megatron reads sequences for GPT, and no document offset.

    Raises:
        EvidenceError: an offset is out of order or out of range.
    """
    before = 0
    for start in range(0, header.num_offsets, _CHUNK):
        offsets = read_numbers(
            path, file, header.documents_at + 8 * start, "<i8", min(_CHUNK, header.num_offsets - start)
        )
        least = np.concatenate(([before], offsets[:-1]))
        most = np.full(len(offsets), header.num_sequences)
        if start == 0:
            most[0] = 0
        wrong = np.flatnonzero((offsets < least) | (offsets > most))
        if len(wrong):
            at = start + int(wrong[0])
            raise EvidenceError(
                f"{path}: document {at} begins at sequence {offsets[wrong[0]]} (byte {header.documents_at + 8 * at}),"
                f" expected {least[wrong[0]]} to {most[wrong[0]]}",
                file=path,
                found=int(offsets[wrong[0]]),
                expected=f"{least[wrong[0]]} to {most[wrong[0]]}",
            )
        before = int(offsets[-1])
    if before != header.num_sequences and header.num_offsets > 1:
        raise EvidenceError(
            f"{path}: the documents end at sequence {before} (byte {header.modes_at - 8}), expected"
            f" {header.num_sequences}, the number of sequences",
            file=path,
            found=before,
            expected=header.num_sequences,
        )


def _check_modes(path: Path, file: BinaryIO, header: IndexHeader) -> None:
    """Refuses an index of images or other features beside the text.

    Raises:
        EvidenceError: a sequence has another mode than 0.
    """
    if not header.modes:
        return
    for start in range(0, header.num_sequences, _CHUNK):
        count = min(_CHUNK, header.num_sequences - start)
        other = np.flatnonzero(read_numbers(path, file, header.modes_at + start, "<i1", count))
        if len(other):
            raise EvidenceError(
                f"{path}: an index with modes (a multimodal data set): sequence {start + int(other[0])} has another"
                " mode than 0; expected an index of text alone",
                file=path,
                found="a mode other than 0",
                expected="an index of text alone",
            )


def _check_bin(bin_path: Path, idx_path: Path, expected: int) -> bool:
    """Compares the size of a token file with its index.

    Returns:
        Whether there is a token file.

    Raises:
        EvidenceError: the token file has another size, or is not a regular file.
    """
    try:
        found = bin_path.stat()
    except (OSError, ValueError):
        return False
    if not stat.S_ISREG(found.st_mode):
        raise EvidenceError(
            f"{bin_path}: not a regular file, expected a token file", file=bin_path, expected="a regular file"
        )
    if found.st_size != expected:
        raise EvidenceError(
            f"{bin_path}: found {found.st_size} bytes, expected {expected} by {idx_path.name}",
            file=bin_path,
            found=found.st_size,
            expected=expected,
        )
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
        with opened_index(idx_path, "a pair of token and index file") as file:
            header = IndexHeader.read(idx_path, file)
            lengths, num_bytes = _read_sequences(idx_path, file, header)
            documents = read_numbers(idx_path, file, header.documents_at, "<i8", header.num_offsets)
        if not _check_bin(bin_path, idx_path, num_bytes):
            _refuse_bin(bin_path, "No such file or directory")
        starts = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(lengths, out=starts[1:])
        try:
            tokens = np.memmap(bin_path, header.dtype, "r") if num_bytes else np.empty(0, header.dtype)
        except OSError as error:
            _refuse_bin(bin_path, reason(error))
        return cls(tokens, lengths, starts[documents])


def _refuse_bin(bin_path: Path, found: str) -> NoReturn:
    expected = "a pair of token and index file"
    text = f"{bin_path}: {found}; expected {expected}"
    raise EvidenceError(text, file=bin_path, found=found, expected=expected) from None
