"""Candidates of deduplication: compares those that share a bucket, and joins those that are alike."""

from collections.abc import Callable
from pathlib import Path

from treering.data.curate.components import Components
from treering.data.curate.sorted_keys import Group
from treering.data.words import Hashes, jaccard

_CHUNK = 1024
_PAIR_BYTES = 128
"""Memory for a pair in a set."""
_SET_BYTES = 300
"""Memory for a shingle set beside its hashes."""


class Candidates:
    """Joins duplicates, and clusters of documents that are less alike.

    The order of the buckets counts: documents that are known duplicates by way of others are not compared.

    Args:
        count: number of documents.
        shingles: the sorted shingle set of one document, read again from its text.
        scratch: folder for the files.
        min_jaccard: candidates at least this similar are duplicates.
        cluster_jaccard: candidates at least this similar share a cluster.
        memory_bytes: most memory.

    Attributes:
        duplicates: components of duplicates.
        clusters: components of clusters.
        num_compared: how often a similarity was computed.
    """

    def __init__(  # noqa: PLR0917 - as `find_duplicates`
        self,
        count: int,
        shingles: Callable[[int], Hashes],
        scratch: Path,
        min_jaccard: float,
        cluster_jaccard: float,
        memory_bytes: int,
    ) -> None:
        self.duplicates = Components(scratch / "original", count, memory_bytes // 4)
        self.clusters = Components(scratch / "cluster", count, memory_bytes // 4)
        self.num_compared = 0
        self._count = count
        self._min_jaccard = min_jaccard
        self._cluster_jaccard = cluster_jaccard
        self._max_pairs = memory_bytes // 4 // _PAIR_BYTES
        self._compared: set[int] = set()
        self._sets = _ShingleSets(shingles, memory_bytes // 4)

    def compare(self, bucket: Group) -> None:
        """Compares the lowest document of a bucket with all others, then the lowest of those unlike it, and so on.

        The bucket is used up.
        """
        size = len(bucket)
        while size > 1:
            head, left = bucket[0], 0
            for begin in range(1, size, _CHUNK):
                chunk = bucket[begin : min(size, begin + _CHUNK)]
                unlike = [other for other in chunk if not self._are_duplicates(head, other)]
                bucket[left : left + len(unlike)] = unlike
                left += len(unlike)
            size = left

    def _are_duplicates(self, head: int, other: int) -> bool:
        if self.duplicates.root(head) == self.duplicates.root(other):
            return True
        pair = head * self._count + other
        if pair in self._compared:
            return False
        if len(self._compared) >= self._max_pairs:
            self._compared.clear()  # a pair that is compared again gives the same answer
        self._compared.add(pair)
        self.num_compared += 1
        similarity = jaccard(self._sets[head], self._sets[other])
        if similarity >= self._cluster_jaccard:
            self.clusters.join(head, other)
        if similarity >= self._min_jaccard:
            self.duplicates.join(head, other)
            return True
        return False


class _ShingleSets:
    """Shingle sets, read when asked for and kept for the next bucket.

    When they fill the memory, those used longest ago go; both sets of a comparison stay.
    """

    def __init__(self, shingles: Callable[[int], Hashes], memory_bytes: int) -> None:
        self._shingles = shingles
        self._memory_bytes = memory_bytes
        self._sets: dict[int, Hashes] = {}
        self._num_bytes = 0

    def __getitem__(self, number: int) -> Hashes:
        found = self._sets.pop(number, None)
        if found is None:
            found = self._shingles(number)
            self._num_bytes += found.nbytes + _SET_BYTES
            while self._num_bytes > self._memory_bytes and len(self._sets) > 1:
                self._num_bytes -= self._sets.pop(next(iter(self._sets))).nbytes + _SET_BYTES
        self._sets[number] = found
        return found
