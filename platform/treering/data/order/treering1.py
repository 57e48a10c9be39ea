"""The data order `treering-1`: which tokens are sample g of a blend, and everything that follows by inverting it.

A pure function of the blend and g. The trainer reads samples by it, the audit inverts it. It consists of two closed
forms: `treering.data.order.weyl` gives the component of a sample (the k-th sample of component c, with its exact
counts), and `treering.data.order.feistel` shuffles the samples inside one epoch of a corpus. In full:

    c = Weyl component of g          k = count(c, g)
    epoch = k // n                   index = permutation(seed, digest of c, epoch)[k mod n]
    tokens [index * S, index * S + S + 1) of the corpus,   n = floor((T - 1) / S) samples of a corpus of T tokens,
                                                           S = sequence_length

An order that goes on from another one (`continues` of its blend) begins at sample g0 instead of 0, and count(c, g)
begins at a position p(c) instead of 0: count(c, g) = p(c) + W(c, g) - W(c, g0), where W(c, g) is how many of the
samples 0 to g - 1 the new weights give to c. The inverse is Weyl's select of k - p(c) + W(c, g0). All else is the same.
With `schedule: continue` g0 is the sample that the other run would have read next; with `schedule: restart` it is 0.
Samples below g0 belong to the runs before.

p(c) is the count of c's corpus, found by its digest, where the last run that read it stopped: the run before, or an
earlier run for a corpus that was left out meanwhile. Samples that `skip_steps` skips count. Runs of another seed or
sequence length do not count, because they shuffle the corpus in another way; another seed than that of the run before
is refused. A corpus that no run has read begins at 0.

The canonical JSON of such a blend has one more key, `continues`, with `positions` and `sample`; an order that begins
at the beginning lacks it. One order has one identity: if the new weights give the same positions
without `continues`, or with the `continues` of a run before, that form is taken.

The permutation is keyed by the corpus digest, so a corpus is shuffled alike at every position of a blend; hence a blend
may hold a digest once.
"""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from treering.data.order.component import Blend, Component
from treering.data.order.contract import Exposures, Sample, SampleArrays
from treering.data.order.feistel import permute_each
from treering.data.order.spans import Offsets, Span, SpanArrays, overlapping, spans_of, touched_chunks
from treering.data.order.weyl import MAX_SAMPLES, Interleave, parse_weights
from treering.errors import NotFoundError, UserError

ALGORITHM = "treering-1"


