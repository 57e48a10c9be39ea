"""What one device must hold while it trains: weights, gradients, optimizer state, activations; a model, no measurement.

Counts tensors of the trainer's own pieces: megatron-core layers with tensor parallelism (no sequence parallelism),
DeepSpeed's 1F1B pipeline, ZeRO stage 1. A parameter takes 2 bytes of weights in half precision, 2 + 4 of gradients in
bf16 (DeepSpeed's `BF16_Optimizer` sums them in fp32 and keeps the computed ones beside), and 12/d of optimizer state.
The first stage of 1F1B holds min(p, m) micro-batches in flight (arXiv 2104.04473, section 2.2.1). With full recompute
each keeps esbh a layer, or a group of layers, and one layer or group is whole in memory (arXiv 2205.05198, table 2).
The logits take 4sbV/t in fp32, in half precision with their gradient 2esbV/t more; `kernels.cross_entropy: compiled`
keeps no fp32 copy, 2esbV/t together (arXiv 2205.05198, section 4.3).

Leaves out what only a device can say: CUDA context, NCCL's buffers, workspaces, fragmentation; `USABLE_SHARE` keeps
room for them.

Legend: s sequence length, b micro-batch, h hidden size, f feed-forward width, a attention heads, V padded vocabulary,
L layers, t/p/d tensor, pipeline, data parallel size, m micro-batches of a step, e bytes of an activation (2 in bf16).
"""

from dataclasses import dataclass
from typing import Final, Literal

from treering.metrics.parameters import Parameters
from treering.plan.layout import Attention, PlannedLayout, Workload

USABLE_SHARE: Final = 0.9
"""Of a device's memory, what a plan may fill: our choice, not a published number."""

_ZERO = "ZeRO stage 1 with Adam, arXiv 1910.02054, sections 3.1 and 5.1"
_WEIGHTS = {"fp32": 4}  # bytes of one; 2 in every other precision
_GRADIENTS = {
    "fp32": (4, "4 bytes a parameter", _ZERO),
    "bf16": (
        6,
        "2 + 4 bytes a parameter: as computed, and summed in fp32",
        f"DeepSpeed's BF16_Optimizer with fp32 accumulation; {_ZERO}",
    ),
    "fp16": (2, "2 bytes a parameter", _ZERO),
}
_OPTIMIZER = "12/d bytes a parameter: fp32 weights and two moments, shared by the replicas"
_LAYER = "sbh(4e + (4 + 2f/h)e/t)"
_SCORES: Final[dict[Attention, str]] = {
    "fused": "4abs/t",
    "unfused": "eabs²/t",
    "unfused_fp32": "(4abs² + 3(4 - e)sbh)/t",
}
_DROPPED: Final[dict[Attention, str]] = {
    "fused": " + 2sbh",
    "unfused": " + 2sbh + (e + 1)abs²/t",
    "unfused_fp32": " + 2sbh + 5abs²/t",
}
_ACTIVATION_SOURCE = "arXiv 2205.05198, equation 2, section 4.3 and table 2; fused attention arXiv 2205.14135"


