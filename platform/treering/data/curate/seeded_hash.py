"""Keyed order: a pseudo-random number that depends on a seed and a document's content alone.

Names, paths and the number of processes do not change it, so a renamed corpus keeps its split, tasks and order.
"""

import hashlib
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt


def key(seed: int, purpose: str, content: bytes | str) -> int:
    """A 64-bit key: blake2b of the content, keyed by seed and purpose."""
    data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    state = hashlib.blake2b(data, digest_size=8, key=f"{purpose}:{seed}".encode())
    return int.from_bytes(state.digest(), "little")


def keys(seed: int, purpose: str, digests: Iterable[npt.NDArray[np.uint8]]) -> npt.NDArray[np.uint64]:
    """`key` of every digest: uint64 [n]."""
    return np.array([key(seed, purpose, digest.tobytes()) for digest in digests], dtype=np.uint64)
