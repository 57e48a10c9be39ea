"""Chooses the next token.

Shape suffixes: V the tokenizer's vocabulary.
"""

import math
from dataclasses import dataclass

import torch

from treering.errors import TrainingError, UserError


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is drawn; the filters are applied in this order: temperature, top-k, top-p.

    Attributes:
        temperature: divides the logits; 0 takes the most probable token.
        top_k: draw among the k most probable tokens, None for all tokens.
        top_p: draw among the most probable tokens that together reach this probability (arXiv 1904.09751).

    Raises:
        UserError: a value is out of its range.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0

    def __post_init__(self) -> None:
        """Checks the ranges.

        Raises:
            UserError: a value is out of its range.
        """
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise UserError(f"--temperature: found {self.temperature}, expected a number from 0 on")
        if self.top_k is not None and self.top_k < 1:
            raise UserError(f"--top-k: found {self.top_k}, expected a number from 1 on")
        if not 0 < self.top_p <= 1:
            raise UserError(f"--top-p: found {self.top_p}, expected a number above 0, at most 1")

    def choose(self, logits_V: torch.Tensor, random: torch.Generator) -> int:
        """Draws a token.

        Args:
            logits_V: of the next token.
            random: a generator on the CPU, which gives the same draws for every device.

        Raises:
            TrainingError: a logit is not finite.
        """
        logits_V = logits_V.double().cpu()
        if not logits_V.isfinite().all():
            raise TrainingError(
                "generate: the model gives logits that are not finite; its training diverged, "
                "`treering show RUN` lists loss spikes"
            )
        if self.temperature == 0:
            return int(logits_V.argmax())
        logits_V = logits_V / self.temperature
        if self.top_k is not None and self.top_k < len(logits_V):
            logits_V = logits_V.masked_fill(logits_V < logits_V.topk(self.top_k).values[-1], -math.inf)
        probabilities_V = logits_V.softmax(dim=0)
        if self.top_p < 1:
            ranked_V, order_V = probabilities_V.sort(descending=True, stable=True)
            before_V = ranked_V.cumsum(dim=0) - ranked_V  # of all that are more probable
            probabilities_V[order_V[before_V >= self.top_p]] = 0
        return int(probabilities_V.multinomial(1, generator=random))
