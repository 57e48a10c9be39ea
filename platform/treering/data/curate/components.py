"""Connected components over document numbers, kept on disk."""

from pathlib import Path

import numpy as np

from treering.data.curate.disk_array import DiskArray

_CHUNK = 1 << 16


class Components:
    """Connected components (union-find); the root of a component is its lowest number.

    Not `scipy.cluster.hierarchy.DisjointSet`: that keeps dicts of Python objects in memory, hundreds of bytes for each
    document, and its roots are not the lowest numbers.

    Args:
        path: the file of the parents, 8 bytes for each document.
        count: number of documents.
        memory_bytes: most memory for them.
    """

    def __init__(self, path: Path, count: int, memory_bytes: int) -> None:
        self.parents = DiskArray.numbered(path, count, memory_bytes)
        self._num_accesses = 0

    def root(self, node: int) -> int:
        """The lowest number of the component."""
        if self._num_accesses > self.parents.stride:
            self.parents.release()
            self._num_accesses = 0
        parents = self.parents.view
        while (parent := parents[node]) != node:
            parents[node] = node = parents[parent]
            self._num_accesses += 2
        self._num_accesses += 1
        return int(node)

    def join(self, left: int, right: int) -> None:
        """Makes one component of two."""
        low, high = sorted((self.root(left), self.root(right)))
        self.parents.view[high] = low

    def settle(self) -> None:
        """Makes every parent the root. A parent is never above its child, so one pass upwards is enough."""
        parents = self.parents.array
        step = min(self.parents.stride, _CHUNK)
        for begin in range(0, len(parents), step):
            chunk = parents[begin : begin + step]
            moved = np.flatnonzero(chunk != np.arange(begin, begin + len(chunk)))
            found = chunk[moved]
            while not np.array_equal(above := parents[found], found):
                found = above
            chunk[moved] = found
            self.parents.release()
