"""Loss on held-out documents during training: always on the same samples, by corpus and weighted as the blend.

Validation uses the training's pipeline engine and does not change its state: without validation the rings of a run are
the same, except for the validation's own numbers.
"""

from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treering.config.layout import RankCoordinates
from treering.config.operation import ValidationConfig
from treering.config.resolved_blend import ResolvedBlend
from treering.data.corpus.corpus import Corpus
from treering.project import Project
from treering_trainer.core.batch_reader import micro_batch
from treering_trainer.core.engine import Engine, MicroBatch
from treering_trainer.core.model import IGNORED_LABEL


class Validator:
    """The held-out samples of a run.

    Args:
        project: where the held-out corpora are.
        blend: names, weights and sequence length.
        config: how often to validate, and on how many samples.
        coordinates: of this rank in the layout.
    """

    def __init__(
        self,
        project: Project,
        blend: ResolvedBlend,
        config: ValidationConfig,
        coordinates: RankCoordinates,
    ) -> None:
        self._coordinates = coordinates
        self._weights: dict[str, float] = {}
        self._samples: dict[str, NDArray[np.int64]] = {}
        for component in blend.components:
            directory = project.corpus(component.corpus, "heldout")
            if not directory.exists():
                continue
            tokens = heldout_samples(Corpus.open(directory), blend.sequence_length, config.samples)
            if len(tokens):
                self._samples[component.corpus] = tokens
                self._weights[component.corpus] = float(Decimal(component.weight))

    def run(self, engine: Engine) -> dict[str, Any] | None:
        """Measures the held-out loss; collective over all ranks.

        Returns:
            `loss` (mean over corpora by their weight in the blend, in nats a token) and `by_corpus`; None where no
            corpus holds a single held-out sample.
        """
        if not self._samples:
            return None
        by_corpus = {name: self._loss(engine, tokens) for name, tokens in self._samples.items()}
        total = sum(self._weights.values())
        loss = sum(self._weights[name] * value for name, value in by_corpus.items()) / total
        return {"loss": loss, "by_corpus": by_corpus}

    def _loss(self, engine: Engine, tokens: NDArray[np.int64]) -> float:
        """Mean loss over samples [N, S + 1]; samples that only fill up the last micro-batches do not count."""
        layout = self._coordinates.layout
        together = layout.global_micro_batch_size
        padded = max(-(-len(tokens) // together), layout.least_micro_batches) * together
        fill = np.concatenate([tokens, np.repeat(tokens[:1], padded - len(tokens), axis=0)])
        mine: list[MicroBatch] = []
        for start in self._coordinates.micro_batch_starts(0, padded):
            inputs, labels = micro_batch(fill[start : start + layout.micro_batch_size])
            labels = labels.clone()
            labels[max(len(tokens) - start, 0) :] = IGNORED_LABEL
            mine.append((inputs, labels))
        return engine.evaluate(mine, padded // together) * padded / len(tokens)


def heldout_samples(corpus: Corpus, sequence_length: int, limit: int) -> NDArray[np.int64]:
    """The first samples of a held-out corpus, int64 [at most `limit`, S + 1]; none if it is shorter than a sample."""
    count = min((corpus.num_tokens - 1) // sequence_length, limit)
    if count < 1:
        return np.empty((0, sequence_length + 1), dtype=np.int64)
    tokens = np.asarray(corpus.tokens(0, count * sequence_length + 1), dtype=np.int64)
    return np.stack([tokens[i * sequence_length : (i + 1) * sequence_length + 1] for i in range(count)])
