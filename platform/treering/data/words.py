"""Words, and hashes of runs of words: the shingles of deduplication and the n-grams of decontamination."""

import re

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]

WordCounts = tuple[int, int, int, int]
"""Number of words, characters in them, words with a letter, and different stop words."""

WORD = re.compile(r"\w+")
"""A word of a text in lower case."""

STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
"""Gopher's (Rae et al. 2021, arXiv 2112.11446, appendix A.1.1); `scan` counts them."""
_STOP_WORDS = np.array([int.from_bytes(word.encode(), "little") for word in STOP_WORDS], dtype=np.uint32)

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)


def words(text: str) -> list[str]:
    """The words of a text, lower case, without punctuation."""
    return WORD.findall(text.lower())


def word_spans(text: str) -> tuple[list[str], list[tuple[int, int]]]:
    """The words of a text as `words` gives them, and the characters [start, end) of each word in the text.

    The lower case of a text may be longer than the text (one letter has a longer one): positions are in the lower case.
    """
    found = [(match[0], match.span()) for match in WORD.finditer(text.lower())]
    return [word for word, _span in found], [span for _word, span in found]


def word_hashes(text: str) -> Hashes:
    """XXH64 of every word's UTF-8 bytes, in order: uint64 [num_words]."""
    return scan(text.lower())[0]


def scan(lowered: str) -> tuple[Hashes, WordCounts]:
    """The words of a text in lower case, in one pass of machine code: `word_hashes`, and counts."""
    from treering.data.compiled import character_classes, scan_words  # noqa: PLC0415 - 0.4 s that an audit never needs

    data = np.frombuffer(lowered.encode("utf-8", "surrogatepass"), dtype=np.uint8)
    hashes = np.empty((len(data) + 1) // 2, dtype=np.uint64)
    counts = scan_words(data, character_classes(), _STOP_WORDS, hashes)
    return hashes[: counts[0]], counts


def run_hashes(hashes: Hashes, length: int) -> Hashes:
    """Hash of every run of `length` words: uint64 [max(0, num_words - length + 1)].

    A polynomial over the words' hashes modulo 2⁶⁴, mixed so that all bits depend on all words.
    """
    count = len(hashes) - length + 1
    if count <= 0:
        return np.empty(0, dtype=np.uint64)
    runs = np.zeros(count, dtype=np.uint64)
    for start in range(length):
        runs = runs * _MULTIPLIER + hashes[start : start + count]
    runs ^= runs >> np.uint64(30)
    runs *= _MIX
    runs ^= runs >> np.uint64(27)
    return runs


def shingles(text: str, length: int) -> Hashes:
    """The set of a text's shingles, sorted: one for a text shorter than a shingle, none for a text without words."""
    return shingle_set(word_hashes(text), length)


def shingle_set(hashes: Hashes, length: int) -> Hashes:
    """`shingles` of a text whose `word_hashes` are known."""
    from treering.data.compiled import drop_repeats  # noqa: PLC0415 - see scan

    runs = shingle_runs(hashes, length)
    runs.sort()
    return drop_repeats(runs)


def shingle_runs(hashes: Hashes, length: int) -> Hashes:
    """The shingles of a text whose `word_hashes` are known, in their order, with repeats."""
    from treering.data.compiled import hash_runs  # noqa: PLC0415 - see scan

    return hash_runs(hashes, min(length, max(1, len(hashes))), _MULTIPLIER, _MIX)


def starts_by_prefix(hashes: Hashes) -> npt.NDArray[np.int64]:
    """Where the hashes with each prefix begin in a sorted array, and its end: int64 [2ᵏ + 1], with k bits of a prefix.

    k grows with the array, so that a small one stays in the processor's cache.
    """
    num_bits = min(20, max(4, len(hashes).bit_length() + 1))
    prefixes = np.arange(2**num_bits, dtype=np.uint64) << np.uint64(64 - num_bits)
    return np.append(np.searchsorted(hashes, prefixes), len(hashes)).astype(np.int64)


class RunTable:
    """Hashes of runs, of one length, to find the first of them in a text.

    Args:
        hashes: sorted.
    """

    def __init__(self, hashes: Hashes) -> None:
        self.hashes = hashes
        self._starts = starts_by_prefix(hashes)

    def find(self, words: Hashes, length: int) -> int:
        """Index of the hash of the first run of a text's word hashes that is here; -1 if none is."""
        from treering.data.compiled import find_run  # noqa: PLC0415 - see scan

        return find_run(words, length, self.hashes, self._starts, _MULTIPLIER, _MIX)


def jaccard(left: Hashes, right: Hashes) -> float:
    """Jaccard similarity of two sets, given as sorted arrays: common members over all members; 0 for two empty sets."""
    if not len(left) or not len(right):
        return 0.0
    common = len(np.intersect1d(left, right, assume_unique=True))
    return common / (len(left) + len(right) - common)
