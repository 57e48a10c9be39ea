"""Whether a layout fits into memory, before any process is started: into a planned device, or into what is really here.

The estimate of `memory` leaves out what only a running device can say, so with the whole memory as its limit it refuses
only what cannot fit.
"""

from treering.errors import ConfigError
from treering.plan.layout import PlannedLayout, Workload
from treering.plan.memory import DeviceMemory, device_memory, stage_memories

_GB = 1e9


def check_device_memory(
    source: str, workload: Workload, layout: PlannedLayout, *, device: str, memory_bytes: float, share: float = 1.0
) -> None:
    """Refuses a layout whose fullest stage is larger than a device at the full batch.

    Args:
        source: the experiment's file, for errors.
        workload: what is trained.
        layout: how it is cut.
        device: the device, in words.
        memory_bytes: its memory.
        share: of the memory, what the estimate may fill.

    Raises:
        ConfigError: names the field to change, what is needed by part, and the remedy.
    """
    memory = device_memory(workload, layout, workload.schedule.global_batch_size)
    if memory.num_bytes <= share * memory_bytes:
        return
    parts = ", ".join(f"{part.name} {part.num_bytes / _GB:.1f}" for part in memory.parts)
    field, remedy = _remedy(memory, layout)
    limit = f"{memory_bytes / _GB:.0f} GB of {device}"
    raise ConfigError(
        source, field, f"{memory.num_bytes / _GB:.1f} GB a device in the {memory.stage} stage of {layout} ({parts})",
        f"at most {f'{share:.0%} of ' if share < 1 else ''}the {limit}: {remedy}; "
        f"`treering plan {source} --nodes N --search` lists the layouts that fit",
    )  # fmt: skip


def check_node_memory(
    source: str, workload: Workload, layout: PlannedLayout, *, ranks: int, memory_bytes: float
) -> None:
    """Refuses ranks on processors that together need more than the memory of their node at the full batch.

    Which stages a node holds is known where it holds them all; else each rank counts as one of the smallest stage.

    Args:
        source: the experiment's file, for errors.
        workload: what is trained.
        layout: how it is cut.
        ranks: how many of its ranks run on this node.
        memory_bytes: what the node gives them.

    Raises:
        ConfigError: names the field to change, what is needed, and the remedy.
    """
    stages = stage_memories(workload, layout, workload.schedule.global_batch_size)
    if ranks >= layout.world_size:
        needed = sum(stage.num_bytes for stage in stages) * layout.tensor * layout.data
    else:
        needed = ranks * min(stage.num_bytes for stage in stages)
    if needed <= memory_bytes:
        return
    largest = max(stages, key=lambda memory: memory.num_bytes)
    field, remedy = _remedy(largest, layout)
    if field == "parallel":
        remedy = "fewer ranks on the node, a smaller model, or GPUs"
    raise ConfigError(
        source, field, f"at least {needed / _GB:.1f} GB for {ranks} ranks of {layout} on this node",
        f"at most the {memory_bytes / _GB:.1f} GB of memory that this node gives them: {remedy}",
    )  # fmt: skip


def _remedy(memory: DeviceMemory, layout: PlannedLayout) -> tuple[str, str]:
    """The field to change, and how."""
    mostly_activations = memory.parts[-1].num_bytes > memory.num_bytes / 2
    if mostly_activations and not layout.recompute:
        return "parallel.activation_recompute", "`--set parallel.activation_recompute=full`"
    if mostly_activations and layout.micro_batch_size > 1:
        return "parallel.micro_batch_size", "a smaller micro-batch"
    return "parallel", "more tensor or pipeline parallelism"
