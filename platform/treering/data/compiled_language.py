"""Machine code for a language model of fastText: its arithmetic, step by step, so that every score has the same bits.

The sums are of 32-bit numbers in fastText's order, and `exp` and `log` are those of the C library, as there.
Source: Joulin et al. 2016 (arXiv 1607.01759 and 1612.03651), and `src/` of https://github.com/facebookresearch/fastText
(`Dictionary::getLine`, `Dictionary::computeSubwords`, `Model::computeHidden`, `HierarchicalSoftmaxLoss::dfs`).
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treering.data.compiled import Bytes, compiled

DIMENSION, BUCKETS, SHORTEST, LONGEST = 16, 2_000_000, 2, 4
"""Of lid.176: length of a vector, hashes of n-grams, characters in an n-gram."""
LABEL = b"__label__"
_LABEL = np.frombuffer(LABEL, np.uint8)
_BASIS, _PRIME = np.uint32(2166136261), np.uint32(16777619)
"""Of the hash FNV-1a, 32 bits; fastText takes a byte as a signed number."""
_NEVER = np.float32(math.log(1e-5))
"""Log-probability below which fastText gives a label up."""

Floats = npt.NDArray[np.float32]


class LanguageModel(NamedTuple):
    """The arrays of a model.

    Attributes:
        vectors: of all words, then of the n-grams by their bucket: float32 [words + n-grams, DIMENSION].
        blocks: for each 32 buckets, in the low half which of them have a vector, in the high half the row of the first:
            uint64 [BUCKETS / 32].
        slots: the word of a hash, -1 for none, the next slot for another one: int32, a power of two of them.
        spelling: UTF-8 of all words, one after another.
        ends: where each word ends there, after a 0: int64 [words + 1].
        outputs: of the inner nodes of the tree: float32 [labels - 1, DIMENSION].
        children: left and right of each inner node, the leaves first: int64 [labels - 1, 2].
    """

    vectors: Floats
    blocks: npt.NDArray[np.uint64]
    slots: npt.NDArray[np.int32]
    spelling: Bytes
    ends: npt.NDArray[np.int64]
    outputs: Floats
    children: npt.NDArray[np.int64]


@compiled
def _mixed(state: np.uint32, byte: np.uint8) -> np.uint32:
    return np.uint32(np.uint32(state ^ np.uint32(np.int8(byte))) * _PRIME)


@compiled
def _is_space(byte: np.uint8) -> bool:
    return bool(byte == 32 or byte == 0 or 9 <= byte <= 13)  # noqa: PLR1714 - numba builds no set for numbers


@compiled
def _same(data: Bytes, at: int, other: Bytes, begin: int, count: int) -> bool:
    for index in range(count):  # noqa: SIM110 - numba knows no `all`
        if data[at + index] != other[begin + index]:
            return False
    return True


@compiled
def _word(data: Bytes, begin: int, end: int, model: LanguageModel) -> int:
    """The number of a word; -1 for one that the model does not know."""
    state = _BASIS
    for at in range(begin, end):
        state = _mixed(state, data[at])
    mask = len(model.slots) - 1
    slot = np.int64(state) & mask
    while model.slots[slot] >= 0:
        number = int(model.slots[slot])
        start = model.ends[number]
        if model.ends[number + 1] - start == end - begin and _same(data, begin, model.spelling, start, end - begin):
            return number
        slot = (slot + 1) & mask
    return -1


@compiled
def _num_bits(bits: np.uint32) -> np.int64:
    bits = np.uint32(bits - ((bits >> np.uint32(1)) & np.uint32(0x55555555)))
    bits = np.uint32((bits & np.uint32(0x33333333)) + ((bits >> np.uint32(2)) & np.uint32(0x33333333)))
    bits = np.uint32((bits + (bits >> np.uint32(4))) & np.uint32(0x0F0F0F0F))
    return np.int64(np.uint32(bits * np.uint32(0x01010101)) >> np.uint32(24))


@compiled
def _add(vector: Floats, row: Floats) -> None:
    for index in range(DIMENSION):
        vector[index] += row[index]


@compiled
def _add_ngrams(data: Bytes, end: int, model: LanguageModel, vector: Floats) -> int:
    """Adds the vectors of all n-grams of a word between its brackets; returns how many have one."""
    count = 0
    for first in range(end):
        if data[first] & 0xC0 == 0x80:
            continue
        state, at = _BASIS, first
        for length in range(1, LONGEST + 1):
            if at == end:
                break
            state, at = _mixed(state, data[at]), at + 1
            while at < end and data[at] & 0xC0 == 0x80:
                state, at = _mixed(state, data[at]), at + 1
            if length < SHORTEST:
                continue
            bucket = np.uint32(state % np.uint32(BUCKETS))
            block, bit = model.blocks[bucket >> np.uint32(5)], bucket & np.uint32(31)
            bits = np.uint32(block & np.uint64(0xFFFFFFFF))
            if (bits >> bit) & np.uint32(1):
                below = np.uint32(bits & np.uint32((np.uint32(1) << bit) - np.uint32(1)))
                _add(vector, model.vectors[np.int64(block >> np.uint64(32)) + _num_bits(below)])
                count += 1
    return count


@compiled
def _log(value: np.float32) -> np.float32:
    return np.float32(math.log(np.float64(value) + 1e-5))


@compiled
def _best_leaf(vector: Floats, model: LanguageModel) -> tuple[int, np.float32]:
    """The most probable leaf of the tree and its log-probability; -1 where none is probable enough."""
    leaves = len(model.children) + 1
    nodes, scores = np.empty(2 * leaves, np.int64), np.empty(2 * leaves, np.float32)
    nodes[0], scores[0], depth = 2 * leaves - 2, np.float32(0), 1
    best, highest = -1, np.float32(0)
    while depth:
        depth -= 1
        node, score = nodes[depth], scores[depth]
        if score < _NEVER or (best >= 0 and score < highest):
            continue
        if node < leaves:
            best, highest = node, score
            continue
        inner, product = node - leaves, np.float32(0)
        for index in range(DIMENSION):
            product += vector[index] * model.outputs[inner, index]
        right = np.float32(1.0 / np.float64(np.float32(1) + np.float32(math.exp(np.float32(-product)))))
        nodes[depth], scores[depth] = model.children[inner, 1], score + _log(right)
        nodes[depth + 1] = model.children[inner, 0]
        scores[depth + 1] = score + _log(np.float32(1.0 - np.float64(right)))
        depth += 2
    return best, highest


@compiled
def most_probable(data: Bytes, model: LanguageModel) -> tuple[int, np.float32]:
    """The label that fastText finds most probable for a text on one line, and its probability.

    Args:
        data: the text, UTF-8; the end of a line counts as a space.
        model: the model.

    Returns:
        Number of the label, -1 for none; and the probability.
    """
    vector = np.zeros(DIMENSION, np.float32)
    bracketed = np.empty(len(data) + 2, np.uint8)
    bracketed[0] = ord("<")
    count, at = 0, 0
    while at < len(data):
        if _is_space(data[at]):
            at += 1
            continue
        begin = at
        while at < len(data) and not _is_space(data[at]):
            bracketed[at - begin + 1] = data[at]
            at += 1
        word = _word(data, begin, at, model)
        if word == 0:  # spelled like the end of a line
            break
        if at - begin >= len(_LABEL) and _same(data, begin, _LABEL, 0, len(_LABEL)):
            continue
        if word > 0:
            _add(vector, model.vectors[word])
            count += 1
        bracketed[at - begin + 1] = ord(">")
        count += _add_ngrams(bracketed, at - begin + 2, model, vector)
    _add(vector, model.vectors[0])
    scale = np.float32(1.0 / (count + 1))
    for index in range(DIMENSION):
        vector[index] *= scale
    best, score = _best_leaf(vector, model)
    return best, np.float32(math.exp(score))
