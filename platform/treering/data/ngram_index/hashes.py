"""Hashes of the n-grams of many texts at once, computed over arrays of their characters.

Words are those of `treering.data.words`, but their hashes differ from those there: they run no Python for each word.
The index of n-grams is built and searched with them.
"""

from collections.abc import Sequence
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt

from treering.data.words import WORD, Hashes, run_hashes

_CODES = 0x110000
_BASE = 0x9E3779B97F4A7C15  # odd: it has an inverse modulo 2⁶⁴
_MIX = np.uint64(0xBF58476D1CE4E5B9)
_SHIFT = np.uint64(32)
_FEWEST_POWERS = 18


def ngram_hashes(texts: Sequence[str], words: int) -> tuple[Hashes, npt.NDArray[np.int64]]:
    """Hash of every n-gram of some texts; no n-gram spans two texts.

    A word's hash is a polynomial over its characters modulo 2⁶⁴, as the difference of two prefix sums, mixed.

    Args:
        texts: the texts.
        words: words of an n-gram.

    Returns:
        Hashes in the order of the texts, and for each hash the number of its text; both of one length.
    """
    lower = [text.lower() for text in texts]
    codes = _codes("\n".join(lower))
    edges = _edges(_in_word()[codes])
    starts, ends = edges[::2], edges[1::2]
    powers, inverses = _powers(max(_FEWEST_POWERS, len(codes).bit_length()))
    sums = np.zeros(len(codes) + 1, dtype=np.uint64)
    np.cumsum(np.multiply(codes, powers[: len(codes)], out=sums[1:]), out=sums[1:])
    hashes = (sums[ends] - sums[starts]) * inverses[starts]
    hashes ^= hashes >> _SHIFT
    hashes *= _MIX
    runs = run_hashes(hashes, words)
    lengths = np.fromiter(map(len, lower), dtype=np.int64, count=len(lower))
    words_before = np.searchsorted(starts, np.cumsum(lengths + 1))
    text_of = np.repeat(np.arange(len(lower)), np.diff(words_before, prepend=0))
    first, last = text_of[: len(runs)], text_of[words - 1 :]
    inside = first == last
    return runs[inside], first[inside]


def _codes(text: str) -> npt.NDArray[np.generic]:
    """The code points of a text: uint8 or uint32 [num_characters]."""
    if text.isascii():
        return np.frombuffer(text.encode("ascii"), np.uint8)
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")


def _edges(inside: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Where stretches of True begin and end, alternately."""
    padded = np.zeros(len(inside) + 2, dtype=bool)
    padded[1:-1] = inside
    return np.flatnonzero(padded[1:] != padded[:-1])


@cache
def _in_word() -> npt.NDArray[np.bool_]:
    """Whether each character of Unicode belongs to a word: bool [0x110000]."""
    every = np.arange(_CODES, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")
    found = np.zeros(_CODES, dtype=bool)
    for match in WORD.finditer(every):
        found[match.start() : match.end()] = True
    return found


@lru_cache(maxsize=1)
def _powers(bits: int) -> tuple[Hashes, Hashes]:
    """The first 2^bits powers of the base and of its inverse modulo 2⁶⁴."""
    found = []
    for base in (_BASE, pow(_BASE, -1, 1 << 64)):
        factors = np.full(1 << bits, base, dtype=np.uint64)
        factors[0] = 1
        found.append(np.multiply.accumulate(factors))
    return found[0], found[1]
