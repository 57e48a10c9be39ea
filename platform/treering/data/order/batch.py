"""The tokens of samples and their digests: what the trainer feeds, and what the audit recomputes from the corpora.

A sample's digest is the sha256 of its sequence_length + 1 tokens as little-endian uint32; a batch's digest is the
sha256 of the raw digests of its samples in the order of g. Neither knows of micro-batches or ranks.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from treering.config.canonical import DIGEST_PREFIX
from treering.data.order.treering1 import DataOrder
from treering.errors import UserError

_MAX_TOKEN = (1 << 32) - 1


class TokenSource(Protocol):
    """Where a corpus's tokens are read, as `treering.data.corpus.corpus.Corpus` has it."""

    def tokens(self, start: int, stop: int) -> NDArray[Any]:
        """Tokens [start, stop) of the corpus, shape [stop - start]."""


def _little_endian(tokens: NDArray[Any]) -> NDArray[np.uint32]:
    """`tokens` as contiguous little-endian uint32.

    Raises:
        UserError: a value is no token.
    """
    if not np.issubdtype(tokens.dtype, np.integer):
        raise UserError(f"batch: tokens are {tokens.dtype}, expected whole numbers")
    if tokens.size and (int(tokens.min()) < 0 or int(tokens.max()) > _MAX_TOKEN):
        raise UserError(f"batch: tokens from {tokens.min()} to {tokens.max()}, expected 0 to {_MAX_TOKEN}")
    return np.ascontiguousarray(tokens, dtype="<u4")


def sample_digests(tokens: NDArray[Any]) -> list[str]:
    """Digests of samples, one a row: sha256 over the tokens as little-endian uint32.

    Args:
        tokens: shape [samples, sequence_length + 1], any integer type.

    Raises:
        UserError: a value is no token.
    """
    return [DIGEST_PREFIX + hashlib.sha256(row.data).hexdigest() for row in _little_endian(tokens)]


def batch_digest(digests: Iterable[str]) -> str:
    """Digest of a batch from its samples' digests, in the order of g: so it can be joined from many ranks."""
    state = hashlib.sha256()
    for digest in digests:
        state.update(bytes.fromhex(digest.removeprefix(DIGEST_PREFIX)))
    return DIGEST_PREFIX + state.hexdigest()


def read_samples(order: DataOrder, corpora: Sequence[TokenSource], lo: int, hi: int) -> NDArray[np.uint32]:
    """The tokens of samples [lo, hi), shape [hi - lo, sequence_length + 1].

    Args:
        order: the data order.
        corpora: one for each component, in the blend's order.
        lo: first sample number.
        hi: one past the last.

    Raises:
        UserError: no range of sample numbers, or a declared corpus in it.
    """
    components, starts = order.token_ranges(lo, hi)
    width = order.sequence_length + 1
    tokens = np.empty((hi - lo, width), dtype=np.uint32)
    for row, (component, start) in enumerate(zip(components.tolist(), starts.tolist(), strict=True)):
        tokens[row] = corpora[component].tokens(start, start + width)
    return tokens
