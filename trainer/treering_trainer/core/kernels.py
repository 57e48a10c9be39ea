"""Finds out which implementation of each operation runs, from a profile and not from the config.

Torch's profiler records a layer of the model's shape with its dropout, the layer's feed-forward part and residual
addition alone, the loss, and one optimizer update. The names of the recorded operators decide. Nothing of it is kept.

Reasons for another kernel than the requested one: torch has no flash kernel for dropout on a processor, so math runs
and `sdpa_flash` is refused there; without apex or a GPU torch's layer norm runs, which is one fused kernel as well; the
softmax is within attention, and math attention computes it by itself.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from deepspeed import checkpointing
from deepspeed.accelerator import get_accelerator
from megatron.core.fusions.fused_layer_norm import HAVE_FUSED_LAYER_NORM
from torch import nn
from torch.profiler import ProfilerActivity, profile

from treering.config.model import ModelConfig, OptimizerConfig, Precision
from treering.config.operation import KernelConfig
from treering.errors import UserError
from treering.runlog.records import Kernel
from treering_trainer.core.model import TransformerBlock, layer_norm_class, token_loss, transformer_config
from treering_trainer.core.optim import build_optimizer

Names = tuple[tuple[str, str], ...]

# A part of an operator's name -> the name on record. The first match wins: an eager operator beside a compiled operator
# means that the operation was not compiled.
_COMPILED: Names = tuple((part, "compiled") for part in ("Torch-Compiled Region", "CompiledFxGraph", "triton_"))
_ATTENTION: Names = (
    ("_scaled_dot_product_flash_attention", "sdpa_flash"),
    ("_scaled_dot_product_cudnn_attention", "sdpa_cudnn"),
    ("_scaled_dot_product_efficient_attention", "sdpa_efficient"),
    ("_scaled_dot_product_attention_math", "sdpa_math"),
)
_NAMES: dict[str, Names] = {
    "optimizer": (("_fused_adamw", "torch_fused"), ("_foreach_", "torch_foreach"), ("aten::addcdiv_", "torch")),
    "attention": _ATTENTION,
    "bias_gelu": (("aten::gelu", "eager"), ("aten::tanh", "eager"), *_COMPILED),
    "bias_dropout_add": (("aten::add", "eager"), *_COMPILED),
    "layer_norm": (("FusedLayerNorm", "apex"), ("native_layer_norm", "torch")),
    "softmax": (*((part, "within attention") for part, _ in _ATTENTION[:3]), ("_softmax", "torch")),
    "cross_entropy": (("LeanCrossEntropy", "compiled"), ("VocabParallelCrossEntropy", "eager")),
}
_SEEN_IN = {"layer_norm": "attention", "softmax": "attention"}  # the profile of a whole layer has them too
_UNFUSED = {
    ("optimizer", "torch"): "torch_fused was not asked for",
    ("optimizer", "torch_foreach"): "torch's default on this device; torch_fused was not asked for",
    ("attention", "sdpa_math"): "sdpa_flash was not asked for",
    ("bias_gelu", "eager"): "compiled was not asked for",
    ("bias_dropout_add", "eager"): "compiled was not asked for",
    ("layer_norm", "torch"): "one kernel of torch; apex was not asked for",
    ("softmax", "torch"): "the attention that ran computes it by itself",
    ("cross_entropy", "eager"): "compiled was not asked for",
}
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
    """Profiles one layer, loss and update; collective over the tensor-parallel group.

    Random streams are restored afterwards.

    Returns:
        For each operation the requested and the used implementation, and why they differ.

    Raises:
        UserError: a requested implementation does not run on this device.
    """
    requested = {name: getattr(kernels, name) for name in KernelConfig.model_fields} | {"softmax": "within attention"}
    with _own_random_streams():
        shape = (sequence_length, micro_batch_size)
        probes = _probes(model, optimizer, kernels, precision, shape=shape, tensor_parallel=tensor_parallel)
        seen = {operation: _operators(operation, requested[operation], run) for operation, run in probes.items()}
    del probes
    get_accelerator().empty_cache()
    found = []
    for operation, names in _NAMES.items():
        operators = seen[_SEEN_IN.get(operation, operation)]
        used = next((name for part, name in names if any(part in each for each in operators)), _NOT_SEEN)
        reason = _why(operation, requested[operation], used, dropout=model.dropout > 0)
        found.append(Kernel(operation=operation, requested=requested[operation], used=used, reason=reason))
    return tuple(found)


def _probes(
    model: ModelConfig,
    optimizer: OptimizerConfig,
    kernels: KernelConfig,
    precision: Precision,
    *,
    shape: tuple[int, int],
    tensor_parallel: int,
) -> dict[str, Callable[[], Any]]:
    """What to run for each operation, parts of a layer before the whole layer, so that an error names the right part.

    The shapes are those of the training, so what is compiled here is used there.
    """
    device, dtype = torch.device(get_accelerator().current_device_name()), _TYPES[precision]
    config = transformer_config(model, kernels, precision, tensor_parallel)
    norm = layer_norm_class(kernels)
    block = TransformerBlock(config, 1, kernels.attention, seed=0, norm=norm).to(device, dtype)
    hidden = torch.randn(*shape, model.hidden_size, device=device, dtype=dtype, requires_grad=True)
    bias = torch.zeros(model.hidden_size, device=device, dtype=dtype, requires_grad=True)
    add: Any = block.layer.mlp_bda
    vocabulary = model.padded_vocab_size // tensor_parallel
    logits = torch.randn(*shape, vocabulary, device=device, dtype=dtype, requires_grad=True)
    labels = torch.zeros(*reversed(shape), dtype=torch.int64, device=device)
    # The engine's optimizer updates flat fp32 partitions, whatever the precision.
    small = nn.Linear(8, 8, device=device)
    small(torch.ones(1, 8, device=device)).sum().backward()
    update = build_optimizer(small, optimizer, kernels)
    return {
        "optimizer": update.step,
        "bias_gelu": lambda: block.layer.mlp(hidden),
        "bias_dropout_add": lambda: add(True, config.bias_dropout_fusion)((hidden, bias), hidden, model.dropout),
        "attention": lambda: block(hidden).float().pow(2).mean().backward(),
        "cross_entropy": lambda: token_loss(logits * 1.0, labels, kernels.cross_entropy).backward(),
    }


def _operators(operation: str, requested: str, run: Callable[[], Any]) -> set[str]:
    """Names of the operators in a second run; in the first run torch may compile.

    Raises:
        UserError: the operation does not run on this device.
    """
    try:
        run()
        on_cuda = get_accelerator().device_name() == "cuda"
        activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA] if on_cuda else [ProfilerActivity.CPU]
        with profile(activities=activities, acc_events=True) as seen:
            run()
    except RuntimeError as error:  # torch and its compiler raise this
        reason = str(error).strip().partition("\n")[0]
        raise UserError(
            f"kernels.{operation}: {requested} does not run on this device with this precision and dropout ({reason}); "
            "set another kernel in the config's kernels section"
        ) from error
    return {event.key for event in seen.key_averages()}


@contextmanager
def _own_random_streams() -> Iterator[None]:
    """Makes random streams for dropout, which no step has seeded yet, and restores the streams afterwards."""
    tracker = checkpointing.get_cuda_rng_tracker()
    states, on_host, on_device = tracker.get_states(), torch.get_rng_state(), get_accelerator().get_rng_state()
    tracker.reset()
    tracker.add("model-parallel-rng", 0)
    try:
        yield
    finally:
        tracker.reset()
        tracker.set_states(states)
        torch.set_rng_state(on_host)
        get_accelerator().set_rng_state(on_device)


def _why(operation: str, requested: str, used: str, *, dropout: bool) -> str:
    """Why the operation is not fused; empty where the fused implementation was requested and ran."""
    if requested == "sdpa_auto":
        return f"torch's choice for this device, type and shape{' with dropout' if dropout else ''}"
    if requested == "apex" and used != "apex":
        return "apex runs on GPUs only" if HAVE_FUSED_LAYER_NORM else "apex is not installed"
    if used == requested or (operation, requested) in {("optimizer", "torch"), ("softmax", "within attention")}:
        return _UNFUSED.get((operation, used), "")
    return f"a profile of one step shows no {requested}"
