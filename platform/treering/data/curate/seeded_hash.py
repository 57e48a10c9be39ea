"""Keyed order: a pseudo-random number that depends on a seed and a document's content alone.

Names, paths and the number of processes do not change it, so a renamed corpus keeps its split, tasks and order.
"""

import hashlib

import numpy as np
import numpy.typing as npt


def key(seed: int, purpose: str, content: bytes | str) -> int:
    """A 64-bit key: blake2b of the content, keyed by seed and purpose."""
    return Keyed(seed, purpose).key(content)


class Keyed:
    """Computes the `key` of many contents.

    Args:
        seed: of the key.
        purpose: of the key.
        start: what every content begins with.
    """

    def __init__(self, seed: int, purpose: str, start: str = "") -> None:
        self._state = hashlib.blake2b(_bytes(start), digest_size=8, key=f"{purpose}:{seed}".encode())

    def key(self, content: bytes | str) -> int:
        """The key of a content, without its start."""
        state = self._state.copy()
        state.update(_bytes(content))
        return int.from_bytes(state.digest(), "little")


def _bytes(content: bytes | str) -> bytes:
    return content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content


def keys(seed: int, purpose: str, digests: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """`key` of every digest: uint64 [n]."""
    keyed, width = Keyed(seed, purpose), digests.shape[1]
    rows, starts = digests.tobytes(), range(0, len(digests) * width, width)
    return np.fromiter((keyed.key(rows[start : start + width]) for start in starts), np.uint64, len(digests))