class DataOrder:
    """The order in which a blend's samples are read.

    Immutable and cheap to make: nothing is built, nothing is read. Sample numbers are any whole numbers in
    [first_sample, 2**63); components are named by their position in the blend (`index_of` finds it by name).

    Attributes:
        components: the components in declared order.
        first_sample: number of the first sample: 0, or where the order goes on from another one.
        seed: of the order.
        sequence_length: tokens a sample counts.
    """

    __slots__ = ("_interleave", "_shifts", "components", "first_sample", "seed", "sequence_length")

    def __init__(self, blend: Blend, document_offsets: Mapping[str, Offsets] | None = None) -> None:
        """Opens the order of a blend.

        Args:
            blend: algorithm, seed, sequence length and components.
            document_offsets: `Corpus.document_offsets` or `mapped_offsets` by corpus name; may lack corpora whose
                documents are not asked for.

        Raises:
            UserError: another algorithm, weights that do not sum to exactly 1, a corpus twice, or one shorter than a
                sample.
        """
        if blend.algorithm != ALGORITHM:
            raise UserError(f"blend: algorithm {blend.algorithm!r} is unknown, expected {ALGORITHM!r}")
        if blend.sequence_length < 1:
            raise UserError(f"blend: sequence_length is {blend.sequence_length}, expected at least 1")
        offsets = document_offsets or {}
        names = [part.corpus for part in blend.components]
        for position, part in enumerate(blend.components):
            for earlier in blend.components[:position]:
                if part.corpus == earlier.corpus or (part.digest is not None and part.digest == earlier.digest):
                    raise UserError(
                        f"blend: {earlier.corpus!r} and {part.corpus!r} are the same corpus "
                        f"({part.digest or 'declared'}), expected each corpus once; add up their weights under `blend`"
                    )
        self.seed = blend.seed
        self.sequence_length = blend.sequence_length
        self._interleave = Interleave.of(blend.seed, parse_weights(names, [part.weight for part in blend.components]))
        self.components = tuple(Component.of(part, blend, offsets.get(part.corpus)) for part in blend.components)
        continues = blend.continues
        self.first_sample = 0 if continues is None else continues.sample
        positions = [0] * len(names) if continues is None else continues.positions
        # What the position of a corpus is ahead of (or behind) the Weyl sequence counted from sample 0.
        self._shifts = tuple(
            position - count
            for position, count in zip(positions, self._interleave.counts(self.first_sample), strict=True)
        )

    def index_of(self, corpus: str) -> int:
        """The component that holds a corpus.

        Raises:
            NotFoundError: no corpus of that name.
        """
        names = [component.corpus for component in self.components]
        if corpus not in names:
            raise NotFoundError(f"blend: no corpus {corpus!r}, expected one of {', '.join(names)}")
        return names.index(corpus)

    def sample(self, g: int) -> Sample:
        """Sample g, with the documents it holds.

        Raises:
            UserError: g is not a sample number, or the sample comes from a declared corpus.
        """
        return self.samples_with_spans(g, g + 1)[0]

    def samples_with_spans(self, lo: int, hi: int) -> list[Sample]:
        """Samples [lo, hi), with the documents they hold.

        Raises:
            UserError: as `samples`.
        """
        arrays = self.samples(lo, hi)
        spans = self._spans(arrays)
        parts = list(map(Span, spans.document.tolist(), spans.start.tolist(), spans.end.tolist()))
        ends = np.searchsorted(spans.item, np.arange(1, hi - lo + 1)).tolist()
        columns = (arrays.component.tolist(), arrays.epoch.tolist(), arrays.index.tolist(), [0, *ends], ends)
        rows = zip(*columns, strict=False)
        return [
            Sample(g, component, epoch, index, tuple(parts[first:end]))
            for g, (component, epoch, index, first, end) in enumerate(rows, lo)
        ]

    def spans(self, lo: int, hi: int) -> SpanArrays:
        """The parts of documents that samples [lo, hi) hold, by sample (`item` counts from lo), then in order.

        Samples of a component that was opened without documents have none.

        Raises:
            UserError: as `samples`.
        """
        return self._spans(self.samples(lo, hi))

    def samples(self, lo: int, hi: int) -> SampleArrays:
        """Samples [lo, hi).

        Raises:
            UserError: no range of sample numbers, or it holds samples of a declared corpus.
        """
        components = self.sample_components(lo, hi)
        arrays = SampleArrays(components, np.empty(hi - lo, dtype=np.int64), np.empty(hi - lo, dtype=np.int64))
        if lo == hi:
            return arrays
        by_component = np.argsort(components, kind="stable")
        numbers = np.bincount(components, minlength=len(self.components)).tolist()
        pieces = [
            piece
            for component, first, number in zip(self.components, self.counts(lo), numbers, strict=True)
            for piece in component.pieces(first, first + number)
        ]
        epochs, permutations, positions = zip(*pieces, strict=True)
        arrays.epoch[by_component] = np.repeat(epochs, [len(each) for each in positions])
        arrays.index[by_component] = np.concatenate(permute_each(positions, permutations))
        return arrays

    def sample_components(self, lo: int, hi: int) -> NDArray[np.int64]:
        """The components of samples [lo, hi), shape [hi - lo]; declared corpora have one too.

        Raises:
            UserError: no range of sample numbers.
        """
        if not self.first_sample <= lo <= hi <= MAX_SAMPLES:
            raise UserError(
                f"data order: samples [{lo}, {hi}) asked for, expected a range within [{self.first_sample}, 2**63)"
                + self._whose
            )
        return self._interleave.components(lo, hi)

    def token_ranges(self, lo: int, hi: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where to read samples [lo, hi): components and first tokens, both int64 of shape [hi - lo].

        Each sample is the sequence_length + 1 tokens from its first token on.

        Raises:
            UserError: as `samples`.
        """
        arrays = self.samples(lo, hi)
        return arrays.component, arrays.index * self.sequence_length

    def count(self, component: int, g: int) -> int:
        """How many samples of a component precede sample g, those before the order's first sample included.

        Raises:
            UserError: g is not a sample number, or the component does not exist.
        """
        self._check(component, g, self.first_sample)
        return self._shifts[component] + self._interleave.count(component, g)

    def counts(self, g: int) -> tuple[int, ...]:
        """`count` of every component, in declared order; they sum to g unless the order goes on from another one.

        Raises:
            UserError: g is not a sample number.
        """
        self._check(0, g, self.first_sample)
        return tuple(shift + count for shift, count in zip(self._shifts, self._interleave.counts(g), strict=True))

    def epochs(self, component: int, g: int) -> float:
        """How often a component's samples were read before sample g, realised and not planned.

        Raises:
            UserError: as `count`.
        """
        return self.count(component, g) / self.components[component].num_samples

    def select(self, component: int, k: int) -> int:
        """The sample number of a component's k-th sample (from 0): the inverse of `count`.

        Raises:
            UserError: the order has no such sample (k is negative or precedes its first sample), the sample is beyond
                2**63, or the component does not exist.
        """
        self._check(component, 0)
        first = self.count(component, self.first_sample)
        if not first <= k <= MAX_SAMPLES:
            raise UserError(
                f"data order: sample {k} of component {component} asked for, expected {first} or later" + self._whose
            )
        return self._interleave.select(component, k - self._shifts[component])

    def exposures(self, component: int, document: int, g: int) -> NDArray[np.int64]:
        """The sample numbers of this order below g that hold at least one token of a document, sorted.

        The overlapping label counts: a sample is its sequence_length + 1 tokens.

        Raises:
            UserError: no such component, a declared one, or one opened without documents.
            NotFoundError: no such document.
        """
        return self.document_exposures(component, np.array([document]), self.first_sample, g).sample

    def document_exposures(self, component: int, documents: NDArray[np.int64], lo: int, hi: int) -> Exposures:
        """`exposures` of many documents of a component at once, among samples [lo, hi).

        Raises:
            UserError: as `exposures`.
            NotFoundError: no such document.
        """
        self._check(component, 0)
        offsets = self.components[component].offsets()
        outside = documents[(documents < 0) | (documents >= len(offsets) - 1)]
        if outside.size:
            raise NotFoundError(
                f"corpus {self.components[component].corpus!r}: no document {outside[0]}, expected 0 to "
                f"{len(offsets) - 2}"
            )
        first, last = overlapping(
            offsets[documents], offsets[documents + 1], self.sequence_length, self.components[component].num_samples
        )
        lengths = np.maximum(last - first + 1, 0)
        items = np.repeat(np.arange(len(documents), dtype=np.int64), lengths)
        before = np.cumsum(lengths) - lengths
        indices = first[items] + np.arange(len(items), dtype=np.int64) - before[items]
        return self._exposures(component, items, indices, lo, hi)

    def index_exposures(self, component: int, indices: NDArray[np.int64], lo: int, hi: int) -> Exposures:
        """When samples of a component, by index in its corpus, are read among samples [lo, hi): once an epoch.

        Raises:
            UserError: no such component, a declared one, or no such index.
        """
        self._check(component, 0)
        n = self.components[component].num_samples
        outside = indices[(indices < 0) | (indices >= n)]
        if outside.size:
            corpus = self.components[component].corpus
            raise UserError(f"data order: no index {outside[0]} in {corpus!r}, expected 0 to {n - 1}")
        return self._exposures(component, np.arange(len(indices), dtype=np.int64), indices, lo, hi)

    def _exposures(
        self, component: int, items: NDArray[np.int64], indices: NDArray[np.int64], lo: int, hi: int
    ) -> Exposures:
        first, end = self.count(component, lo), self.count(component, hi)
        which, k, epochs = self.components[component].readings(indices, first, end)
        sample = self._interleave.selects(component, k - self._shifts[component])
        item = items[which]
        order = np.argsort(item, kind="stable")
        return Exposures(item[order], sample[order], epochs[order], indices[which][order])

    def read_counts(self, component: int, lo: int, hi: int) -> NDArray[np.int32]:
        """How often samples [lo, hi) read each sample of an epoch of a component: int32 [num_samples].

        Whole epochs cost nothing; each of the others costs a permutation of what is read in it.

        Raises:
            UserError: no such component, or a declared one.
        """
        first, end = self.count(component, lo), self.count(component, hi)
        return self.components[component].read_counts(first, end)

    def documents_touched(self, component: int, g: int) -> int:
        """How many distinct documents of a component the samples of this order below g hold at least one token of.

        Raises:
            UserError: no such component, a declared one, or one opened without documents.
        """
        return sum(int(np.count_nonzero(each)) for each in self._touched(component, g))

    def touched(self, component: int, g: int) -> NDArray[np.bool_]:
        """Which documents of a component the samples of this order below g touch, bool [num_documents].

        After one whole epoch that is every document that begins before the unread tail; before, it costs a permutation
        of the samples read.

        Raises:
            UserError: as `documents_touched`.
        """
        return np.concatenate(list(self._touched(component, g)))

    def _touched(self, component: int, g: int) -> Iterator[NDArray[np.bool_]]:
        self._check(component, 0)
        offsets, n = self.components[component].offsets(), self.components[component].num_samples
        first, end = self.count(component, self.first_sample), self.count(component, g)
        holds_an_epoch = end // n > -(-first // n)
        read = np.full(n, holds_an_epoch) if holds_an_epoch else self.read_counts(component, self.first_sample, g) > 0
        return touched_chunks(offsets, read, self.sequence_length)

    @property
    def _whose(self) -> str:
        """Whose the samples below the first one are, for errors."""
        return "; the lower numbers belong to the order that this one goes on from" if self.first_sample else ""

    def _check(self, component: int, number: int, first: int = 0) -> None:
        if not 0 <= component < len(self.components):
            raise UserError(f"data order: no component {component}, expected 0 to {len(self.components) - 1}")
        if not first <= number <= MAX_SAMPLES:
            raise UserError(
                f"data order: sample {number} asked for, expected a number in [{first}, 2**63)" + self._whose
            )

    def _spans(self, arrays: SampleArrays) -> SpanArrays:
        found = [np.empty((4, 0), dtype=np.int64)]
        for component, part in enumerate(self.components):
            rows = np.flatnonzero(arrays.component == component)
            if part.document_offsets is not None and len(rows):
                starts = arrays.index[rows] * self.sequence_length
                spans = spans_of(part.document_offsets, starts, self.sequence_length + 1)
                found.append(np.stack((rows[spans.item], spans.document, spans.start, spans.end)))
        joined = np.concatenate(found, axis=1)
        return SpanArrays(*joined[:, np.argsort(joined[0], kind="stable")])
