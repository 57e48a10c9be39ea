"""Held-out loss by corpus, and the loss of a model that knows only how often each token occurs.

Shape suffixes: B samples, S sequence, V padded vocabulary.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from treering_trainer.checkpointing.inference import LanguageModel

_BATCH_SAMPLES = 8


@dataclass(frozen=True, slots=True)
class HeldoutCorpus:
    """Held-out samples of one corpus.

    Attributes:
        weight: share of the corpus in the blend.
        samples: int64 [samples, S + 1].
        digest: of the held-out corpus.
    """

    weight: float
    samples: NDArray[np.int64]
    digest: str


def losses(model: LanguageModel, corpora: Mapping[str, HeldoutCorpus]) -> dict[str, float]:
    """Mean cross-entropy of each corpus in nats a token, computed as validation during training does."""
    return {name: _loss(model, corpus.samples) for name, corpus in corpora.items()}


def _loss(model: LanguageModel, samples: NDArray[np.int64]) -> float:
    device = next(model.parameters()).device
    total = 0.0
    with torch.inference_mode():
        for start in range(0, len(samples), _BATCH_SAMPLES):
            tokens = torch.from_numpy(samples[start : start + _BATCH_SAMPLES]).to(device)
            logits_BSV = model(tokens[:, :-1]).float()
            each = torch.nn.functional.cross_entropy(
                logits_BSV.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none"
            )
            total += float(each.double().sum())
    return total / samples[:, 1:].size


def weighted(values: Mapping[str, float], corpora: Mapping[str, HeldoutCorpus]) -> float:
    """Mean over corpora by their weight in the blend."""
    total = sum(corpora[name].weight for name in values)
    return sum(corpora[name].weight * value for name, value in values.items()) / total


def unigram_entropy(samples: NDArray[np.int64]) -> float:
    """Entropy of the frequencies of the predicted tokens, nats a token."""
    return _entropy(_frequencies(samples))


def blend_unigram_entropy(corpora: Mapping[str, HeldoutCorpus]) -> float:
    """Entropy of the token frequencies of all corpora mixed by their weights, nats a token.

    It is the lowest loss that a model without context can reach on these tokens.
    """
    length = max(int(corpus.samples.max()) for corpus in corpora.values()) + 1
    mixed = np.zeros(length)
    for corpus in corpora.values():
        frequencies = _frequencies(corpus.samples)
        mixed[: len(frequencies)] += corpus.weight * frequencies
    return _entropy(mixed / mixed.sum())


def _frequencies(samples: NDArray[np.int64]) -> NDArray[np.float64]:
    counts = np.bincount(samples[:, 1:].ravel())
    frequencies: NDArray[np.float64] = counts / counts.sum()
    return frequencies


def _entropy(frequencies: NDArray[np.float64]) -> float:
    present = frequencies[frequencies > 0]
    return float(-(present * np.log(present)).sum())


def perplexity(loss: float) -> float:
    """Exponential of a loss, limited to a finite number: an untrained model must not end an evaluation."""
    return math.exp(min(loss, 700.0))
