"""Step dedup: exact duplicates and near-duplicates across all corpora, and the clusters that they form.

Documents are numbered over all corpora, in order of the corpora's priority. Of each group of duplicates the lowest
number is kept. Signatures, sorted keys, components and the verdict are on disk, so the memory does not grow with the
number of documents.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from treering.data.curate.candidates import Candidates
from treering.data.curate.disk_array import DiskArray
from treering.data.curate.shelf import Column, Signatures
from treering.data.curate.sorted_keys import Group, SortedKeys, equal_keys
from treering.data.words import Hashes

MEMORY_BYTES = 1 << 30
"""Most memory of the step. With less memory there are more and smaller reads, and the same verdict."""

KEPT, EXACT, NEAR = 0, 1, 2

_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Duplicates:
    """The verdict over n documents. The arrays are files in the scratch folder, mapped into memory.

    Attributes:
        rule: KEPT, EXACT or NEAR: uint8 [n].
        original: number of the document that is kept instead; for a kept document its own number: int64 [n].
        cluster: lowest number in the document's near-duplicate cluster, which holds at least the group of its
            duplicates: int64 [n].
        num_compared: how often the similarity of two candidates was computed.
    """

    rule: npt.NDArray[np.uint8]
    original: npt.NDArray[np.int64]
    cluster: npt.NDArray[np.int64]
    num_compared: int


def find_duplicates(
    signatures: Sequence[Signatures],
    shingles: Callable[[int], Hashes],
    scratch: Path,
    *,
    min_jaccard: float,
    cluster_jaccard: float,
    memory_bytes: int = MEMORY_BYTES,
) -> Duplicates:
    """Finds duplicates and clusters.

    Exact: equal digests. Near: documents that agree in one band are candidates. Inside such a bucket the lowest number
    is compared with all others, then the lowest of those that are not its duplicates, and so on.

    Args:
        signatures: of each shard of each corpus, in order of priority.
        shingles: the sorted shingle set of one document, read again from its text.
        scratch: folder for the step's files; what an interrupted step left there is removed.
        min_jaccard: candidates at least this similar are duplicates.
        cluster_jaccard: candidates at least this similar share a cluster; at most `min_jaccard`.
        memory_bytes: most memory of the step.
    """
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    signatures = [shard for shard in signatures if len(shard)]
    count = sum(map(len, signatures))
    if not count:
        return Duplicates(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64), 0)
    exact = DiskArray.numbered(scratch / "exact", count, memory_bytes // 8)
    shards = [
        SortedKeys.write(
            scratch / f"digests-{first}", np.arange(first, first + len(digests)), digests.view(np.uint64)[:, None]
        )
        for first, digests in _shards([shard.digests for shard in signatures], memory_bytes)
    ]
    _name_originals(equal_keys(shards, 1, scratch, memory_bytes), exact)

    shards = [
        _sort_bands(scratch / f"bands-{first}", first, bands, exact)
        for first, bands in _shards([shard.bands for shard in signatures], memory_bytes)
    ]
    candidates = Candidates(count, shingles, scratch, min_jaccard, cluster_jaccard, memory_bytes // 2)
    for bucket in equal_keys(shards, signatures[0].bands.width, scratch, memory_bytes):
        candidates.compare(bucket)
    return _verdict(exact, candidates, scratch)


def _shards(columns: Sequence[Column], memory_bytes: int) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """Shards that can be sorted in memory: the number of the first document, and the rows of the documents."""
    first = 0
    for column in columns:
        size = max(1, memory_bytes // 2 // (3 * column.row_bytes + 64))
        for begin in range(0, len(column), size):
            yield first + begin, column[begin : begin + size]
        first += len(column)


def _name_originals(equal: Iterator[Group], exact: DiskArray) -> None:
    """Writes for all documents with the same digest the lowest of them."""
    num_written = 0
    for group in equal:
        original = group[0]
        for begin in range(0, len(group), _CHUNK):
            for number in group[begin : begin + _CHUNK]:
                exact.view[number] = original
                num_written += 1
                if num_written % exact.stride == 0:
                    exact.release()


def _sort_bands(path: Path, first: int, bands: npt.NDArray[np.uint64], exact: DiskArray) -> SortedKeys:
    """Sorts the bands of one shard, without exact duplicates, and without documents that have no words, so no bands."""
    numbers = np.arange(first, first + len(bands))
    distinct = (exact.array[first : first + len(bands)] == numbers) & bands.any(axis=1)
    exact.release()
    return SortedKeys.write(path, numbers[distinct], bands[distinct][:, :, None])


def _verdict(exact: DiskArray, candidates: Candidates, scratch: Path) -> Duplicates:
    """An exact duplicate has the original and the cluster of the document that it equals."""
    candidates.duplicates.settle()
    candidates.clusters.settle()
    original, cluster = candidates.duplicates.parents, candidates.clusters.parents
    count = len(exact.array)
    rule = DiskArray(scratch / "rule", count, "B", count)
    step = min(exact.stride, _CHUNK)
    for begin in range(0, count, step):
        rows = slice(begin, min(count, begin + step))
        equal, numbers = exact.array[rows], np.arange(rows.start, rows.stop)
        # No other document asks for what is overwritten: an exact duplicate is in no bucket and equals no document.
        original.array[rows] = original.array[equal]
        cluster.array[rows] = cluster.array[equal]
        near = np.where(equal == numbers, NEAR, EXACT)
        rule.array[rows] = np.where(original.array[rows] == numbers, KEPT, near)
        for array in (exact, original, cluster, rule):
            array.release()
    return Duplicates(rule.array, original.array, cluster.array, candidates.num_compared)
