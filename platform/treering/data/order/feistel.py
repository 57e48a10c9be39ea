"""The order of the samples inside a corpus: one keyed permutation an epoch, computed and never stored.

Part of `treering-1`, used by `data.order.treering1`. A Feistel network permutes [0, 2**bits), where `bits` is the
bit length of n - 1; a result outside [0, n) is sent through again until it is inside (cycle walking), which keeps the
map a bijection of [0, n) and takes fewer than 2 passes on average, since 2**bits < 2n.

Exactly (golden vectors in the tests hold this for ever):

- Keys. Of the ASCII text `treering-1/feistel/<seed in decimal>/<corpus digest>/<epoch in decimal>/<block>`, block "0"
  and "1", sha256 gives 32 bytes each; the 64 bytes are the ROUNDS = 8 round keys, uint64 little endian.
- Halves. A value v of `bits` bits is left = v >> r and right = v mod 2**r with r = bits - bits // 2.
- Round i = 0 .. 7. Even: left ^= F(right, key[i]) mod 2**(bits // 2). Odd: right ^= F(left, key[i]) mod 2**r.
- F(x, key), all mod 2**64: z = (x ^ key) * 0xBF58476D1CE4E5B9; z ^= z >> 32; z *= 0x94D049BB133111EB; z ^= z >> 32.

The inverse runs the rounds backwards. This is a shuffle and not a cipher: whoever knows the seed may know the order.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROUNDS = 8
_MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)
_SHIFT = np.uint64(32)
# Small enough for the scratch arrays to stay in the cache, which is worth a factor of three.
_CHUNK = 1 << 15
_MAX_TABLE_BITS = 16  # of the larger half: tables above 4 MB leave the cache


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
        result, n = values.astype(np.uint64), np.uint64(self.n)
        # Tables of F pay where there are more values to send through than entries to make.
        tabled = self._half_bits[1] <= _MAX_TABLE_BITS and len(values) > 4 << self._half_bits[1]
        tables = _tables(self.n, self.keys) if tabled else None
        late = [np.empty(0, dtype=np.int64)]
        for start in range(0, len(result), _CHUNK):
            block = result[start : start + _CHUNK]
            self._pass(block, rounds, tables)
            outside = np.flatnonzero(block >= n)
            while len(outside) > len(block) // 32:
                outside = self._walk(block, outside, rounds, tables)
            late.append(outside + start)
        # The last few of all blocks together: a pass over few costs as much as one over many.
        outside = np.concatenate(late)
        while len(outside):
            outside = self._walk(result, outside, rounds, tables)
        return result.view(np.int64)

    def _walk(
        self, values: NDArray[np.uint64], outside: NDArray[np.int64], rounds: range, tables: "_Tables | None"
    ) -> NDArray[np.int64]:
        """Sends the values at `outside` through once more; returns where they are still outside [0, n)."""
        walking = values[outside]
        self._pass(walking, rounds, tables)
        values[outside] = walking
        return outside[walking >= np.uint64(self.n)]

    @property
    def _half_bits(self) -> tuple[int, int]:
        """Bits of the left and of the right half of a value."""
        bits = (self.n - 1).bit_length()
        return bits // 2, bits - bits // 2

    def _pass(self, values: NDArray[np.uint64], rounds: range, tables: "_Tables | None") -> None:
        """Sends `values` through the network once, in place; by the arithmetic of F, or by tables of it."""
        _network(values, rounds, [np.uint64(key) for key in self.keys], *map(np.int64, self._half_bits), tables=tables)


def permute_each(
    positions: Sequence[NDArray[np.int64]], permutations: Sequence[Permutation]
) -> list[NDArray[np.int64]]:
    """`Permutation.permute` of some positions by each of several permutations, in the time of one for short arrays.

    Args:
        positions: those of each permutation.
        permutations: as many.
    """
    lengths = [len(each) for each in positions]
    if sum(lengths) > _CHUNK:
        return [permutation.permute(each) for each, permutation in zip(positions, permutations, strict=True)]
    whose = np.repeat(np.arange(len(permutations)), lengths)
    n = np.array([permutation.n for permutation in permutations], dtype=np.uint64)[whose]
    left_bits, right_bits = np.array([permutation._half_bits for permutation in permutations]).T[:, whose]  # noqa: SLF001 - of this file
    keys = np.array([permutation.keys for permutation in permutations], dtype=np.uint64).T[:, whose]
    values = np.concatenate(positions).astype(np.uint64)
    outside = np.arange(len(values))
    while len(outside):
        walking = values[outside]
        _network(walking, range(ROUNDS), keys[:, outside], left_bits[outside], right_bits[outside])
        values[outside] = walking
        outside = outside[walking >= n[outside]]
    return np.split(values.view(np.int64), np.cumsum(lengths)[:-1])


_Tables = tuple[NDArray[np.int64], ...]


def _network(
    values: NDArray[np.uint64],
    rounds: range,
    keys: Sequence[Any] | NDArray[np.uint64],
    left_bits: Any,
    right_bits: Any,
    *,
    tables: _Tables | None = None,
) -> None:
    """Sends `values` through the network once, in place; by the arithmetic of F, or by tables of it.

    Args:
        values: each below 2**bits.
        rounds: in their order.
        keys: of each round, uint64: one for all values, or one for each.
        left_bits: of the left half, int64: one for all values, or one for each.
        right_bits: of the right half.
        tables: F of every half, by round.
    """
    signed = values.view(np.int64)  # numpy looks up by signed numbers; halves are far from the sign
    left, right = signed >> right_bits, signed & ((1 << right_bits) - 1)
    z = np.empty_like(signed)
    for i in rounds:
        source, target, bits = (left, right, right_bits) if i % 2 else (right, left, left_bits)
        if tables is None:
            _scramble(source.view(np.uint64), keys[i], bits, out=z.view(np.uint64))
        else:
            np.take(tables[i], source, out=z, mode="wrap")  # "raise", the default, would copy `z`
        np.bitwise_xor(target, z, out=target)
    np.left_shift(left, right_bits, out=left)
    np.bitwise_or(left, right, out=signed)


@lru_cache(maxsize=4)
def _tables(n: int, keys: tuple[int, ...]) -> _Tables:
    """F of every half, by round: int64 [2**bits of the half that it is applied to]."""
    left_bits, right_bits = Permutation(n, keys)._half_bits  # noqa: SLF001 - of this file
    tables = []
    for i, key in enumerate(keys):
        source, bits = (left_bits, right_bits) if i % 2 else (right_bits, left_bits)
        values = np.arange(1 << source, dtype=np.uint64)
        _scramble(values, np.uint64(key), bits, out=values)
        tables.append(values.view(np.int64))
    return tuple(tables)


def _scramble(values: NDArray[np.uint64], key: Any, bits: Any, out: NDArray[np.uint64]) -> None:
    """The lowest `bits` bits of F(value, key); `key` and `bits` as in `_network`."""
    np.bitwise_xor(values, key, out=out)
    np.multiply(out, _MULTIPLIER_1, out=out)
    shifted = out >> _SHIFT
    np.bitwise_xor(out, shifted, out=out)
    np.multiply(out, _MULTIPLIER_2, out=out)
    np.right_shift(out, _SHIFT, out=shifted)
    np.bitwise_xor(out, shifted, out=out)
    np.bitwise_and(out.view(np.int64), (1 << bits) - 1, out=out.view(np.int64))