Stage = Literal["first", "middle", "last"]
"""Stages of a pipeline by what they hold beside layers: embeddings, nothing, or final norm and logits. The only stage
of a model without pipeline holds everything and counts as first."""


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """One kind of content of a device's memory.

    Attributes:
        name: `weights`, `gradients`, `optimizer` or `activations`.
        num_bytes: bytes of it.
        formula: how they were counted, in the letters of the legend.
        source: public source of the formula.
    """

    name: str
    num_bytes: float
    formula: str
    source: str


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Memory of one device of one pipeline stage.

    Attributes:
        stage: which one.
        parameters: parameters that one of its devices holds.
        in_flight: micro-batches whose activations it holds at once.
        parts: what it holds.
    """

    stage: Stage
    parameters: int
    in_flight: int
    parts: tuple[MemoryPart, ...]

    @property
    def num_bytes(self) -> float:
        """All parts together."""
        return sum(part.num_bytes for part in self.parts)


def device_memory(workload: Workload, layout: PlannedLayout, batch_size: int) -> DeviceMemory:
    """Memory of a device in the stage that needs most: the first (most micro-batches in flight) or the last (logits).

    Args:
        workload: what is trained.
        layout: how it is cut.
        batch_size: global batch, samples: with fewer micro-batches than stages fewer are in flight.
    """
    return max(stage_memories(workload, layout, batch_size), key=lambda memory: memory.num_bytes)


def stage_memories(workload: Workload, layout: PlannedLayout, batch_size: int) -> list[DeviceMemory]:
    """Memory of a device of each pipeline stage; middle stages are counted with one micro-batch in flight, at least.

    Args:
        workload: what is trained.
        layout: how it is cut.
        batch_size: global batch, samples.
    """
    stages: list[Stage] = ["first"]
    if layout.pipeline > 1:
        middle: list[Stage] = ["middle"]
        stages += [*middle * (layout.pipeline - 2), "last"]
    return [_stage_memory(workload, layout, batch_size, stage) for stage in stages]


def stage_parameters(workload: Workload, layout: PlannedLayout, stage: Stage) -> int:
    """Parameters on one device of a stage, biases and norms included.

    With tied embeddings and more than one stage, the last one holds a copy of the token embedding.
    """
    parameters = Parameters.of(workload.model, workload.sequence_length, layout.tensor)
    if layout.pipeline == 1:
        return parameters.total
    count = parameters.layer * parameters.num_layers // layout.pipeline
    if stage == "first":
        count += parameters.embedding + parameters.positions
    if stage == "last":
        count += parameters.final_norm + parameters.embedding
    return count


def layer_activation_bytes(workload: Workload, layout: PlannedLayout) -> float:
    """Activations that one layer keeps of one micro-batch for its backward pass, without recompute.

    sbh(10 + 24/t + 5as/(ht)) in bf16 with dropout and unfused attention; without dropout no masks and no dropped
    scores; a fused kernel keeps one fp32 number a row of the scores instead. Masks count one byte, as on a GPU.

    Source: arXiv 2205.05198, equation 2; arXiv 2205.14135, section 3.1. `experiments/benchmarks/plan_accuracy.py`
    counts what autograd keeps of the trainer's own layer.
    """
    model, t = workload.model, layout.tensor
    s, b, h, a = workload.sequence_length, layout.micro_batch_size, model.hidden_size, model.num_attention_heads
    e, dropout = element_bytes(workload), model.dropout > 0
    whole = 4 * e + 2 * dropout
    shared = (4 + 2 * model.ffn_width / h) * e
    if workload.attention == "fused":
        scores = 4 * a * b * s
    elif workload.attention == "unfused":
        scores = a * b * s * s * (e + dropout * (e + 1))
    else:
        scores = a * b * s * s * (4 + dropout * 5) + 3 * (4 - e) * s * b * h
    return s * b * h * (whole + shared / t) + scores / t


def head_activation_bytes(workload: Workload, layout: PlannedLayout) -> float:
    """What final norm, output layer and loss keep of one micro-batch: sb(2eh + 4V/t), the logits in fp32.

    With a loss that keeps the logits as they are, sb(2eh + eV/t).

    Source: arXiv 2205.05198, section 4.3 (there with sequence parallelism, which divides the norm's part as well).
    """
    model = workload.model
    logit = 4 if workload.logits_copied else element_bytes(workload)
    elements = 2 * element_bytes(workload) * model.hidden_size + logit * model.padded_vocab_size / layout.tensor
    return workload.sequence_length * layout.micro_batch_size * elements


def element_bytes(workload: Workload) -> int:
    """Bytes of one element of an activation (e)."""
    return 4 if workload.precision == "fp32" else 2


def _stage_memory(workload: Workload, layout: PlannedLayout, batch_size: int, stage: Stage) -> DeviceMemory:
    parameters = stage_parameters(workload, layout, stage)
    in_flight = 1 if stage != "first" else max(1, min(layout.pipeline, int(layout.micro_batches(batch_size))))
    weight = _WEIGHTS.get(workload.precision, 2)
    gradient, formula, source = _GRADIENTS[workload.precision]
    return DeviceMemory(
        stage=stage,
        parameters=parameters,
        in_flight=in_flight,
        parts=(
            MemoryPart("weights", parameters * weight, f"{weight} bytes a parameter", _ZERO),
            MemoryPart("gradients", parameters * gradient, formula, source),
            MemoryPart("optimizer", parameters * 12 / layout.data, _OPTIMIZER, _ZERO),
            MemoryPart("activations", *_activations(workload, layout, stage, in_flight), _ACTIVATION_SOURCE),
        ),
    )


def _activations(workload: Workload, layout: PlannedLayout, stage: Stage, in_flight: int) -> tuple[float, str]:
    model, t, p = workload.model, layout.tensor, layout.pipeline
    s, b, h = workload.sequence_length, layout.micro_batch_size, model.hidden_size
    e, dropout = element_bytes(workload), model.dropout > 0
    layers = model.num_layers // p
    layer = layer_activation_bytes(workload, layout)
    formula = f"{_LAYER} + {_SCORES[workload.attention]}{_DROPPED[workload.attention] if dropout else ''}"
    if layout.recompute:
        # A group of layers keeps the input of its first, and is whole again while its backward pass runs.
        groups, group = -(-layers // layout.recompute_interval), min(layout.recompute_interval, layers)
        total = in_flight * groups * e * s * b * h + group * layer
        kept = f"{groups} groups of {group} layers" if group > 1 else f"{layers} layers"
        text = f"{in_flight} in flight x {kept} x esbh + one {'group' if group > 1 else 'layer'} recomputed: "
        text += f"{group} x ({formula})" if group > 1 else formula
    else:
        total = in_flight * layers * layer
        text = f"{in_flight} in flight x {layers} layers x ({formula})"
    if p > 1 and stage == "first":  # DeepSpeed keeps a stage's output until its backward pass, cut by tensor rank
        total += in_flight * e * s * b * h / t
        text += f" + {in_flight} outputs esbh/t"
    if stage == "first" or p == 1:
        total += in_flight * s * b * (8 + dropout * h)
        text += f" + {in_flight} inputs sb(8 + h)" if dropout else f" + {in_flight} inputs 8sb"
    if stage == "last" or p == 1:
        total += head_activation_bytes(workload, layout)
        text += f" + final norm and logits sb(2eh + {'4' if workload.logits_copied else 'e'}V/t)"
        if workload.precision != "fp32":  # DeepSpeed keeps the output, its gradient has the same precision
            total += (1 + workload.logits_copied) * e * s * b * model.padded_vocab_size / t
            text += " + half logits and their gradient 2esbV/t" if workload.logits_copied else " + gradient esbV/t"
    return total, text
