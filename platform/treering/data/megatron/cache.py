"""Megatron's index cache, compared with the `.idx` files by content.

Every program names a cached index by path and config (`cache_files.py`). The content of the data is not part of the
name, and neither is whether a sample has an extra token. After the data are rewritten in place, the program uses the
old index without a warning, and cuts the new documents at the old places. So no index is trusted here: its samples are
recomputed from today's token counts.

An array that is cut off, of another type or shape, or not of whole numbers is named and not used. A description that
cannot be read and a cache that was not found are listed under "not proven". Shuffles and blend of up to 33.5 million
entries are redone and compared number by number; longer ones with `--verify`, and without it they are "NOT BOUND".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treering.data.megatron.blend import MegatronBlend
from treering.data.megatron.cache_files import CachedIndex
from treering.data.megatron.indices import DatasetIndices, IndexPlan, sample_rows
from treering.data.megatron.order import MegatronComponent, MegatronOrder, blend_weights, build_blend
from treering.errors import EvidenceError

_CHUNK = 1 << 22
REDONE = 1 << 25
"""Entries of all shuffles up to which the shuffles are always redone, in about a second."""


@dataclass(frozen=True, slots=True)
class CacheRead:
    """An order, and the cached indices that it was read from.

    Attributes:
        order: the order; indices that are wrong in the cache were rebuilt.
        read: the cached indices that are right and were used.
        stale: each cached index that is wrong, and what differs, in words.
        redone: whether the shuffles and the blend were redone, and every number compared.
    """

    order: MegatronOrder
    read: tuple[CachedIndex, ...]
    stale: tuple[tuple[CachedIndex, str], ...]
    redone: bool


def read_order(
    blend: MegatronBlend,
    lengths: Sequence[NDArray[np.int32]],
    plans: Sequence[IndexPlan],
    cached: Sequence[CachedIndex],
    *,
    rebuild: bool = False,
) -> CacheRead:
    """The order with the indices of a cache that are right; the others are rebuilt.

    Every sample's place is recomputed from the token counts. The shuffles and the blend are redone too and compared
    number by number, if they have up to `REDONE` entries or `rebuild` is set. Otherwise a shuffle must only be a
    permutation, since redoing shuffles is most of the work of a rebuild.

    Args:
        blend: what the run named.
        lengths: of each prefix, tokens of each sequence by today's `.idx`.
        plans: of each prefix, by `plan_datasets`.
        cached: by `find_cache`.
        rebuild: whether to redo the shuffles, however long they are.

    Raises:
        UserError: a Megatron run cannot have such a blend.
    """
    rebuild |= sum(plan.num_samples + plan.num_epochs * (plan.end - plan.first) for plan in plans) <= REDONE
    read, stale, components = [], [], []
    by_component = {index.component: index for index in cached}
    weights = blend_weights(blend, plans)
    for position, (prefix, held, plan) in enumerate(zip(blend.prefixes, lengths, plans, strict=True)):
        index, indices = by_component.get(position), None
        if index is not None:
            indices, problem = _read_indices(index, held, blend, plan, rebuild=rebuild)
            if problem is None:
                read.append(index)
            else:
                stale.append((index, problem))
        indices = indices or DatasetIndices.build(held, blend, plan)
        components.append(MegatronComponent(prefix, weights[position], held, plan, indices))
    datasets = None
    if blend.blended and None in by_component:
        datasets, problem = _read_blend(by_component[None], blend, plans, rebuild=rebuild)
        if problem is None:
            read.append(by_component[None])
        else:
            stale.append((by_component[None], problem))
    if datasets is None:
        datasets = build_blend(blend, plans)
    return CacheRead(MegatronOrder(blend, components, datasets), tuple(read), tuple(stale), rebuild)


def _read_indices(  # noqa: C901, PLR0911 - one check after the other
    index: CachedIndex, lengths: NDArray[np.int32], blend: MegatronBlend, plan: IndexPlan, *, rebuild: bool
) -> tuple[DatasetIndices | None, str | None]:
    """The indices if they are right, else what differs."""
    try:
        indices = DatasetIndices(*(index.array(name) for name in ("document", "sample", "shuffle")))
    except EvidenceError as error:
        return None, str(error)
    listed = (plan.end - plan.first) * plan.num_epochs
    if index.num_epochs not in (None, plan.num_epochs):
        return None, (
            f"its description names {index.num_epochs} epochs, {plan.num_epochs} follow from today's .idx "
            f"({plan.tokens} tokens in {plan.end - plan.first} sequences an epoch)"
        )
    for name, found, expected in (
        ("document_index", indices.documents.shape, (listed,)),
        ("sample_index", indices.samples.shape, (plan.num_samples + 1, 2)),
        ("shuffle_index", indices.shuffle.shape, (plan.num_samples,)),
    ):
        if found != expected:
            return None, (
                f"{name} has {_entries(found)}, {_entries(expected)} follow from today's .idx ({plan.tokens} tokens in "
                f"{plan.end - plan.first} sequences an epoch, {plan.num_epochs} epochs)"
            )
    inside = bool(np.all((indices.documents >= plan.first) & (indices.documents < plan.end)))
    times = np.bincount(indices.documents - plan.first, minlength=plan.end - plan.first) if inside else np.zeros(1)
    if np.any(times != plan.num_epochs):
        return None, f"document_index does not list each of sequences {plan.first} to {plan.end} once an epoch"
    for start, rows in sample_rows(indices.documents, lengths, blend, plan):
        wrong = np.flatnonzero(np.any(indices.samples[start : start + len(rows)] != rows, axis=1))
        if len(wrong):
            row = start + int(wrong[0])
            (cached_at, cached_token), (at, token) = indices.samples[row].tolist(), rows[wrong[0]].tolist()
            return None, (
                f"sample {row} begins at token {cached_token} of document {_at(indices, cached_at)}, by today's .idx "
                f"it begins at token {token} of document {_at(indices, at)}"
            )
    if not _is_permutation(indices.shuffle):
        return None, "shuffle_index does not hold each sample once"
    if rebuild:
        again = DatasetIndices.build(lengths, blend, plan)
        for name, array, rebuilt in (
            ("document_index", indices.documents, again.documents),
            ("shuffle_index", indices.shuffle, again.shuffle),
        ):
            place = _first_difference(array, rebuilt)
            if place is not None:
                return None, f"{name} is {array[place]} at {place}, seed {blend.seed} gives {rebuilt[place]}"
    return indices, None


def _read_blend(
    index: CachedIndex, blend: MegatronBlend, plans: Sequence[IndexPlan], *, rebuild: bool
) -> tuple[NDArray[Any] | None, str | None]:
    try:
        datasets = index.array("dataset")
    except EvidenceError as error:
        return None, str(error)
    sizes = [plan.num_samples for plan in plans]
    size = blend.whole_size(sizes)
    expected = sum(sizes) if size is None else size
    if datasets.shape != (expected,):
        found = _entries(datasets.shape)
        return None, f"dataset_index has {found}, {expected} entries follow from today's .idx files"
    datasets = datasets[: blend.size(sizes)]  # a program may build more than any training reads
    if np.any((datasets < 0) | (datasets >= len(plans))):
        return None, f"dataset_index names a dataset outside the {len(plans)} of the blend"
    if rebuild:
        again = build_blend(blend, plans)
        place = None if again is None else _first_difference(datasets, again)
        if again is not None and place is not None:
            return None, f"dataset_index is {datasets[place]} at {place}, the weights give {again[place]}"
    return datasets, None


def _entries(shape: tuple[int, ...]) -> str:
    return f"{' x '.join(map(str, shape)) or 'no'} entries"


def _at(indices: DatasetIndices, position: int) -> int | str:
    inside = 0 <= position < len(indices.documents)
    return int(indices.documents[position]) if inside else f"beyond place {len(indices.documents) - 1}"


def _is_permutation(shuffle: NDArray[Any]) -> bool:
    seen = np.zeros(len(shuffle), dtype=np.bool_)
    for start in range(0, len(shuffle), _CHUNK):
        part = shuffle[start : start + _CHUNK]
        if np.any(part >= len(shuffle)) or np.any(part < 0):
            return False
        seen[part] = True
    return bool(seen.all())


def _first_difference(found: NDArray[Any], expected: NDArray[Any]) -> int | None:
    for start in range(0, len(expected), _CHUNK):
        wrong = np.flatnonzero(found[start : start + _CHUNK] != expected[start : start + _CHUNK])
        if len(wrong):
            return start + int(wrong[0])
    return None
