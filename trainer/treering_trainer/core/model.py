"""The GPT as a list of pipeline layers: megatron-core's tensor-parallel layers inside DeepSpeed's `PipelineModule`.

Each layer draws its weights in full from its own seed and then takes the part of its tensor rank, so every layout
starts from the same model. Evaluation builds the same layers in one process.

Shape suffixes: S sequence, B micro-batch, H hidden, V padded vocabulary of this tensor rank.

A key's bias differs between layouts without effect: its gradient is only rounding, which Adam turns into full steps.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import torch
from deepspeed.accelerator import get_accelerator
from deepspeed.pipe import LayerSpec, TiedLayerSpec
from megatron.core.fusions import fused_layer_norm
from megatron.core.fusions.fused_bias_dropout import get_bias_dropout_add
from megatron.core.tensor_parallel.cross_entropy import vocab_parallel_cross_entropy
from megatron.core.tensor_parallel.layers import (
    ColumnParallelLinear,
    RowParallelLinear,
    VocabParallelEmbedding,
    linear_with_grad_accumulation_and_async_allreduce,
)
from megatron.core.transformer.attention import SelfAttention, SelfAttentionSubmodules
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.mlp import MLP, MLPSubmodules
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.torch_norm import WrappedTorchNorm
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.transformer.transformer_layer import TransformerLayer, TransformerLayerSubmodules
from torch import nn

from treering.config.model import ModelConfig, Precision
from treering.config.operation import KernelConfig
from treering_trainer.core.attention import CausalAttention
from treering_trainer.core.cross_entropy import lean_cross_entropy

IGNORED_LABEL = -1
"""A label that adds nothing to the loss; it pads the last micro-batch of a validation."""

_SEED_STRIDE = 10_007


def transformer_config(
    model: ModelConfig, kernels: KernelConfig, precision: Precision, tensor_parallel: int
) -> TransformerConfig:
    """megatron-core's config of one layer; with one stage, since DeepSpeed does the pipeline parallelism."""
    compiled_gelu = kernels.bias_gelu == "compiled"
    return TransformerConfig(
        # Of an embedding's backward pass: F.embedding adds up with atomics on a GPU. On a processor it repeats, and the
        # other form differs from it in the last bit.
        deterministic_mode=torch.are_deterministic_algorithms_enabled() and get_accelerator().device_name() != "cpu",
        num_layers=model.num_layers,
        hidden_size=model.hidden_size,
        num_attention_heads=model.num_attention_heads,
        ffn_hidden_size=model.ffn_width,
        attention_dropout=model.dropout,
        hidden_dropout=model.dropout,
        # Both compute the tanh form, the only one of the fused kernel: a kernel must not change the model.
        activation_func=nn.functional.gelu if compiled_gelu else partial(nn.functional.gelu, approximate="tanh"),
        bias_activation_fusion=compiled_gelu,
        bias_dropout_fusion=kernels.bias_dropout_add == "compiled",
        init_method_std=model.weight_std,
        tensor_model_parallel_size=tensor_parallel,
        pipeline_model_parallel_size=1,
        use_cpu_initialization=True,
        # These need apex or CUDA extensions that are in no wheel.
        masked_softmax_fusion=False,
        persist_layer_norm=False,
        gradient_accumulation_fusion=False,
        params_dtype=torch.float32,
        bf16=precision == "bf16",
        fp16=precision == "fp16",
    )


NormClass = Callable[..., nn.Module]


def layer_norm_class(kernels: KernelConfig) -> NormClass:
    """The fused layer norm of apex if it is requested and can run, else torch's; their weights have equal names."""
    can_run = fused_layer_norm.HAVE_FUSED_LAYER_NORM and get_accelerator().device_name() == "cuda"
    return fused_layer_norm.FusedLayerNorm if kernels.layer_norm == "apex" and can_run else WrappedTorchNorm


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    state = torch.get_rng_state()
    torch.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(state)


