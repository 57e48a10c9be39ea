"""Step dedup: exact duplicates and near-duplicates across all corpora, and the clusters that they form.

Documents are numbered over all corpora, in order of the corpora's priority. Of each group of duplicates the lowest
number is kept.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from treering.data.words import Hashes, jaccard

_CACHED_SETS = 2048

KEPT, EXACT, NEAR = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Duplicates:
    """The verdict over n documents.

    Attributes:
        rule: KEPT, EXACT or NEAR: uint8 [n].
        original: number of the document that is kept instead; for a kept document its own number: int64 [n].
        cluster: lowest number in the document's near-duplicate cluster, which holds at least the group of its
            duplicates: int64 [n].
        num_compared: pairs of candidates whose similarity was computed.
    """

    rule: npt.NDArray[np.uint8]
    original: npt.NDArray[np.int64]
    cluster: npt.NDArray[np.int64]
    num_compared: int


class _Components:
    """Connected components (union-find); the root of a component is its lowest number.

    Not `scipy.cluster.hierarchy.DisjointSet`: that keeps dicts of Python objects, hundreds of bytes for each document,
    where this keeps 8, and its roots are not the lowest numbers.
    """

    def __init__(self, count: int) -> None:
        self.parent = np.arange(count, dtype=np.int64)

    def root(self, node: int) -> int:
        parent = self.parent
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = int(parent[node])
        return node

    def join(self, left: int, right: int) -> None:
        low, high = sorted((self.root(left), self.root(right)))
        self.parent[high] = low

    def roots(self) -> npt.NDArray[np.int64]:
        """The root of every number: int64 [n]."""
        parent = self.parent.copy()
        while True:
            next_parent = parent[parent]
            if np.array_equal(next_parent, parent):
                return parent
            parent = next_parent


def find_duplicates(
    digests: npt.NDArray[np.uint8],
    bands: npt.NDArray[np.uint64],
    shingles: Callable[[int], Hashes],
    *,
    min_jaccard: float,
    cluster_jaccard: float,
) -> Duplicates:
    """Finds duplicates and clusters.

    Exact: equal digests. Near: documents that agree in one band are candidates. Inside such a bucket the lowest number
    is compared with all others, then the lowest of those that are not its duplicates, and so on.

    Args:
        digests: uint8 [n, 16].
        bands: uint64 [n, bands].
        shingles: the sorted shingle set of one document, read again from its text.
        min_jaccard: candidates at least this similar are duplicates.
        cluster_jaccard: candidates at least this similar share a cluster; at most `min_jaccard`.
    """
    count = len(digests)
    _, first, inverse = np.unique(
        np.ascontiguousarray(digests).view(f"V{digests.shape[1]}").ravel(), return_index=True, return_inverse=True
    )
    exact_original = first[inverse].astype(np.int64)
    distinct = np.flatnonzero(exact_original == np.arange(count))

    duplicates, clusters = _Components(count), _Components(count)
    cached = lru_cache(_CACHED_SETS)(shingles)  # the lowest number of a bucket is compared again and again
    compared: set[tuple[int, int]] = set()
    for band in range(bands.shape[1]):
        for candidates in _buckets(bands[distinct, band], distinct):
            bucket = candidates
            while len(bucket) > 1:
                head, rest = bucket[0], bucket[1:]
                unlike = []
                for other in rest:
                    if (head, other) not in compared and duplicates.root(head) != duplicates.root(other):
                        compared.add((head, other))
                        similarity = jaccard(cached(head), cached(other))
                        if similarity >= cluster_jaccard:
                            clusters.join(head, other)
                        if similarity >= min_jaccard:
                            duplicates.join(head, other)
                    if duplicates.root(head) != duplicates.root(other):
                        unlike.append(other)
                bucket = unlike

    original = duplicates.roots()[exact_original]
    numbers = np.arange(count)
    rule = np.where(original == numbers, KEPT, np.where(exact_original != numbers, EXACT, NEAR)).astype(np.uint8)
    return Duplicates(rule, original, clusters.roots()[exact_original], len(compared))


def _buckets(keys: npt.NDArray[np.uint64], numbers: npt.NDArray[np.int64]) -> list[list[int]]:
    """Groups of at least two numbers with an equal key; numbers ascend inside a group, groups by their key."""
    order = np.argsort(keys, kind="stable")
    cuts = np.flatnonzero(np.diff(keys[order])) + 1
    starts, ends = np.concatenate(([0], cuts)), np.concatenate((cuts, [len(order)]))
    return [numbers[order[start:end]].tolist() for start, end in zip(starts, ends, strict=True) if end - start > 1]
