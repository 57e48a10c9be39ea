"""Which implementation of each operation really runs: read off a profile of one throwaway step, not off the config.

A layer of the model's own shape, the loss and one optimizer update run once under torch's profiler; the names of the
operators that it saw decide.
"""

import torch
from deepspeed.accelerator import get_accelerator
from torch import nn
from torch.profiler import ProfilerActivity, profile

from treering.config.model import ModelConfig, OptimizerConfig, Precision
from treering.config.operation import KernelConfig
from treering.runlog.records import Kernel
from treering_trainer.model import TransformerBlock, token_loss, transformer_config
from treering_trainer.optim import build_optimizer

# Operator name (a part of it) -> what it is called on record, first match wins.
_ATTENTION = (
    ("_scaled_dot_product_flash_attention", "sdpa_flash"),
    ("_scaled_dot_product_cudnn_attention", "sdpa_cudnn"),
    ("_scaled_dot_product_efficient_attention", "sdpa_efficient"),
    ("_scaled_dot_product_attention_math", "sdpa_math"),
)
_OPTIMIZER = (("_fused_adamw", "torch_fused"), ("_foreach_", "torch_foreach"), ("aten::addcdiv_", "torch"))
_COMPILED = ("CompiledFunction", "Torch-Compiled Region", "CompiledFxGraph", "triton_")
_NOT_SEEN = "not seen"
_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def kernels_on_record(
    model: ModelConfig,
    optimizer: OptimizerConfig,
    kernels: KernelConfig,
    precision: Precision,
    *,
    sequence_length: int,
    micro_batch_size: int,
    tensor_parallel: int,
) -> tuple[Kernel, ...]:
    """Profiles one throwaway layer, loss and update; collective over the tensor-parallel group.

    Random streams are left as they were.
    """
    state = torch.get_rng_state()
    shape = (sequence_length, micro_batch_size)
    layer_ops = _layer_ops(model, kernels, precision, shape=shape, tensor_parallel=tensor_parallel)
    loss_ops = _loss_ops(model.padded_vocab_size // tensor_parallel, *shape)
    update_ops = _update_ops(optimizer, kernels)
    torch.set_rng_state(state)
    attention = _first(layer_ops, _ATTENTION)
    update = _first(update_ops, _OPTIMIZER)
    compiled = any(part in op for op in layer_ops for part in _COMPILED)
    inside = attention in ("sdpa_flash", "sdpa_cudnn", "sdpa_efficient")
    gelu = "compiled" if kernels.bias_gelu == "compiled" and compiled else _seen(layer_ops, "aten::gelu", "eager")
    addition = (
        "compiled" if kernels.bias_dropout_add == "compiled" and compiled else _seen(layer_ops, "aten::add", "eager")
    )
    return (
        Kernel(operation="optimizer", requested=kernels.optimizer, used=update, reason=_why(kernels.optimizer, update)),
        Kernel(
            operation="attention",
            requested=kernels.attention,
            used=attention,
            reason=_why(kernels.attention, attention),
        ),
        Kernel(operation="bias_gelu", requested=kernels.bias_gelu, used=gelu, reason=_why(kernels.bias_gelu, gelu)),
        Kernel(
            operation="bias_dropout_add",
            requested=kernels.bias_dropout_add,
            used=addition,
            reason=_why(kernels.bias_dropout_add, addition),
        ),
        Kernel(
            operation="layer_norm",
            requested="torch",
            used=_seen(layer_ops, "native_layer_norm", "torch"),
            reason="one fused kernel of torch; apex's needs an extension that no wheel holds",
        ),
        Kernel(
            operation="softmax",
            requested="within attention",
            used="within attention" if inside else _seen(layer_ops, "_softmax", "torch"),
            reason="" if inside else "the math path computes it by itself",
        ),
        Kernel(
            operation="cross_entropy",
            requested="megatron vocabulary-parallel",
            used=_seen(loss_ops, "VocabParallelCrossEntropy", "megatron vocabulary-parallel"),
        ),
    )


def _layer_ops(
    model: ModelConfig, kernels: KernelConfig, precision: Precision, *, shape: tuple[int, int], tensor_parallel: int
) -> set[str]:
    device = _device()
    dtype = _TYPES[precision]
    config = transformer_config(model, kernels, precision, tensor_parallel)
    layer: nn.Module = TransformerBlock(config, 1, kernels.attention, seed=0).to(device, dtype)
    # Dropout needs random streams that only a running step seeds; without it the same shapes choose the kernel.
    layer.train(model.dropout == 0)
    hidden = torch.randn(*shape, model.hidden_size, device=device, dtype=dtype)
    hidden.requires_grad_(True)
    with _profiler() as seen:
        layer(hidden).float().pow(2).mean().backward()
    return _ops(seen)


def _loss_ops(vocabulary: int, sequence_length: int, micro_batch_size: int) -> set[str]:
    logits = torch.randn(sequence_length, micro_batch_size, vocabulary, device=_device(), requires_grad=True)
    labels = torch.zeros(micro_batch_size, sequence_length, dtype=torch.int64, device=_device())
    with _profiler() as seen:
        token_loss(logits * 1.0, labels).backward()
    return _ops(seen)


def _update_ops(optimizer: OptimizerConfig, kernels: KernelConfig) -> set[str]:
    # The engine's optimizer updates flat fp32 partitions, whatever the precision.
    small = nn.Linear(8, 8, device=_device())
    update = build_optimizer(small, optimizer, kernels)
    small(torch.ones(1, 8, device=_device())).sum().backward()
    with _profiler() as seen:
        update.step()
    return _ops(seen)


def _device() -> torch.device:
    return torch.device(get_accelerator().current_device_name())


def _profiler() -> profile:
    on_cuda = _device().type == "cuda"
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA] if on_cuda else [ProfilerActivity.CPU]
    return profile(activities=activities, acc_events=True)


def _ops(seen: profile) -> set[str]:
    return {event.key for event in seen.key_averages()}


def _first(ops: set[str], names: tuple[tuple[str, str], ...]) -> str:
    return next((name for part, name in names if any(part in op for op in ops)), _NOT_SEEN)


def _seen(ops: set[str], part: str, name: str) -> str:
    return name if any(part in op for op in ops) else _NOT_SEEN


def _why(requested: str, used: str) -> str:
    """The reason where what ran is not what was asked for."""
    if requested == used:
        return ""
    if requested == "sdpa_auto":
        return "torch's choice for this device, type and shape"
    if requested == "torch" and used == "torch_foreach":
        return "torch's default on this device"
    return f"the profile of one step shows no {requested}"