class TokenEmbedding(nn.Module):
    """Token ids [B, S] to hidden states [S, B, H]; with tied embeddings also the output layer."""

    def __init__(self, config: TransformerConfig, vocabulary: int, seed: int) -> None:
        super().__init__()
        with _seeded(seed):
            self.word = VocabParallelEmbedding(
                vocabulary, config.hidden_size, init_method=config.init_method, config=config
            )

    def forward(self, tokens_BS: torch.Tensor) -> torch.Tensor:
        """Looks the tokens up."""
        return self.word(tokens_BS).transpose(0, 1).contiguous()


class PositionEmbedding(nn.Module):
    """Adds learned positions to hidden states [S, B, H]; a separate layer, since a tied embedding would copy it."""

    def __init__(self, config: TransformerConfig, sequence_length: int, seed: int) -> None:
        super().__init__()
        self.position = nn.Parameter(torch.empty(sequence_length, 1, config.hidden_size))
        self.dropout = nn.Dropout(config.hidden_dropout)
        with _seeded(seed), torch.no_grad():
            config.init_method(self.position)

    def forward(self, hidden_SBH: torch.Tensor) -> torch.Tensor:
        """Adds the position of each token."""
        return self.dropout(hidden_SBH + self.position[: hidden_SBH.shape[0]])


class TransformerBlock(nn.Module):
    """One pre-norm transformer layer, [S, B, H] to [S, B, H]."""

    def __init__(
        self, config: TransformerConfig, number: int, backend: str, seed: int, norm: NormClass = WrappedTorchNorm
    ) -> None:
        super().__init__()
        attention = SelfAttentionSubmodules(
            linear_qkv=ColumnParallelLinear,
            core_attention=ModuleSpec(module=CausalAttention, params={"backend": backend}),
            linear_proj=RowParallelLinear,
        )
        submodules = TransformerLayerSubmodules(
            input_layernorm=norm,
            self_attention=ModuleSpec(
                module=SelfAttention, params={"attn_mask_type": AttnMaskType.causal}, submodules=attention
            ),
            self_attn_bda=get_bias_dropout_add,
            pre_mlp_layernorm=norm,
            mlp=ModuleSpec(
                module=MLP, submodules=MLPSubmodules(linear_fc1=ColumnParallelLinear, linear_fc2=RowParallelLinear)
            ),
            mlp_bda=get_bias_dropout_add,
        )
        with _seeded(seed):
            self.layer = TransformerLayer(config, submodules, layer_number=number)

    def forward(self, hidden_SBH: torch.Tensor) -> torch.Tensor:
        """Attention and feed-forward, each with its residual."""
        hidden, _context = self.layer(hidden_SBH, attention_mask=None)
        return hidden


class FinalNorm(nn.Module):
    """The layer norm before the output layer."""

    def __init__(self, config: TransformerConfig, norm: NormClass = WrappedTorchNorm) -> None:
        super().__init__()
        self.norm: nn.Module = norm(config=config, hidden_size=config.hidden_size, eps=config.layernorm_epsilon)

    def forward(self, hidden_SBH: torch.Tensor) -> torch.Tensor:
        """Normalises each hidden state."""
        return self.norm(hidden_SBH)


class OutputLayer(nn.Module):
    """Hidden states [S, B, H] to logits [S, B, V], with weights that the embedding does not share."""

    def __init__(self, config: TransformerConfig, vocabulary: int, seed: int) -> None:
        super().__init__()
        with _seeded(seed):
            self.word = VocabParallelEmbedding(
                vocabulary, config.hidden_size, init_method=config.init_method, config=config
            )

    def forward(self, hidden_SBH: torch.Tensor) -> torch.Tensor:
        """Scores every token of the vocabulary."""
        return vocabulary_logits(self, hidden_SBH)


