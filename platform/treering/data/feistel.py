"""The order of the samples inside a corpus: one keyed permutation an epoch, computed and never stored.

Part of `treering-1`, used by `treering.data.order`. A Feistel network permutes [0, 2**bits), where `bits` is the
bit length of n - 1; a result outside [0, n) is sent through again until it lies inside (cycle walking), which keeps the
map a bijection of [0, n) and takes fewer than 2 passes on average, since 2**bits < 2n.

Exactly (golden vectors in the tests hold this for ever):

- Keys. Of the ASCII text `treering-1/feistel/<seed in decimal>/<corpus digest>/<epoch in decimal>/<block>`, block "0"
  and "1", sha256 gives 32 bytes each; the 64 bytes are the ROUNDS = 8 round keys, uint64 little endian.
- Halves. A value v of `bits` bits is left = v >> r and right = v mod 2**r with r = bits - bits // 2.
- Round i = 0 .. 7. Even: left ^= F(right, key[i]) mod 2**(bits // 2). Odd: right ^= F(left, key[i]) mod 2**r.
- F(x, key), all mod 2**64: z = (x ^ key) * 0xBF58476D1CE4E5B9; z ^= z >> 32; z *= 0x94D049BB133111EB; z ^= z >> 32.

The inverse runs the rounds backwards. This shuffles; it is no cipher: whoever knows the seed knows the order, and is
meant to.
"""

import hashlib
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

ROUNDS = 8
_MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)
_SHIFT = np.uint64(32)
# Small enough for the scratch arrays to stay in the cache, which is worth a factor of three.
_CHUNK = 1 << 15


@lru_cache(maxsize=4096)
def round_keys(seed: int, digest: str, epoch: int) -> tuple[int, ...]:
    """The ROUNDS keys of one epoch of one corpus."""
    text = f"treering-1/feistel/{seed}/{digest}/{epoch}"
    data = b"".join(hashlib.sha256(f"{text}/{block}".encode("ascii")).digest() for block in range(2))
    return tuple(int.from_bytes(data[8 * i : 8 * i + 8], "little") for i in range(ROUNDS))


@dataclass(frozen=True, slots=True)
class Permutation:
    """A bijection of [0, n): position in the epoch to index in the corpus.

    Attributes:
        n: number of samples, at least 1.
        keys: the ROUNDS round keys.
    """

    n: int
    keys: tuple[int, ...]

    @classmethod
    def of_epoch(cls, n: int, seed: int, digest: str, epoch: int) -> "Permutation":
        """The permutation of one epoch over the n samples of the corpus with this digest."""
        return cls(n, round_keys(seed, digest, epoch))

    def permute(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The indices that are read at these positions, shape as `positions`, each in [0, n)."""
        return self._map(positions, range(ROUNDS))

    def inverse(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """The positions at which these indices are read: `inverse(permute(p)) == p`."""
        return self._map(indices, range(ROUNDS - 1, -1, -1))

    def _map(self, values: NDArray[np.int64], rounds: range) -> NDArray[np.int64]:
        result = values.astype(np.uint64)
        self._passes(result, rounds)
        outside = np.flatnonzero(result >= np.uint64(self.n))
        while len(outside):
            walking = result[outside]
            self._passes(walking, rounds)
            result[outside] = walking
            outside = outside[walking >= np.uint64(self.n)]
        return result.view(np.int64)

    def _passes(self, values: NDArray[np.uint64], rounds: range) -> None:
        for start in range(0, len(values), _CHUNK):
            self._pass(values[start : start + _CHUNK], rounds)

    def _pass(self, values: NDArray[np.uint64], rounds: range) -> None:
        """Sends `values` through the network once, in place."""
        bits = (self.n - 1).bit_length()
        left_bits, right_bits = bits // 2, bits - bits // 2
        left_mask, right_mask = np.uint64((1 << left_bits) - 1), np.uint64((1 << right_bits) - 1)
        left, right = values >> np.uint64(right_bits), values & right_mask
        z, shifted = np.empty_like(values), np.empty_like(values)
        for i in rounds:
            source, target, mask = (left, right, right_mask) if i % 2 else (right, left, left_mask)
            np.bitwise_xor(source, np.uint64(self.keys[i]), out=z)
            np.multiply(z, _MULTIPLIER_1, out=z)
            np.right_shift(z, _SHIFT, out=shifted)
            np.bitwise_xor(z, shifted, out=z)
            np.multiply(z, _MULTIPLIER_2, out=z)
            np.right_shift(z, _SHIFT, out=shifted)
            np.bitwise_xor(z, shifted, out=z)
            np.bitwise_and(z, mask, out=z)
            np.bitwise_xor(target, z, out=target)
        np.left_shift(left, np.uint64(right_bits), out=left)
        np.bitwise_or(left, right, out=values)
