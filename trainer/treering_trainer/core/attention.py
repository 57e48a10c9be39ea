"""Attention by torch's scaled dot product, in place of megatron-core's core attention, which needs CUDA.

Shape suffixes: S sequence, B micro-batch, N heads of this tensor rank, D size of a head, H = N x D.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch
from deepspeed import checkpointing
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

Backend = Literal["sdpa_flash", "sdpa_math", "sdpa_auto"]

_BACKENDS = {"sdpa_flash": SDPBackend.FLASH_ATTENTION, "sdpa_math": SDPBackend.MATH}


class CausalAttention(nn.Module):
    """Causal softmax attention with the kernel that the config asks for, or torch's choice.

    `sdpa_flash` fails if torch has no flash kernel for device, dtype and dropout: a slower kernel never replaces it
    silently.
    """

    def __init__(
        self,
        config: TransformerConfig,
        layer_number: int,  # noqa: ARG002 - megatron-core's signature of a core attention, here and below
        attn_mask_type: Any,  # noqa: ARG002
        attention_type: str,  # noqa: ARG002
        backend: Backend = "sdpa_auto",
        **_: Any,
    ) -> None:
        super().__init__()
        self.dropout = config.attention_dropout
        self.backend = _BACKENDS.get(backend)

    def forward(
        self,
        query_SBND: torch.Tensor,
        key_SBND: torch.Tensor,
        value_SBND: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        *_: Any,
        **__: Any,
    ) -> torch.Tensor:
        """Mixes values by causal attention; returns [S, B, H].

        A mask [B, 1, S, S] (True: may attend) replaces the causal mask: evaluation packs several continuations of one
        context into a sequence.
        """
        length, batch = query_SBND.shape[:2]
        query, key, value = (part.permute(1, 2, 0, 3) for part in (query_SBND, key_SBND, value_SBND))
        dropout = self.dropout if self.training else 0.0
        # Tensor ranks hold different heads, so their masks must differ: the tracker's stream is seeded by tensor rank.
        random: AbstractContextManager[Any] = (
            checkpointing.get_cuda_rng_tracker().fork() if dropout > 0 else nullcontext()
        )
        kernel: AbstractContextManager[Any] = sdpa_kernel(self.backend) if self.backend else nullcontext()
        with random, kernel:
            mixed_BNSD = nn.functional.scaled_dot_product_attention(
                query, key, value, attn_mask=attention_mask, is_causal=attention_mask is None, dropout_p=dropout
            )
        return mixed_BNSD.permute(2, 0, 1, 3).reshape(length, batch, -1)
