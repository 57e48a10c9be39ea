"""The model one token at a time: what a sequence has in common with the sequence before is not computed again.

Shape suffixes: S sequence, B batch, N heads, D size of a head, V padded vocabulary.
"""

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import nn

from treering_trainer.checkpointing.inference import LanguageModel
from treering_trainer.core.model import vocabulary_logits


class CachedAttention(nn.Module):
    """Causal attention of one block with a cache of keys and values.

    A call takes either whole sequences, if the cache is empty, or one more token of each.
    """

    def __init__(self) -> None:
        super().__init__()
        self.keys_SBND: torch.Tensor | None = None
        self.values_SBND: torch.Tensor | None = None

    def forward(
        self, query_SBND: torch.Tensor, key_SBND: torch.Tensor, value_SBND: torch.Tensor, *_: Any, **__: Any
    ) -> torch.Tensor:
        """Mixes values by causal attention; returns [S, B, N D]. Further arguments are megatron-core's masks."""
        first = self.keys_SBND is None or self.values_SBND is None
        if self.keys_SBND is not None and self.values_SBND is not None:
            key_SBND = torch.cat([self.keys_SBND, key_SBND])
            value_SBND = torch.cat([self.values_SBND, value_SBND])
        self.keys_SBND, self.values_SBND = key_SBND, value_SBND
        query, key, value = (part.permute(1, 2, 0, 3) for part in (query_SBND, key_SBND, value_SBND))
        mixed_BNSD = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=first)
        return mixed_BNSD.permute(2, 0, 1, 3).flatten(2)

    def forget(self) -> None:
        """Empties the cache."""
        self.keys_SBND = self.values_SBND = None


class Decoder:
    """Computes the logits after a sequence.

    As a context manager it gives the model its own attention back.

    Args:
        model: in evaluation mode; its attention is replaced by `CachedAttention`.
    """

    def __init__(self, model: LanguageModel) -> None:
        self.sequence_length = model.sequence_length
        layers: list[Any] = list(model.layers if model.tied else model.layers[:-1])  # mypy takes a part for a tensor
        self._embedding, self._position, *self._blocks, self._norm = layers
        self._output = model.layers[0 if model.tied else -1]
        self._caches = [CachedAttention() for _ in self._blocks]
        self._own = [block.layer.self_attention.core_attention for block in self._blocks]
        self._attend(self._caches)
        self._device = next(model.parameters()).device
        self._seen: list[list[int]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._attend(self._own)

    def _attend(self, parts: Sequence[nn.Module]) -> None:
        for block, part in zip(self._blocks, parts, strict=True):
            block.layer.self_attention.core_attention = part

    def logits(self, tokens: Sequence[int]) -> torch.Tensor:
        """Logits [V] of the token after `tokens`, of which the model reads the last `sequence_length`.

        If they are the tokens of the last call and one more, only the new token is computed. Once tokens are left out
        on the left, all others move to other positions with other embeddings: everything is computed again.
        """
        return self.logits_of_each([tokens])[0]

    @torch.inference_mode()
    def logits_of_each(self, sequences: Sequence[Sequence[int]]) -> torch.Tensor:
        """The same of several sequences of one length; returns [B, V]."""
        windows = [list(tokens[-self.sequence_length :]) for tokens in sequences]
        if not self._seen or [window[:-1] for window in windows] != self._seen:
            for cache in self._caches:
                cache.forget()
            self._seen = []
        start = len(self._seen[0]) if self._seen else 0
        end = len(windows[0])
        hidden = self._embedding(torch.tensor([window[start:] for window in windows], device=self._device))
        hidden = hidden + self._position.position[start:end]
        for block in self._blocks:
            hidden = block(hidden)
        self._seen = windows
        return vocabulary_logits(self._output, self._norm(hidden[-1:]))[0]
