"""The peer of the trainer's benchmarks: the same model as a plain PyTorch loop, written in the simplest way.

No DeepSpeed, no megatron-core, no record. It runs beside the trainer's engine, in the same process.
"""

import os
import socket
from functools import cache

import torch
from torch import nn

from treering.config.layout import Layout, RankCoordinates
from treering.config.model import ModelConfig
from treering_trainer.core.topology import join
from treering_trainer.launch.worker import quieten


class Block(nn.Module):
    """A transformer block, layer norm first."""

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        width = model.hidden_size
        self.heads = model.num_attention_heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, model.ffn_width), nn.GELU(approximate="tanh"), nn.Linear(model.ffn_width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Hidden states [B, S, H] to the same."""
        batch, tokens, width = x.shape
        heads = (batch, tokens, self.heads, width // self.heads)
        q, k, v = (part.view(heads).transpose(1, 2) for part in self.qkv(self.norm_1(x)).chunk(3, dim=-1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.mlp(self.norm_2(x))


class Gpt(nn.Module):
    """A GPT with learned positions and tied embeddings."""

    def __init__(self, model: ModelConfig, sequence_length: int) -> None:
        super().__init__()
        self.word = nn.Embedding(model.padded_vocab_size, model.hidden_size)
        self.position = nn.Embedding(sequence_length, model.hidden_size)
        self.blocks = nn.Sequential(*(Block(model) for _ in range(model.num_layers)))
        self.norm = nn.LayerNorm(model.hidden_size)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Token ids [B, S] to logits [B, S, V]."""
        x = self.word(tokens) + self.position.weight
        return self.norm(self.blocks(x)) @ self.word.weight.T


class PlainLoop:
    """Trains a model, a step at a time.

    Args:
        model: its sizes.
        sequence_length: tokens that a sample predicts.
        precision: bf16 runs under autocast.
        device: where it computes.
    """

    def __init__(self, model: ModelConfig, sequence_length: int, *, precision: str, device: str) -> None:
        torch.manual_seed(0)
        self._model = Gpt(model, sequence_length).to(device)
        self._optimizer = torch.optim.AdamW(
            self._model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True
        )
        self._autocast = torch.autocast(torch.device(device).type, torch.bfloat16, enabled=precision == "bf16")

    def step(self, micro_batches: torch.Tensor) -> float:
        """One optimizer step over tokens [M, B, S + 1]; the last micro-batch's loss, in nats a token."""
        for part in micro_batches:
            with self._autocast:
                logits = self._model(part[:, :-1])
            loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), part[:, 1:].flatten())
            (loss / len(micro_batches)).backward()
        nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return loss.item()


def place_alone(micro_batch_size: int) -> RankCoordinates:
    """The one rank of layout 1x1x1, as a launcher would start it: what the trainer's own engine needs."""
    layout = Layout(tensor=1, pipeline=1, data=1, micro_batch_size=micro_batch_size)
    _join_once()
    return layout.coordinates(0)


@cache
def _join_once() -> None:
    quieten()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    os.environ |= {
        "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
    }  # fmt: skip
    join(Layout(tensor=1, pipeline=1, data=1, micro_batch_size=1))
