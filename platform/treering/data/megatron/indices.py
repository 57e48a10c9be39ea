"""The three indices of a GPTDataset: documents shuffled, cut into samples, and the samples shuffled.

- The document index lists the split's sequences once an epoch, shuffled (all epochs together; the last one apart, where
  the lineage does so and little of it is needed).
- The sample index holds where each sample begins in that list: (position, offset in that document). It is a closed
  form: sample j begins at token j * S of the concatenated documents, S being the sequence length.
- The shuffle index permutes the samples.

Both shuffles draw from one `RandomState(seed)`, whose stream numpy never changes. A document is a sequence of the
`.idx`: Megatron never reads its document offsets for GPT.

Source: megatron-core 0.16.1, megatron/core/datasets/gpt_dataset.py and helpers.cpp, build_sample_idx; the other sources
are named with each lineage (`lineage.py`).
"""

import bisect
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treering.data.megatron.blend import MegatronBlend
from treering.data.order.contract import UNDEFINED_EPOCH
from treering.data.order.spans import SpanArrays
from treering.errors import UserError

_INT32_MAX = np.iinfo(np.int32).max
_UINT32_MAX = np.iinfo(np.uint32).max
_CHUNK = 1 << 22
_CACHED = 1 << 18


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """Epochs and samples of one dataset's indices, from the token counts alone.

    Attributes:
        first: first sequence of the split.
        end: sequence after its last one.
        num_epochs: how often the split is listed.
        tokens: tokens of one epoch.
        num_samples: samples of all epochs, before and after shuffling.
        together: the first samples, which are shuffled together; those after them are of the last epoch, shuffled
            apart. All samples if no epoch is shuffled apart.
    """

    first: int
    end: int
    num_epochs: int
    tokens: int
    num_samples: int
    together: int

    @classmethod
    def of(
        cls, name: str, lengths: NDArray[np.int32], blend: MegatronBlend, requested: int | None, component: int = 0
    ) -> "IndexPlan":
        """Plans the indices of a dataset.

        Args:
            name: of the dataset, for errors.
            lengths: tokens of each sequence of the `.idx`.
            blend: seed, split, lengths and lineage.
            requested: samples that it must give, None for one epoch.
            component: which dataset of the blend it is.

        Raises:
            UserError: the split is empty or holds less than a sample, or the lineage refuses so many epochs.
        """
        first, end = blend.sequences(len(lengths), component)
        tokens = int(lengths[first:end].sum(dtype=np.int64))
        length, extra = blend.sequence_length, int(blend.extra_token)
        if tokens < 1:
            raise UserError(f"{name}: the split's {end - first} sequences are all without tokens, expected some")
        num_epochs = 1 if requested is None else max(1, -(-(requested * length + extra) // tokens))
        if blend.exact_epochs is not None and blend.index_split == "train":
            num_epochs = blend.exact_epochs
        available = num_epochs * tokens - extra
        if blend.drop_last_partial:
            num_samples = available // length
        else:  # Megatron divides in single precision here, and so may count some samples more or less
            num_samples = math.ceil(np.float32(available) / np.float32(length))
        if num_samples < 1 and not (requested == 0 and blend.holds_empty):
            expected = f"at least {length + extra} for one sample"
            raise UserError(f"{name}: the split holds {tokens} tokens, expected {expected}")
        together = num_samples
        if requested is not None and num_epochs > 1 and blend.lineage.apart_below is not None:
            before = ((num_epochs - 1) * tokens - extra) // length
            whole = (tokens - extra) // length
            if not 0 <= requested - before <= whole + blend.lineage.last_epoch_excess:
                raise UserError(
                    f"{name}: {requested} samples in {num_epochs} epochs take {requested - before} of the last one, "
                    f"which has {whole}; programs of the lineage {blend.lineage.name} end with an error there, so "
                    "another lineage or other arguments trained this run (docs/data-order.md)"
                )
            if requested - before < int(blend.lineage.apart_below * whole):
                together = before
        return cls(first, end, num_epochs, tokens, num_samples, together)

    @property
    def apart(self) -> bool:
        """Whether the last epoch is shuffled apart."""
        return self.together != self.num_samples

    def epoch(self, sample: int) -> int:
        """The epoch of a sample of the sample index, from 0; undefined where several are shuffled together."""
        if self.apart and sample >= self.together:
            return self.num_epochs - 1
        return 0 if self.num_epochs - self.apart == 1 else UNDEFINED_EPOCH


@dataclass(frozen=True, slots=True)
class DatasetIndices:
    """The indices of one dataset, built or read.

    Attributes:
        documents: sequence numbers, int32 [num_epochs * sequences of the split].
        samples: position in `documents` and offset in that document, [num_samples + 1, 2].
        shuffle: sample of the sample index at each place, [num_samples].
    """

    documents: NDArray[Any]
    samples: NDArray[Any]
    shuffle: NDArray[Any]

    @classmethod
    def build(cls, lengths: NDArray[np.int32], blend: MegatronBlend, plan: IndexPlan) -> "DatasetIndices":
        """Rebuilds them from the seed and the token counts."""
        state = np.random.RandomState(blend.seed)
        documents = np.tile(np.arange(plan.first, plan.end, dtype=np.int32), plan.num_epochs)
        last = len(documents) - (plan.end - plan.first) * plan.apart
        state.shuffle(documents[:last])
        if plan.apart:
            state.shuffle(documents[last:])
        samples = np.empty((plan.num_samples + 1, 2), dtype=_sample_dtype(len(documents), lengths))
        for start, rows in sample_rows(documents, lengths, blend, plan):
            samples[start : start + len(rows)] = rows
        shuffle = np.arange(plan.num_samples, dtype=np.uint32 if plan.num_samples < _UINT32_MAX - 1 else np.int64)
        state.shuffle(shuffle[: plan.together])
        if plan.apart:
            state.shuffle(shuffle[plan.together :])
        return cls(documents, samples, shuffle)

    def spans(self, samples: NDArray[np.int64], lengths: NDArray[np.int32], *, extra_token: bool) -> SpanArrays:
        """The parts of documents that samples of the sample index hold, by sample, then in order, none empty.

        Args:
            samples: their numbers, in any order.
            lengths: tokens of each sequence of the `.idx`.
            extra_token: whether a sample is read with one token more than its length.
        """
        first, offset = self.samples[samples].T.astype(np.int64)
        last, end = self.samples[samples + 1].T.astype(np.int64)
        counts = last - first + 1
        item = np.repeat(np.arange(len(samples), dtype=np.int64), counts)
        position = np.arange(len(item), dtype=np.int64) - (np.cumsum(counts) - counts - first)[item]
        document = self.documents[position].astype(np.int64)
        start = np.where(position == first[item], offset[item], 0)
        stop = np.where(position == last[item], end[item] + extra_token, lengths[document])
        held = stop > start
        return SpanArrays(item[held], document[held], start[held], stop[held])

    def places(self, document: int, count: int, lengths: NDArray[np.int32], *, extra_token: bool) -> NDArray[np.int64]:
        """Which of the first `count` places of the shuffle hold a token of a document, sorted."""
        runs = self._holders(document, lengths, extra_token=extra_token)
        return _find(self.shuffle[:count], runs)

    def _holders(self, document: int, lengths: NDArray[np.int32], *, extra_token: bool) -> list[tuple[int, int]]:
        """The samples of the sample index that hold a token of a document, as stretches (first, last)."""
        candidates: set[int] = set()
        for position in _find(self.documents, [(document, document)]).tolist():
            begins = range(len(self.samples))
            first = bisect.bisect_left(begins, position, key=lambda j: int(self.samples[j, 0]))
            after = bisect.bisect_right(begins, position, key=lambda j: int(self.samples[j, 0]))
            candidates.update(range(max(first - 1, 0), min(after, len(self.samples) - 1)))
        samples = np.array(sorted(candidates), dtype=np.int64)
        spans = self.spans(samples, lengths, extra_token=extra_token)
        held = np.unique(samples[spans.item[spans.document == document]])
        ends = np.flatnonzero(np.diff(held, append=-1) != 1)
        starts = np.concatenate(([0], ends[:-1] + 1)) if len(held) else ends[:0]
        return list(zip(held[starts].tolist(), held[ends].tolist(), strict=True)) if len(held) else []

    def touched(self, first: int, end: int, lengths: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Which documents places [first, end) of the shuffle hold a token of: bool [sequences of the `.idx`]."""
        read = np.zeros(len(self.samples) - 1, dtype=np.bool_)
        read[self.shuffle[first:end]] = True
        found = np.zeros(len(lengths), dtype=np.bool_)
        for start in range(0, len(read), _CHUNK):  # in the order of the sample index, so that memory is read in a row
            rows = start + np.flatnonzero(read[start : start + _CHUNK])
            if not len(rows):
                continue
            begins, lasts = self.samples[rows], self.samples[rows + 1, 0]
            # Without the extra token a sample may begin just behind a document's last token.
            firsts = begins[:, 0] + (begins[:, 1] >= lengths[self.documents[begins[:, 0]]])
            base, end = int(begins[0, 0]), int(lasts[-1]) + 1
            change = np.bincount(firsts - base, minlength=end + 1 - base)
            change -= np.bincount(lasts + 1 - base, minlength=end + 1 - base)
            found[self.documents[base:end][np.cumsum(change[:-1]) > 0]] = True
        return found & (lengths > 0)


def _find(array: NDArray[Any], stretches: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """Where an array holds a number of any stretch (first, last), sorted; a pass over it, part by part in the cache."""
    found = []
    for start in range(0, len(array) if stretches else 0, _CACHED):
        part = array[start : start + _CACHED]
        held = np.zeros(len(part), dtype=np.bool_)
        for first, last in stretches:
            held |= part == first if first == last else (part >= first) & (part <= last)
        if held.any():
            found.append(start + np.flatnonzero(held))
    return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)


def sample_rows(
    documents: NDArray[Any], lengths: NDArray[np.int32], blend: MegatronBlend, plan: IndexPlan
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """The sample index that a document index implies, in parts: first row, and the rows, int64 [rows, 2]."""
    length, extra = blend.sequence_length, int(blend.extra_token)
    yield 0, np.zeros((1, 2), dtype=np.int64)
    row, before = 1, 0
    for start in range(0, len(documents), _CHUNK):
        held = lengths[documents[start : start + _CHUNK]].astype(np.int64)
        ends = before + np.cumsum(held)
        before = int(ends[-1])
        # A sample ends in the document that holds its last token, `extra` tokens of which the next one reads again.
        stop = min((before - extra) // length, plan.num_samples) + 1
        if stop > row:
            last = np.arange(row, stop, dtype=np.int64) * length + extra - 1
            position = np.searchsorted(ends, last, side="right")
            offset = last - (ends[position] - held[position]) + 1 - extra
            yield row, np.stack((start + position, offset), axis=1)
            row = stop
    if row <= plan.num_samples:  # a last sample that needs padding
        end = (len(documents) - 1, int(lengths[documents[-1]]) - extra)
        yield row, np.tile(np.array(end, dtype=np.int64), (plan.num_samples + 1 - row, 1))


def _sample_dtype(num_documents: int, lengths: NDArray[np.int32]) -> type[np.int32] | type[np.int64]:
    return np.int32 if max(num_documents, int(lengths.max())) <= _INT32_MAX else np.int64
