"""FLOPs of one iteration, TFLOP/s per device, utilisation: from the shape of the model and the time of a step.

Reads the resolved model and the step times of the rings; the trainer writes `tflops_per_device` with the formula's
name into each ring, and every reader may compute it again under the other formula. A number without its formula is
meaningless: one run reads 1.33 times higher under `ptdp-2021` with recompute than under `megatron-2023`.

Legend: B batch (samples), s sequence length, l layers, h hidden size, V padded vocabulary, n attention heads,
g query groups, c channels per head, f feed-forward width, k experts per token.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Self

from treering.config.model import ModelConfig
from treering.errors import UserError


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The sizes of a GPT-like decoder that its FLOPs depend on.

    Attributes:
        num_layers: l.
        hidden_size: h.
        num_heads: n.
        sequence_length: s, tokens.
        padded_vocab_size: V, after padding.
        ffn_hidden_size: f; 0 means 4·h.
        num_query_groups: g; 0 means n (no grouped queries).
        kv_channels: c; 0 means h / n.
        swiglu: gated feed-forward, which has three matrices where the plain one has two.
        experts_per_token: k; 1 for a dense model.
    """

    num_layers: int
    hidden_size: int
    num_heads: int
    sequence_length: int
    padded_vocab_size: int
    ffn_hidden_size: int = 0
    num_query_groups: int = 0
    kv_channels: int = 0
    swiglu: bool = False
    experts_per_token: int = 1

    @classmethod
    def of(cls, model: ModelConfig, sequence_length: int) -> Self:
        """Shape of a resolved model at the sequence length of its blend."""
        return cls(
            num_layers=model.num_layers,
            hidden_size=model.hidden_size,
            num_heads=model.num_attention_heads,
            sequence_length=sequence_length,
            padded_vocab_size=model.padded_vocab_size,
            ffn_hidden_size=model.ffn_width,
        )


def ptdp_2021(shape: ModelShape, batch_size: int, recompute: bool) -> float:
    """FLOPs of one iteration, forward and backward, as PTD-P counts them.

    With full activation recompute 96·B·s·l·h²·(1 + s/(6h) + V/(16·l·h)): hardware FLOPs, four passes over the layers
    and three over the logits, which are never recomputed. Without: 72·B·s·l·h²·(1 + s/(6h) + V/(12·l·h)).

    Source: arXiv 2104.04473, appendix (equation 3). Counts matrix multiplications only; assumes f = 4h, no grouped
    queries, no gating.
    """
    l, h, s, v = shape.num_layers, shape.hidden_size, shape.sequence_length, shape.padded_vocab_size  # noqa: E741
    passes, logits = (96, 16) if recompute else (72, 12)
    return passes * batch_size * s * l * h**2 * (1 + s / (6 * h) + v / (logits * l * h))


def megatron_2023(shape: ModelShape, batch_size: int, _recompute: bool) -> float:
    """Model FLOPs of one iteration as Megatron-LM has reported them since 2023; recompute is never counted.

    12·B·s·l·h²·[(1 + g/n + s/h)·(c·n/h) + (f/h)·k·(1.5 if gated) + V/(2·l·h)].

    Source: Megatron-LM, megatron/training/training.py, `num_floating_point_operations`. Counts full, not causal,
    attention.
    """
    l, h, s, v = shape.num_layers, shape.hidden_size, shape.sequence_length, shape.padded_vocab_size  # noqa: E741
    n = shape.num_heads
    g = shape.num_query_groups or n
    projection = shape.kv_channels * n / h if shape.kv_channels else 1.0
    feed_forward = (shape.ffn_hidden_size or 4 * h) / h * shape.experts_per_token * (1.5 if shape.swiglu else 1.0)
    return 12 * batch_size * s * l * h**2 * ((1 + g / n + s / h) * projection + feed_forward + v / (2 * l * h))


