"""Chooses the next token.

Shape suffixes: B batch, V the tokenizer's vocabulary.
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
        return int(self.choose_each(logits_V[None], random)[0])

    def choose_each(self, logits_BV: torch.Tensor, random: torch.Generator) -> torch.Tensor:
        """Draws a token of each sequence; returns [B].

        Args:
            logits_BV: of the next tokens.
            random: a generator on the CPU, which gives the same draws for every device.

        Raises:
            TrainingError: a logit is not finite.
        """
        logits_BV = logits_BV.double().cpu()
        if not logits_BV.isfinite().all():
            raise TrainingError(
                "generate: the model gives logits that are not finite; its training diverged, "
                "`treering show RUN` lists loss spikes"
            )
        if self.temperature == 0:
            return logits_BV.argmax(dim=-1)
        logits_BV = logits_BV / self.temperature
        if self.top_k is not None and self.top_k < logits_BV.shape[-1]:
            logits_BV = logits_BV.masked_fill(logits_BV < logits_BV.topk(self.top_k).values[:, -1:], -math.inf)
        probabilities_BV = logits_BV.softmax(dim=-1)
        if self.top_p < 1:
            ranked_BV, order_BV = probabilities_BV.sort(dim=-1, descending=True, stable=True)
            before_BV = ranked_BV.cumsum(dim=-1) - ranked_BV  # of all that are more probable
            ranked_BV[before_BV >= self.top_p] = 0
            probabilities_BV = torch.zeros_like(probabilities_BV).scatter_(-1, order_BV, ranked_BV)
        return probabilities_BV.multinomial(1, generator=random)[:, 0]
