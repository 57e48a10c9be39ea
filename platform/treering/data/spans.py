"""Which documents samples hold, from the token offsets of a corpus's documents.

Part of `treering-1`, used by `treering.data.order`. Sample j holds tokens [j * S, j * S + S]; so token t lies in
sample t // S, and also in the one before when it is that one's last label (t mod S = 0). Documents may be empty; those
are in no sample. Long tables of documents are walked in chunks that stay in the processor's cache, so that an answer
over hundreds of millions of documents takes no memory but its own.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

_CHUNK = 1 << 16


class Offsets(Protocol):
    """Token offsets of documents with the end, ascending from 0: an int64 array, or what answers like one."""

    def __len__(self) -> int:
        """Documents + 1."""

    def __getitem__(self, key: Any, /) -> Any:
        """Offsets by position: a whole number, a slice, or an array of whole numbers of at least 0."""

    def searchsorted(self, v: Any, side: Any = "left") -> Any:
        """As `numpy.searchsorted`."""


class Span(NamedTuple):
    """A part of a document: tokens [start, end) of it."""

    document: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SpanArrays:
    """Parts of documents, int64 arrays of one length.

    Attributes:
        item: which of the things that were asked for holds the part, by its position among them.
        document: number of the document in its corpus.
        start: first token of the part, counted in the document.
        end: token after its last one.
    """

    item: NDArray[np.int64]
    document: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]


def spans_of(offsets: Offsets, starts: NDArray[np.int64], width: int) -> SpanArrays:
    """The parts of documents in stretches of `width` tokens that begin at `starts`; by stretch, then in order."""
    ends = starts + width
    around = offsets.searchsorted(np.concatenate((starts, ends - 1)), side="right") - 1
    first, last = around[: len(starts)], around[len(starts) :]
    lengths = last - first + 1
    item = np.repeat(np.arange(len(starts), dtype=np.int64), lengths)
    document = np.arange(len(item), dtype=np.int64) - (np.cumsum(lengths) - lengths - first)[item]
    begin = offsets[document]
    start = np.maximum(starts[item] - begin, 0)
    end = np.minimum(ends[item], offsets[document + 1]) - begin
    held = np.flatnonzero(end > start)
    return SpanArrays(item[held], document[held], start[held], end[held])


def overlapping(
    starts: NDArray[np.int64], ends: NDArray[np.int64], sequence_length: int, num_samples: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First and last sample that overlap documents [start, end); last < first for one in the unread tail."""
    first = np.maximum((starts - 1) // sequence_length, 0)
    last = np.where(ends > starts, (ends - 1) // sequence_length, first - 1)
    return np.minimum(first, num_samples), np.minimum(last, num_samples - 1)


def touched_chunks(offsets: Offsets, read: NDArray[np.bool_], sequence_length: int) -> Iterator[NDArray[np.bool_]]:
    """Which documents samples hold a token of, chunk by chunk of the documents.

    Args:
        offsets: of the documents.
        read: which samples are meant: bool [num_samples + 1], False at the end, for the unread tail.
        sequence_length: S.
    """
    for begin in range(0, len(offsets) - 1, _CHUNK):
        part = offsets[begin : begin + _CHUNK + 1]
        # The last sample of a document that begins or ends in sample j, and the first of the next one, is the same one.
        sample = np.clip((part - 1) // sequence_length, 0, len(read) - 1)
        first, last = int(sample[0]), int(sample[-1])
        flags = read[first : last + 1].view(np.int8)
        # Twice the samples read before each, plus one if it is read itself: one look-up answers both.
        code = 2 * np.cumsum(flags, dtype=np.int32) - flags
        sample -= first
        found = code[sample]
        yield (found[1:] > (found[:-1] & -2)) & (part[1:] > part[:-1])


def document_reads(
    offsets: Offsets, counts: NDArray[np.int32], sequence_length: int
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """What samples hold of each document, if each is read `counts` times: int32 [num_samples].

    Returns:
        Which documents they hold a token of, the overlapping label included: bool [num_documents]; and how many tokens
        of each, with repetition and without that label: int64 [num_documents].
    """
    counts = np.append(counts, np.int32(0))
    touched = np.concatenate(list(touched_chunks(offsets, counts > 0, sequence_length)))
    tokens = np.empty(len(touched), dtype=np.int64)
    for begin in range(0, len(tokens), _CHUNK):
        part = np.minimum(offsets[begin : begin + _CHUNK + 1], (len(counts) - 1) * sequence_length)
        sample, rest = np.divmod(part, sequence_length)
        first, last = int(sample[0]), int(sample[-1])
        read = counts[first : last + 1]
        before = np.cumsum(read, dtype=np.int64) - read
        sample -= first
        tokens[begin : begin + _CHUNK] = np.diff(before[sample] * sequence_length + read[sample] * rest)
    return touched, tokens
