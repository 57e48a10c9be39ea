"""What a plan is made of - a model under training, a layout, a cluster - and the layouts that a cluster can hold.

Reads the resolved config; `memory` and `planning` compute what follows from it.
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, Self

from pydantic import Field

from treering.config.layout import Layout
from treering.config.model import ModelConfig, PositiveInt, Precision
from treering.config.operation import ParallelConfig
from treering.config.resolved import Resolved
from treering.config.schedule import Schedule
from treering.errors import ConfigError, UserError
from treering.metrics.flops import A100_40GB, A100_80GB, H100, H200, ModelShape, Peak, peak_of


@dataclass(frozen=True, slots=True)
class Interconnect:
    """How fast one device sends, bytes/s in one direction, without any loss to protocol or congestion.

    Attributes:
        node: to the devices of its own node (NVLink).
        network: to other nodes.
        source: where both numbers stand.
    """

    node: float
    network: float
    source: str


_DGX = "https://www.nvidia.com/en-us/data-center/dgx-"
_DGX_A100 = Interconnect(300e9, 25e9, f"NVLink 600 GB/s both ways, a 200 Gb/s port for each GPU ({_DGX}a100/)")
_DGX_H100 = Interconnect(450e9, 50e9, f"NVLink 900 GB/s both ways, a 400 Gb/s port for each GPU ({_DGX}h100/)")
_DGX_H200 = Interconnect(450e9, 50e9, f"NVLink 900 GB/s both ways, a 400 Gb/s port for each GPU ({_DGX}h200/)")

DEVICES: Final[MappingProxyType[str, tuple[Peak, Interconnect]]] = MappingProxyType(
    {
        peak.device: (peak, interconnect)
        for peak, interconnect in (
            (A100_40GB, _DGX_A100),
            (A100_80GB, _DGX_A100),
            (H100, _DGX_H100),
            (H200, _DGX_H200),
        )
    }
)
"""Devices that a cluster can be planned with, as in the vendor's own eight-GPU server."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Equal nodes of equal devices.

    Attributes:
        device: the device with its peak and memory.
        interconnect: what joins the devices.
        nodes: number of nodes.
        gpus_per_node: devices of each.
    """

    device: Peak
    interconnect: Interconnect
    nodes: int
    gpus_per_node: int

    @classmethod
    def of(cls, device: str, nodes: int, gpus_per_node: int) -> Self:
        """A cluster by the device's name in `DEVICES`, its unambiguous beginning, or as a driver reports it.

        Raises:
            UserError: an unknown device: no plan uses a guessed peak; or no devices at all.
        """
        reported = peak_of(device)
        named = [name for name in DEVICES if name.startswith(reported.device if reported else device)]
        if len(named) != 1:
            raise UserError(f"--device: found {device!r}, expected one of {', '.join(DEVICES)}")
        if nodes < 1 or gpus_per_node < 1:
            raise UserError(f"cluster: found {nodes} nodes of {gpus_per_node} devices, expected at least 1 of each")
        return cls(*DEVICES[named[0]], nodes, gpus_per_node)

    @property
    def num_devices(self) -> int:
        """Devices of all nodes."""
        return self.nodes * self.gpus_per_node


class PlannedLayout(Layout):
    """A layout with its activation recompute, which memory and time of a plan depend on."""

    recompute: bool = Field(description="full activation recompute")
    recompute_interval: PositiveInt = Field(
        1, description="with it, layers of a group that keeps one input; no number of FLOPs depends on it"
    )

    @classmethod
    def of(cls, parallel: ParallelConfig, num_devices: int) -> Self:
        """The layout of a config; `data: auto` takes what the devices leave, at least 1."""
        return cls(
            **parallel.layout(num_devices).model_dump(),
            recompute=parallel.activation_recompute == "full",
            recompute_interval=parallel.recompute_interval,
        )


Attention = Literal["fused", "unfused", "unfused_fp32"]
"""Attention kernels by what they keep: no scores, scores in the activations' precision (Megatron's of 2021 and 2022),
or scores, queries, keys and values in fp32 (torch's `sdpa_math`)."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What is trained.

    Attributes:
        model: the model.
        schedule: batch sizes by step.
        precision: of weights and activations.
        attention: what the attention kernel keeps for its backward pass.
        logits_copied: the loss keeps an fp32 copy of the logits; else the logits themselves.
    """

    model: ModelConfig
    schedule: Schedule
    precision: Precision
    attention: Attention = "fused"
    logits_copied: bool = True

    @classmethod
    def of(cls, resolved: Resolved) -> Self:
        """The workload of a resolved experiment. `sdpa_auto` counts as fused: on a GPU torch chooses a fused kernel."""
        recipe = resolved.recipe
        kernels = resolved.attempt.kernels
        attention: Attention = "unfused_fp32" if kernels.attention == "sdpa_math" else "fused"
        copied = kernels.cross_entropy == "eager"
        return cls(recipe.model, resolved.schedule, recipe.precision, attention, copied)

    @property
    def sequence_length(self) -> int:
        """Tokens of a sample."""
        return self.schedule.sequence_length

    @property
    def shape(self) -> ModelShape:
        """Sizes that FLOPs depend on."""
        return ModelShape.of(self.model, self.sequence_length)


def check_layout(source: str, workload: Workload, layout: PlannedLayout, cluster: Cluster) -> None:
    """Refuses a layout that cannot be planned: one without a peak to plan by, or one that `check_world` refuses.

    Memory is checked by `fit`.

    Args:
        source: the experiment's file, for errors.
        workload: what is trained.
        layout: how it is cut.
        cluster: where it would run.

    Raises:
        ConfigError: names the field, what it is and what would do.
    """
    if workload.precision == "fp32":
        raise ConfigError(
            source, "precision", "fp32", f"bf16: the peak of {cluster.device.device} is a bf16 rate; "
            "`--set precision=bf16`"
        )  # fmt: skip
    check_world(source, workload, layout, cluster.nodes, cluster.gpus_per_node)


def check_world(source: str, workload: Workload, layout: PlannedLayout, nodes: int, per_node: int) -> None:
    """Refuses a layout that does not divide: the devices of the nodes, the model or a stage of the batch schedule.

    Args:
        source: the experiment's file, for errors.
        workload: what is trained.
        layout: how it is cut.
        nodes: how many there are.
        per_node: devices of each, one rank a device.

    Raises:
        ConfigError: names the field, what it is and what would do.
    """
    shards, devices = layout.tensor * layout.pipeline, nodes * per_node
    if per_node % layout.tensor:
        raise ConfigError(
            source, "parallel.tensor", str(layout.tensor), f"a divisor of {per_node}, the devices of a "
            "node: every layer waits for its tensor ranks, and only NVLink is fast enough"
        )  # fmt: skip
    if devices % shards:
        raise ConfigError(
            source, "parallel.pipeline", f"tensor {layout.tensor} x pipeline {layout.pipeline} = {shards:,}",
            f"a divisor of the {devices:,} devices of {nodes} nodes; `--search` lists the layouts that fit",
        )  # fmt: skip
    if layout.world_size != devices:
        raise ConfigError(
            source, "parallel.data", f"{layout.data}: {layout} takes {layout.world_size:,} devices",
            f"{devices // shards} for the {devices:,} devices of {nodes} nodes; "
            f"`--set parallel.data={devices // shards}`",
        )  # fmt: skip
    for field, value, ways, by in _divisions(workload.model, layout):
        if value % ways:
            raise ConfigError(source, field, str(value), f"a number divisible by {by} {ways}")
    stage = layout.unfit_stage(workload.schedule)
    if stage is not None:
        raise ConfigError(
            source, "schedule", f"a stage with global batch {stage.batch_size} from step {stage.first_step} on",
            f"{layout.stage_rule}; move replicas into tensor or pipeline, or start the ramp at a multiple",
        )  # fmt: skip


def _divisions(model: ModelConfig, layout: PlannedLayout) -> tuple[tuple[str, int, int, str], ...]:
    return (
        ("model.num_attention_heads", model.num_attention_heads, layout.tensor, "parallel.tensor"),
        ("model.padded_vocab_size", model.padded_vocab_size, layout.tensor, "parallel.tensor"),
        ("model.ffn_hidden_size", model.ffn_width, layout.tensor, "parallel.tensor"),
        ("model.num_layers", model.num_layers, layout.pipeline, "parallel.pipeline"),
    )


_LARGEST_MICRO_BATCH = 16


def layouts(workload: Workload, cluster: Cluster) -> list[PlannedLayout]:
    """Every layout that divides cluster, model and batch schedule, tensor parallelism within a node.

    Micro-batches are powers of two up to 16. Memory is not looked at.
    """
    found = []
    model, devices = workload.model, cluster.num_devices
    for tensor in _divisors(cluster.gpus_per_node):
        for pipeline in _divisors(model.num_layers):
            data, rest = divmod(devices, tensor * pipeline)
            if rest or data < 1:
                continue
            layout = PlannedLayout(tensor=tensor, pipeline=pipeline, data=data, micro_batch_size=1, recompute=False)
            if any(value % ways for _, value, ways, _ in _divisions(model, layout)):
                continue
            while layout.micro_batch_size <= _LARGEST_MICRO_BATCH and not layout.unfit_stage(workload.schedule):
                found += [layout, layout.model_copy(update={"recompute": True})]
                layout = layout.model_copy(update={"micro_batch_size": 2 * layout.micro_batch_size})
    return found


def _divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]