def hardware_flops(shape: ModelShape, batch_size: int, recompute: bool) -> float:
    """What the devices compute in an iteration: `megatron-2023`, and with full recompute the layers' forward again.

    Of the three passes over the layers (one forward, two backward) recompute adds a fourth; the logits, 6·B·s·h·V, are
    never recomputed. For the plain block it equals `ptdp-2021`.
    """
    model = megatron_2023(shape, batch_size, recompute)
    logits = 6.0 * batch_size * shape.sequence_length * shape.hidden_size * shape.padded_vocab_size
    return model + (model - logits) / 3 if recompute else model


FLOPS_FORMULAS: Final[MappingProxyType[str, Callable[[ModelShape, int, bool], float]]] = MappingProxyType(
    {"ptdp-2021": ptdp_2021, "megatron-2023": megatron_2023}
)


def tflops_per_device(
    formula: str,
    shape: ModelShape,
    *,
    batch_size: int,
    step_time_s: float,
    num_devices: int,
    recompute: bool = False,
) -> float:
    """Achieved TFLOP/s (10¹²) per device over one iteration.

    Args:
        formula: a key of `FLOPS_FORMULAS`.
        shape: sizes of the model.
        batch_size: samples of the iteration over all devices.
        step_time_s: wall-clock time of the whole iteration.
        num_devices: devices that worked on it.
        recompute: full activation recompute; only `ptdp-2021` counts it.

    Raises:
        UserError: an unknown formula, or a time or number of devices that is not positive.
    """
    if formula not in FLOPS_FORMULAS:
        raise UserError(f"unknown FLOPs formula: found {formula!r}, expected one of {', '.join(FLOPS_FORMULAS)}")
    if step_time_s <= 0 or num_devices < 1:
        raise UserError(
            f"throughput: found a step of {step_time_s} s on {num_devices} devices, "
            "expected a positive step time and at least one device"
        )
    return FLOPS_FORMULAS[formula](shape, batch_size, recompute) / step_time_s / num_devices / 1e12


@dataclass(frozen=True, slots=True)
class Peak:
    """What a device could do at best.

    Attributes:
        device: the product, as its vendor names it.
        tflops: dense bf16 tensor-core TFLOP/s, without sparsity.
        memory_bytes: the vendor's GB, taken as 10⁹ bytes; drivers report a little more.
        source: vendor page with both numbers (where it prints the sparse rate, half of it).
    """

    device: str
    tflops: float
    memory_bytes: int
    source: str


_A100_PAGE = "https://www.nvidia.com/en-us/data-center/a100/"
A100_40GB: Final = Peak("A100 40GB", 312.0, 40 * 10**9, _A100_PAGE)
A100_80GB: Final = Peak("A100 80GB", 312.0, 80 * 10**9, _A100_PAGE)
H100: Final = Peak("H100 80GB", 989.4, 80 * 10**9, "https://www.nvidia.com/en-us/data-center/h100/")
H200: Final = Peak("H200 141GB", 989.4, 141 * 10**9, "https://www.nvidia.com/en-us/data-center/h200/")

# Whole names as NVML reports them. A pattern that also took PCIe, NVL or MIG variants would overstate their peak.
_PEAKS: Final = (
    (re.compile(r"(NVIDIA )?A100-(SXM4|SXM|PCIE|PCIe)-40GB|NVIDIA A100 40GB PCIe"), A100_40GB),
    (re.compile(r"(NVIDIA )?A100-(SXM4|SXM|PCIE|PCIe)-80GB|NVIDIA A100 80GB PCIe"), A100_80GB),
    (re.compile(r"NVIDIA H100 80GB HBM3"), H100),
    (re.compile(r"NVIDIA H200"), H200),
)


def peak_of(device_name: str) -> Peak | None:
    """Peak of a device by the name that its driver reports; None for an unknown one, which then has no MFU."""
    return next((peak for pattern, peak in _PEAKS if pattern.fullmatch(device_name)), None)


def utilisation(tflops: float, device_name: str) -> float | None:
    """Fraction of the peak: MFU if `tflops` counts model FLOPs, HFU if it counts recompute too.

    Returns:
        None for a device whose peak is unknown: never a guess.
    """
    peak = peak_of(device_name)
    return tflops / peak.tflops if peak else None
