"""The order of a Megatron run: BlendedDataset over GPTDatasets, as `treering.data.order.contract.Order`.

Unlike `treering-1` it is a table: built once for a number of samples, with indices as long as the data. It has no
samples beyond that number. The documents of a sample, which Megatron does not keep, follow from the same indices.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treering.data.megatron.blend import MegatronBlend
from treering.data.megatron.greedy import interleave
from treering.data.megatron.indices import DatasetIndices, IndexPlan
from treering.data.order.contract import Exposures, Sample, SampleArrays
from treering.data.order.spans import Span
from treering.errors import NotFoundError, UserError

ALGORITHM = "megatron"
_BLOCK = 1 << 16


@dataclass(frozen=True, slots=True)
class MegatronComponent:
    """One dataset of a blend.

    Attributes:
        corpus: prefix of its `.bin/.idx` pair, as the run named it.
        weight: its share of the blend.
        lengths: tokens of each sequence of the `.idx`, int32; a document is a sequence.
        plan: epochs and samples of its indices.
        indices: the indices.
    """

    corpus: str
    weight: float
    lengths: NDArray[np.int32]
    plan: IndexPlan
    indices: DatasetIndices

    def epochs(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        """The epoch of each of some samples of the sample index: int64, shape as `samples`."""
        first, last = self.plan.epoch(0), self.plan.epoch(self.plan.num_samples - 1)
        return np.where(samples < self.plan.together, first, last).astype(np.int64, copy=False)


class MegatronOrder:
    """The samples of one split of a Megatron run, in the order in which it reads them."""

    def __init__(
        self, blend: MegatronBlend, components: Sequence[MegatronComponent], datasets: NDArray[np.int16] | None
    ) -> None:
        """Joins indices that were built or read.

        Args:
            blend: what the run named.
            components: one for each prefix, in order.
            datasets: the component of each sample, None for one dataset without a blend.

        Raises:
            UserError: the blend needs more samples of a dataset than it has; Megatron refuses that too.
        """
        self.blend = blend
        self.components = tuple(components)
        self.sequence_length = blend.sequence_length
        self._datasets = datasets
        self.num_samples = _readable(blend, self.components[0].plan) if datasets is None else len(datasets)
        self._blocks = self._count_blocks()
        for component, count in zip(self.components, self.counts(self.num_samples), strict=True):
            if count > component.plan.num_samples:
                raise UserError(
                    f"megatron blend: {count} samples of {component.corpus} are needed, it has "
                    f"{component.plan.num_samples}; Megatron refuses such a blend: did the run have another surplus "
                    f"than {blend.margin}, or another lineage than {blend.lineage.name}?"
                )

    @classmethod
    def build(cls, blend: MegatronBlend, lengths: Sequence[NDArray[np.int32]]) -> "MegatronOrder":
        """Rebuilds the order from the seed and the token counts.

        Args:
            blend: what the run named.
            lengths: of each prefix, tokens of each sequence (`treering.data.corpus.indexed.read_sequence_lengths`).

        Raises:
            UserError: a Megatron run cannot have such a blend.
        """
        plans = plan_datasets(blend, lengths)
        weights = blend_weights(blend, plans)
        components = [
            MegatronComponent(prefix, weight, held, plan, DatasetIndices.build(held, blend, plan))
            for prefix, weight, held, plan in zip(blend.prefixes, weights, lengths, plans, strict=True)
        ]
        return cls(blend, components, build_blend(blend, plans))

    def index_of(self, corpus: str) -> int:
        """The component of a prefix.

        Raises:
            NotFoundError: no such prefix.
        """
        names = [component.corpus for component in self.components]
        if corpus not in names:
            raise NotFoundError(f"megatron blend: no data path {corpus!r}, expected one of {', '.join(names)}")
        return names.index(corpus)

    def sample(self, g: int) -> Sample:
        """Sample g; its index is its place among the samples of its corpus before they were shuffled.

        Raises:
            UserError: the order has no such sample.
        """
        return self.samples_with_spans(g, g + 1)[0]

    def samples_with_spans(self, lo: int, hi: int) -> list[Sample]:
        """Samples [lo, hi), with the documents they hold.

        Raises:
            UserError: as `samples`.
        """
        arrays = self.samples(lo, hi)
        held: list[tuple[Span, ...]] = [()] * (hi - lo)
        for component in np.unique(arrays.component).tolist():
            where, part = np.flatnonzero(arrays.component == component), self.components[component]
            spans = part.indices.spans(arrays.index[where], part.lengths, extra_token=self.blend.extra_token)
            parts = list(map(Span, spans.document.tolist(), spans.start.tolist(), spans.end.tolist()))
            ends = np.searchsorted(spans.item, np.arange(1, len(where) + 1)).tolist()
            for at, first, end in zip(where.tolist(), [0, *ends], ends, strict=False):
                held[at] = tuple(parts[first:end])
        rows = zip(arrays.component.tolist(), arrays.epoch.tolist(), arrays.index.tolist(), held, strict=True)
        return [Sample(g, *row) for g, row in enumerate(rows, lo)]

    def samples(self, lo: int, hi: int) -> SampleArrays:
        """Samples [lo, hi).

        Raises:
            UserError: the order has no such samples.
        """
        if not 0 <= lo <= hi <= self.num_samples:
            raise UserError(self._outside(f"samples [{lo}, {hi})"))
        components = self.datasets(lo, hi).astype(np.int64)
        arrays = SampleArrays(components, np.empty(hi - lo, dtype=np.int64), np.empty(hi - lo, dtype=np.int64))
        for component in np.unique(components).tolist():
            where, part = np.flatnonzero(components == component), self.components[component]
            first = self.count(component, lo)
            indices = part.indices.shuffle[first : first + len(where)].astype(np.int64)
            arrays.index[where] = indices
            arrays.epoch[where] = part.epochs(indices)
        return arrays

    def count(self, component: int, g: int) -> int:
        """How many of the first g samples come from a component.

        Raises:
            UserError: the order has no such sample or component.
        """
        self._check(component, g)
        block = g // _BLOCK
        rest = self.datasets(block * _BLOCK, g)
        return int(self._blocks[block, component]) + int(np.count_nonzero(rest == component))

    def counts(self, g: int) -> tuple[int, ...]:
        """`count` of every component; they sum to g.

        Raises:
            UserError: the order has no such sample.
        """
        return tuple(self.count(component, g) for component in range(len(self.components)))

    def select(self, component: int, k: int) -> int:
        """The number of a component's k-th sample (from 0).

        Raises:
            UserError: the component does not exist, or the order ends before that sample.
        """
        self._check(component, k)
        column = self._blocks[:, component]
        if k >= column[-1]:
            raise UserError(self._outside(f"sample {k} of {self.components[component].corpus}"))
        block = int(np.searchsorted(column, k, side="right")) - 1
        held = self.datasets(block * _BLOCK, min((block + 1) * _BLOCK, self.num_samples))
        return block * _BLOCK + int(np.flatnonzero(held == component)[k - int(column[block])])

    def exposures(self, component: int, document: int, g: int) -> NDArray[np.int64]:
        """The samples below g that hold at least one token of a document, sorted.

        Raises:
            UserError: the order has no such sample or component.
            NotFoundError: no such document.
        """
        return self.document_exposures(component, np.array([document]), 0, g).sample

    def document_exposures(self, component: int, documents: NDArray[np.int64], lo: int, hi: int) -> Exposures:
        """The samples [lo, hi) that hold at least one token of each of some documents.

        Each document costs a pass over the indices.

        Raises:
            UserError: the order has no such samples or component.
            NotFoundError: no such document.
        """
        start, end, part = self.count(component, lo), self.count(component, hi), self.components[component]
        found = [np.empty((4, 0), dtype=np.int64)]
        for item, document in enumerate(documents.tolist()):
            if not 0 <= document < len(part.lengths):
                raise NotFoundError(
                    f"{part.corpus}: no document {document}, expected 0 to {len(part.lengths) - 1} (Megatron's "
                    "documents are the sequences of the .idx)"
                )
            places = part.indices.places(document, end, part.lengths, extra_token=self.blend.extra_token)
            places = places[places >= start]
            samples = np.array([self.select(component, place) for place in places.tolist()], dtype=np.int64)
            index = part.indices.shuffle[places].astype(np.int64)
            found.append(np.stack((np.full(len(places), item), samples, part.epochs(index), index)))
        return Exposures(*np.concatenate(found, axis=1))

    def touched(self, component: int, g: int) -> NDArray[np.bool_]:
        """Which documents of a component the first g samples touch: bool [num_documents].

        Raises:
            UserError: the order has no such sample or component.
        """
        return self.touched_between(component, 0, g)

    def touched_between(self, component: int, lo: int, hi: int) -> NDArray[np.bool_]:
        """Which documents of a component samples [lo, hi) touch: bool [num_documents].

        Raises:
            UserError: as `touched`.
        """
        part = self.components[component]
        return part.indices.touched(self.count(component, lo), self.count(component, hi), part.lengths)

    def documents_touched(self, component: int, g: int) -> int:
        """How many documents of a component the first g samples touch.

        Raises:
            UserError: as `touched`.
        """
        return int(np.count_nonzero(self.touched(component, g)))

    def datasets(self, lo: int, hi: int) -> NDArray[np.int16]:
        """The component of each of samples [lo, hi)."""
        return np.zeros(hi - lo, dtype=np.int16) if self._datasets is None else self._datasets[lo:hi]

    def _count_blocks(self) -> NDArray[np.int64]:
        """Samples of each component before each block, with the whole: int64 [num_blocks + 1, num_components]."""
        starts = range(0, self.num_samples, _BLOCK)
        blocks = np.zeros((len(starts) + 1, len(self.components)), dtype=np.int64)
        for row, start in enumerate(starts, 1):
            held = self.datasets(start, min(start + _BLOCK, self.num_samples))
            blocks[row] = blocks[row - 1] + np.bincount(held, minlength=len(self.components))
        return blocks

    def _check(self, component: int, number: int) -> None:
        if not 0 <= component < len(self.components):
            raise UserError(f"megatron blend: no component {component}, expected 0 to {len(self.components) - 1}")
        if not 0 <= number <= self.num_samples:
            raise UserError(self._outside(f"sample {number}"))

    def _outside(self, asked: str) -> str:
        within = f"the {self.num_samples} samples that it was built for"
        return f"megatron blend: {asked} asked for, expected within {within}"


def plan_datasets(blend: MegatronBlend, lengths: Sequence[NDArray[np.int32]]) -> list[IndexPlan]:
    """The plan of each dataset of a blend.

    Raises:
        UserError: a dataset holds less than a sample.
    """
    asked = zip(blend.prefixes, lengths, blend.requested(), strict=True)
    return [
        IndexPlan.of(prefix, held, blend, requested, component)
        for component, (prefix, held, requested) in enumerate(asked)
    ]


def blend_weights(blend: MegatronBlend, plans: Sequence[IndexPlan]) -> list[float]:
    """The share of each dataset in the greedy rule."""
    return blend.blend_weights([_readable(blend, plan) for plan in plans])


def build_blend(blend: MegatronBlend, plans: Sequence[IndexPlan]) -> NDArray[np.int16] | None:
    """The dataset of each sample of a blend, None for one dataset without a blend."""
    if not blend.blended:
        return None
    sizes = np.array([_readable(blend, plan) for plan in plans], dtype=np.int64)
    size = blend.size(sizes.tolist())
    if size is None:
        return interleave(sizes / float(sizes.sum()), int(sizes.sum()), sizes)
    return interleave(np.array(blend_weights(blend, plans)), size)


def _readable(blend: MegatronBlend, plan: IndexPlan) -> int:
    """Samples of a dataset that count as its length."""
    return plan.num_samples - (not blend.lineage.reads_last_sample)
