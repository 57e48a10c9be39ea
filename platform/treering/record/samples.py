"""Turns the tokens that a trainer gives, in whatever container, into digests of samples."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from treering.config.canonical import DIGEST_PREFIX
from treering.data.order.batch import batch_digest, sample_digests
from treering.errors import UserError
from treering.runlog.recorded_ring import FINGERPRINT_DIGITS

_EXPECTED = "numpy arrays, torch tensors or lists of token ids, one sample a row"


@dataclass(frozen=True, slots=True)
class StepSamples:
    """What a ring keeps of the samples of a step; meanings as in `RecordedRing`."""

    samples: int
    tokens: int
    batch_digest: str
    fingerprints: str

    @classmethod
    def of(cls, tokens: Any) -> Self:
        """Digests the samples of a step.

        Args:
            tokens: one sample (shape [tokens]), a batch (shape [samples, tokens]), or a sequence of samples or batches,
                such as the micro-batches of a step; numpy arrays, torch tensors on any device, or lists.

        Raises:
            UserError: these are not tokens.
        """
        rows = list(_batches(tokens))
        digests = [digest for row in rows for digest in sample_digests(row)]
        return cls(
            samples=len(digests),
            tokens=sum(row.size for row in rows),
            batch_digest=batch_digest(digests),
            fingerprints="".join(fingerprint(digest) for digest in digests),
        )


def fingerprint(digest: str) -> str:
    """A sample's fingerprint from its digest."""
    return digest[len(DIGEST_PREFIX) : len(DIGEST_PREFIX) + FINGERPRINT_DIGITS]


def _batches(tokens: Any) -> Iterator[NDArray[Any]]:
    """The tokens as arrays of shape [samples, tokens].

    Raises:
        UserError: these are not tokens.
    """
    if isinstance(tokens, Mapping):
        keys = ", ".join(str(key) for key in tokens)
        raise UserError(f"tokens: found a mapping with {keys}, expected {_EXPECTED}; pass batch['input_ids']")
    if isinstance(tokens, str | bytes):
        raise UserError(f"tokens: found text, expected {_EXPECTED}; pass what the tokenizer returned")
    if _is_array(tokens):
        array = _to_numpy(tokens)
        if array.ndim > 2:
            array = array.reshape(-1, array.shape[-1])
        if array.ndim == 0:
            raise UserError(f"tokens: found a single number, expected {_EXPECTED}")
        yield array[None] if array.ndim == 1 else array
    elif isinstance(tokens, Sequence) and tokens and all(isinstance(each, int | np.integer) for each in tokens):
        yield np.asarray(tokens)[None]
    elif isinstance(tokens, Sequence):
        for part in tokens:
            yield from _batches(part)
    else:
        raise UserError(f"tokens: found {type(tokens).__name__}, expected {_EXPECTED}")


def _is_array(tokens: Any) -> bool:
    return isinstance(tokens, np.ndarray) or hasattr(tokens, "__array__") or hasattr(tokens, "detach")


def _to_numpy(tokens: Any) -> NDArray[Any]:
    if hasattr(tokens, "detach"):  # a torch tensor, wherever it is; torch itself is not imported
        tokens = tokens.detach().cpu()
    return np.asarray(tokens)
