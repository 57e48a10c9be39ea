"""Step heldout: splits by near-duplicate cluster, and finds near-duplicates (twins) that are in both splits.

A cluster is held out as a whole. MinHash may miss a pair (at Jaccard 0.8 it finds two of three), so `TwinIndex`
compares every training document with all held-out ones exactly.
"""

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from treering.config.corpora import HeldoutConfig
from treering.data.curate.seeded_hash import keys
from treering.data.words import Hashes, starts_by_prefix
from treering.errors import UserError


def choose_heldout(
    *,
    corpus_of: npt.NDArray[np.int64],
    kept: npt.NDArray[np.bool_],
    cluster: npt.NDArray[np.int64],
    digests: npt.NDArray[np.uint8],
    names: list[str],
    config: HeldoutConfig,
    seed: int,
) -> npt.NDArray[np.bool_]:
    """Chooses the held-out documents among the kept ones.

    A cluster belongs to the corpus of its lowest number. Of each corpus the clusters with the lowest keys are held out:
    `fraction` of them, at least one. A cluster with more kept documents than that share of the corpus stays in
    training, so that one large cluster is not most of the held-out text.

    Args:
        corpus_of: corpus of each document: int64 [n].
        kept: whether it survived deduplication: bool [n].
        cluster: lowest number of its cluster: int64 [n].
        digests: content digests: uint8 [n, 16].
        names: names of the corpora.
        config: fraction.
        seed: of the keys.

    Returns:
        bool [n].

    Raises:
        UserError: a corpus has fewer than two clusters: nothing could be held out, or nothing be trained on.
    """
    sizes = np.bincount(cluster[kept], minlength=len(cluster))
    heldout_clusters = np.zeros(len(cluster), dtype=np.bool_)
    for number, name in enumerate(names):
        roots = np.flatnonzero((sizes > 0) & (corpus_of == number))
        if len(roots) < 2:
            raise UserError(
                f"corpus {name}: {len(roots)} near-duplicate clusters are left after deduplication, expected at least"
                " 2: one to train on, one to hold out; loosen its filter rules or give it more text"
            )
        wanted = math.ceil(config.fraction * len(roots))
        small = roots[sizes[roots] <= max(wanted, sizes[roots].min())]
        by_key = small[np.argsort(keys(seed, "heldout", digests[small]), kind="stable")]
        heldout_clusters[by_key[: min(wanted, len(roots) - 1)]] = True
    result: npt.NDArray[np.bool_] = heldout_clusters[cluster] & kept
    return result


class TwinIndex:
    """The shingles of all held-out documents, to find the training documents that are too like one of them.

    They are in memory, 12 bytes for each shingle of each held-out document and 16 for each document, once in every
    process: 1,000 held-out documents of 1,000 words are 12 MB.

    Args:
        heldout: number and sorted shingle set of each held-out document; fewer than 2³².
    """

    def __init__(self, heldout: Iterable[tuple[int, Hashes]]) -> None:
        pairs = list(heldout)
        self._numbers = [number for number, _ in pairs]
        self._sizes = np.array([len(found) for _, found in pairs], dtype=np.int64)
        values = np.concatenate([found for _, found in pairs]) if pairs else np.empty(0, np.uint64)
        owners = np.repeat(np.arange(len(pairs), dtype=np.uint32), self._sizes)
        order = np.argsort(values, kind="stable")
        self._values, self._owners = values[order], owners[order]
        self._starts = starts_by_prefix(self._values)
        self._common = np.zeros(len(pairs), dtype=np.int64)

    def twin(self, shingles: Hashes, min_jaccard: float) -> int | None:
        """Number of the held-out document most like a set of shingles, if at least `min_jaccard`."""
        from treering.data.compiled import most_alike  # noqa: PLC0415 - see treering.data.words.scan

        best, similarity = most_alike(shingles, self._values, self._starts, self._owners, self._sizes, self._common)
        return self._numbers[best] if best >= 0 and similarity >= min_jaccard else None