def vocabulary_logits(embedding: nn.Module, hidden_SBH: torch.Tensor) -> torch.Tensor:
    """Logits [S, B, V] of this tensor rank's part of the vocabulary; the backward pass sums over tensor ranks."""
    word: Any = embedding.word
    return linear_with_grad_accumulation_and_async_allreduce(
        input=hidden_SBH,
        weight=word.weight,
        bias=None,
        gradient_accumulation_fusion=False,
        allreduce_dgrad=word.tp_group.size() > 1,
        sequence_parallel=False,
    )


def build_layers(
    model: ModelConfig,
    sequence_length: int,
    seed: int,
    *,
    kernels: KernelConfig,
    precision: Precision = "fp32",
    tensor_parallel: int = 1,
) -> list[LayerSpec]:
    """The model's layers in order, each with its own seed: embedding, positions, blocks, norm, output."""
    config = transformer_config(model, kernels, precision, tensor_parallel)
    seeds = (seed * _SEED_STRIDE + index for index in range(model.num_layers + 3))
    vocabulary, norm = model.padded_vocab_size, layer_norm_class(kernels)
    embed: Callable[..., LayerSpec] = LayerSpec
    if model.tied_embeddings:
        embed = partial(TiedLayerSpec, "embed", tied_weight_attr="word.weight")
    layers = [
        embed(TokenEmbedding, config, vocabulary, embedding_seed := next(seeds)),
        LayerSpec(PositionEmbedding, config, sequence_length, next(seeds)),
    ]
    layers += [
        LayerSpec(TransformerBlock, config, number, kernels.attention, next(seeds), norm)
        for number in range(1, model.num_layers + 1)
    ]
    layers.append(LayerSpec(FinalNorm, config, norm))
    if model.tied_embeddings:
        layers.append(embed(TokenEmbedding, config, vocabulary, embedding_seed, forward_fn=vocabulary_logits))
    else:
        layers.append(LayerSpec(OutputLayer, config, vocabulary, next(seeds)))
    return layers


def universal_checkpoint_info(model: ModelConfig) -> dict[str, Any]:
    """How each parameter is cut, for DeepSpeed's converter, which joins the parts for another layout.

    Patterns match the names that `PipelineModule` gives; a parameter that no pattern matches is cut by rows. The padded
    vocabulary is the same in every layout, so the padding stays. Source: DeepSpeed 0.19.8,
    `deepspeed/checkpoint/constants.py`.
    """
    block = r"\d+\.layer\."
    tied = [r"tied_modules\.embed\.word\.weight$"] if model.tied_embeddings else []
    return {
        "universal_checkpoint_version": 0.3,
        "pipeline_replicated_parameter_patterns": tied,
        "tp_replicated_parameter_patterns": [
            r"\d+\.position$",
            rf"{block}(input|pre_mlp)_layernorm\.(weight|bias)$",
            rf"{block}self_attention\.linear_proj\.bias$",
            rf"{block}mlp\.linear_fc2\.bias$",
            r"\d+\.norm\.(weight|bias)$",
        ],
        "parameter_with_row_parallelism_patterns": [
            rf"{block}self_attention\.linear_proj\.weight$",
            rf"{block}mlp\.linear_fc2\.weight$",
        ],
    }


def token_loss(
    logits_SBV: torch.Tensor, labels_BS: torch.Tensor, kernel: Literal["eager", "compiled"] = "eager"
) -> torch.Tensor:
    """Mean cross-entropy in nats over a micro-batch; ignored labels count in the divisor and add nothing."""
    labels_SB = labels_BS.transpose(0, 1).contiguous()
    if kernel == "compiled":
        losses_SB = lean_cross_entropy(logits_SBV, labels_SB)
    else:
        losses_SB = vocab_parallel_cross_entropy(logits_SBV.float(), labels_SB)
    return losses_SB.masked_fill(labels_SB < 0, 0.0).sum() / labels_SB.numel()
