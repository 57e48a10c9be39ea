"""The orders of other lineages of Megatron that fit a run too, compared with the order of the answers.

Compared is the requested step, the document, or all samples up to the checkpoint; of more than 4.2 million samples, 64
blocks of 65,536 that are spread over all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from treering.data.megatron.blend import MegatronBlend
from treering.data.megatron.indices import DatasetIndices, IndexPlan
from treering.data.megatron.lineage import Lineage
from treering.data.megatron.order import MegatronOrder, blend_weights, build_blend, plan_datasets
from treering.errors import UserError

_BLOCK = 1 << 16
_BLOCKS = 64


@dataclass(frozen=True, slots=True)
class OtherOrder:
    """The order of other lineages for the same arguments.

    Attributes:
        lineages: the lineages with this order.
        order: the order.
        rules: the rules that make it another order, in words.
    """

    lineages: tuple[Lineage, ...]
    order: MegatronOrder
    rules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """How many samples of two orders differ.

    Attributes:
        compared: samples that were compared.
        differ: samples with other tokens.
    """

    compared: int
    differ: int


def other_orders(own: MegatronOrder, lineages: Sequence[Lineage], end: int) -> list[OtherOrder]:
    """The orders of lineages that differ from the answers' order; lineages with the same order are joined.

    A lineage is left out if its programs refuse such a run, or its order ends before the run does.

    Args:
        own: the order of the answers.
        lineages: lineages that fit the run.
        end: samples that the run has read.
    """
    lengths = [part.lengths for part in own.components]
    known = {_key(own.blend, [part.plan for part in own.components]): -1}
    found: list[OtherOrder] = []
    for lineage in lineages:
        try:
            blend = replace(own.blend, lineage=lineage)
            plans = plan_datasets(blend, lengths)
            key = _key(blend, plans)
            if key not in known:
                order = _built(own, blend, plans)
                if order.num_samples < end:
                    continue
                known[key] = len(found)
                found.append(OtherOrder((lineage,), order, _rules(own, lineage, lengths)))
            elif known[key] >= 0:
                same = found[known[key]]
                found[known[key]] = replace(same, lineages=(*same.lineages, lineage))
        except UserError:
            continue
    return found


def _built(own: MegatronOrder, blend: MegatronBlend, plans: Sequence[IndexPlan]) -> MegatronOrder:
    """The order of a blend; indices that are equal to those of the own order are not built again."""
    parts = zip(own.components, blend_weights(blend, plans), plans, strict=True)
    components = [
        replace(
            part,
            weight=weight,
            plan=plan,
            indices=part.indices if plan == part.plan else DatasetIndices.build(part.lengths, blend, plan),
        )
        for part, weight, plan in parts
    ]
    return MegatronOrder(blend, components, build_blend(blend, plans))


def _key(blend: MegatronBlend, plans: Sequence[IndexPlan]) -> tuple[object, ...]:
    """Everything that decides the samples of an order, beside the token counts and the seed."""
    weights = tuple(blend_weights(blend, plans)) if blend.blended else None
    return tuple(plans), weights


def _rules(own: MegatronOrder, lineage: Lineage, lengths: Sequence[NDArray[np.int32]]) -> tuple[str, ...]:
    """The rules of a lineage that make another order: each that does so alone, or all that differ."""
    key = _key(own.blend, [part.plan for part in own.components])
    differing = lineage.differences(own.blend.lineage)
    found = []
    for field, text in differing:
        changed = replace(own.blend.lineage, **{field: getattr(lineage, field)})
        try:
            blend = replace(own.blend, lineage=changed)
            moved = _key(blend, plan_datasets(blend, lengths)) != key
        except UserError:
            moved = False
        if moved:
            found.append(text)
    return tuple(found or [text for _, text in differing])


def compare(one: MegatronOrder, other: MegatronOrder, lo: int, hi: int) -> Comparison:
    """Compares samples [lo, hi) of two orders of the same data paths; of very many samples, blocks spread over all."""
    starts, compared = list(range(lo, hi, _BLOCK)), hi - lo
    if all(ours.plan == theirs.plan for ours, theirs in zip(one.components, other.components, strict=True)):
        starts = [start for start in starts if not _blends_alike(one, other, start, min(start + _BLOCK, hi))]
    if len(starts) > _BLOCKS:
        starts = [starts[round(place)] for place in np.linspace(0, len(starts) - 1, _BLOCKS)]
        compared = sum(min(start + _BLOCK, hi) - start for start in starts)
    differ = sum(int(np.count_nonzero(_different(one, other, start, min(start + _BLOCK, hi)))) for start in starts)
    return Comparison(compared, differ)


def _blends_alike(one: MegatronOrder, other: MegatronOrder, lo: int, hi: int) -> bool:
    """Whether samples [lo, hi) take the same places of the same datasets."""
    return one.counts(lo) == other.counts(lo) and np.array_equal(one.datasets(lo, hi), other.datasets(lo, hi))


def _different(one: MegatronOrder, other: MegatronOrder, lo: int, hi: int) -> NDArray[np.bool_]:
    """Which of samples [lo, hi) hold other tokens: bool [hi - lo]."""
    ours, theirs = _parts(one, lo, hi), _parts(other, lo, hi)
    counts = [np.bincount(parts[0], minlength=hi - lo) for parts in (ours, theirs)]
    different: NDArray[np.bool_] = counts[0] != counts[1]
    ours, theirs = (parts[:, ~different[parts[0]]] for parts in (ours, theirs))
    different[ours[0, np.any(ours != theirs, axis=0)]] = True
    return different


def _parts(order: MegatronOrder, lo: int, hi: int) -> NDArray[np.int64]:
    """The parts of documents in samples [lo, hi): sample from `lo`, component, document, start, end: [5, num_parts]."""
    arrays = order.samples(lo, hi)
    found = []
    for component in np.unique(arrays.component).tolist():
        where, part = np.flatnonzero(arrays.component == component), order.components[component]
        spans = part.indices.spans(arrays.index[where], part.lengths, extra_token=order.blend.extra_token)
        named = np.full(len(spans.item), component, dtype=np.int64)
        found.append(np.stack((where[spans.item], named, spans.document, spans.start, spans.end)))
    parts = np.concatenate(found, axis=1)
    return parts[:, np.argsort(parts[0], kind="stable")]
