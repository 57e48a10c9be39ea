"""Which documents samples hold, from the token offsets of a corpus's documents.

Part of `treering-1`, used by `data.order.treering1`. Sample j holds tokens [j * S, j * S + S]; so token t is in
sample t // S, and also in the sample before if it is that sample's last label (t mod S = 0). Documents may be empty;
those are in no sample. Long tables of documents are processed in chunks that fit the processor's cache, so that an
answer over hundreds of millions of documents takes only the memory of the answer.
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
    begin, after = np.split(offsets[np.concatenate((document, document + 1))], 2)
    start = np.maximum(starts[item] - begin, 0)
    end = np.minimum(ends[item], after) - begin
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
        read: which samples are meant: bool [num_samples].
        sequence_length: S.
    """
    for begin in range(0, len(offsets) - 1, _CHUNK):
        yield held_documents(offsets[begin : begin + _CHUNK + 1], read, sequence_length)


def held_documents(part: NDArray[np.int64], read: NDArray[Any], sequence_length: int) -> NDArray[np.bool_]:
    """Which of some neighbouring documents, at most some ten thousands, samples hold a token of: bool [documents].

    Args:
        part: their offsets, with the end of the last one: [documents + 1].
        read: which samples are meant, or how often each is read: [num_samples].
        sequence_length: S.
    """
    # The last sample of a document that begins or ends in sample j, and the first of the next one, is the same one.
    sample = np.clip((part - 1) // sequence_length, 0, len(read))
    first, last = int(sample[0]), int(sample[-1])
    flags = (_between(read, first, last) > 0).view(np.int8)
    # Twice the samples read before each, plus one if it is read itself: one look-up answers both.
    code = 2 * np.cumsum(flags, dtype=np.int32) - flags
    sample -= first
    found = code[sample]
    held: NDArray[np.bool_] = (found[1:] > (found[:-1] & -2)) & (part[1:] > part[:-1])
    return held


def _between(read: NDArray[Any], first: int, last: int) -> NDArray[Any]:
    """Entries of samples `first` to `last`; one more than there are is the unread tail, which nothing reads."""
    return read[first : last + 1] if last < len(read) else np.append(read[first:], read.dtype.type(0))


@dataclass(frozen=True, slots=True)
class DocumentReads:
    """What samples hold of the documents of a corpus, if each is read so many times.

    Attributes:
        counts: how often each sample is read: int32 [num_samples].
        sequence_length: S.
    """

    counts: NDArray[np.int32]
    sequence_length: int

    def of(self, offsets: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """The same of some neighbouring documents, at most some ten thousands of them.

        Args:
            offsets: theirs, with the end of the last one: [documents + 1].

        Returns:
            Which of them samples hold a token of, the overlapping label included: bool [documents]; and how many tokens
            of each, with repetition and without that label, so that those of a corpus sum to samples x sequence length:
            int64 [documents].
        """
        part = np.minimum(offsets, len(self.counts) * self.sequence_length)
        sample, rest = np.divmod(part, self.sequence_length)
        first = int(sample[0])
        read = _between(self.counts, first, int(sample[-1]))
        before = np.cumsum(read, dtype=np.int64) - read
        sample -= first
        tokens = np.diff(before[sample] * self.sequence_length + read[sample] * rest)
        return held_documents(offsets, self.counts, self.sequence_length), tokens
