"""Chooses what ranks run on and how many there are, without touching CUDA in the launching process."""

import os
from dataclasses import dataclass

from treering.collect.devices import Device, node_devices
from treering.collect.memory import memory_limit
from treering.config.resolved import Resolved
from treering.errors import ConfigError, UserError
from treering.plan.fit import check_device_memory, check_node_memory
from treering.plan.layout import PlannedLayout, Workload
from treering.runlog.records import AttemptLayout


@dataclass(frozen=True, slots=True)
class Hardware:
    """What this node offers.

    Attributes:
        device: `cuda` or `cpu`.
        count: accelerators that this process may use; 0 on a processor.
        devices: all devices of the node, for the record.
        note: a message to the user about the choice, empty for none.
    """

    device: str
    count: int
    devices: tuple[Device, ...]
    note: str


def find_hardware() -> Hardware:
    """What this node offers, from NVML: a process that has called CUDA can no longer start ranks by fork."""
    devices = tuple(node_devices())
    count = sum(device.kind == "cuda" for device in devices)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        count = min(count, len([entry for entry in visible.split(",") if entry.strip()]))
    if count and os.environ.get("DS_ACCELERATOR") == "cpu":
        return Hardware("cpu", 0, devices, "")
    if count and _for_processors():
        return Hardware(
            "cpu", 0, devices, f"this node has {count} GPUs, but this torch is built without CUDA: training on CPU"
        )
    return Hardware("cuda" if count else "cpu", count, devices, "")


def evaluation_device(name: str | None) -> str:
    """The device that scores checkpoints.

    Args:
        name: `cpu`, `cuda` or `cuda:N`; None for the first GPU, or the processor of a node without one.

    Raises:
        UserError: the name is none of a device, or this node does not have it.
    """
    hardware = find_hardware()
    if name is None:
        return f"{hardware.device}:0" if hardware.count else hardware.device
    kind, _, number = name.partition(":")
    if kind not in {"cpu", "cuda"} or (number and (kind == "cpu" or not number.isdecimal())):
        raise UserError(f"--device: found {name!r}, expected cpu, cuda or cuda:N")
    if kind == "cuda" and int(number or 0) >= hardware.count:
        has = f"cpu and cuda:0 to cuda:{hardware.count - 1}" if hardware.count else "cpu"
        raise UserError(f"--device: found {name}, expected one of this node: {has}; CUDA_VISIBLE_DEVICES shows GPUs")
    return f"cuda:{number or 0}" if kind == "cuda" else "cpu"


def set_accelerator(device: str) -> None:
    """Sets DeepSpeed's accelerator before DeepSpeed is imported; unset, DeepSpeed guesses and warns."""
    os.environ["DS_ACCELERATOR"] = device


def _for_processors() -> bool:
    """Whether this torch is built without CUDA."""
    import torch  # noqa: PLC0415 - takes seconds, and a node without GPUs does not need it here

    return torch.version.cuda is None


def choose_layout(resolved: Resolved, hardware: Hardware, world_size: int | None = None) -> tuple[AttemptLayout, str]:
    """The layout of an attempt.

    Args:
        resolved: the config, whose batch sizes fit `parallel.data` unless that is `auto`.
        hardware: what the node offers.
        world_size: number of ranks that an outer launcher has started, None if we start them.

    Returns:
        The layout, and a message to the user about it (empty for none).

    Raises:
        UserError: more ranks are asked for than there are devices, or than an outer launcher started.
    """
    parallel = resolved.attempt.parallel
    wanted = chosen = parallel.layout(world_size or hardware.count or parallel.cpu_processes)
    note = ""
    if parallel.data == "auto":
        chosen = wanted.fitted(resolved.schedule)
    if chosen.data < wanted.data:
        least = wanted.least_micro_batches
        note = (
            f"data parallel size {chosen.data} instead of {wanted.data}: every batch size of the schedule must be "
            f"divisible by micro_batch_size {wanted.micro_batch_size} x data parallel size"
            + (f", {least} times at least for {wanted.pipeline_schedule}" if least > 1 else "")
        )
    layout = AttemptLayout(
        **chosen.model_dump(), device=hardware.device, backend="nccl" if hardware.device == "cuda" else "gloo"
    )
    if hardware.count and world_size is None and layout.world_size > hardware.count:
        raise UserError(
            f"parallel: layout {layout} (TP x PP x DP) needs {layout.world_size} GPUs, this node has {hardware.count}; "
            "make parallel.* smaller, or start the run on several nodes with `treering launch`"
        )
    if world_size is not None and layout.world_size != world_size:
        raise UserError(
            f"parallel: layout {layout} (TP x PP x DP) has {layout.world_size} ranks, WORLD_SIZE is {world_size}; "
            f"start {layout.world_size} ranks{f' ({note})' if note else ''}, or set parallel.* to the ranks that start"
        )
    return layout, note


def check_fits(source: str, resolved: Resolved, layout: AttemptLayout, hardware: Hardware) -> None:
    """Refuses a config that this node cannot compute, or whose memory certainly exceeds the node's.

    Nothing is allocated before.

    Args:
        source: the experiment's file, for errors.
        resolved: the config.
        layout: as `choose_layout` chose it.
        hardware: what the node offers.

    Raises:
        ConfigError: names the field, what is needed, what the node has, and the remedy.
    """
    if resolved.recipe.precision == "fp16" and hardware.device == "cpu" and not fp16_on_cpu():
        raise ConfigError(
            source, "precision", "fp16", "bf16 or fp32: the processors of this node cannot compute in fp16, GPUs can; "
            "`--set precision=bf16`",
        )  # fmt: skip
    workload = Workload.of(resolved)
    planned = PlannedLayout.of(resolved.attempt.parallel, layout.world_size).model_copy(update={"data": layout.data})
    if hardware.count:
        # NVML and CUDA may number the devices differently, so the device with the least memory decides.
        sized = [device for device in hardware.devices if device.kind == "cuda" and device.memory_bytes]
        smallest = min(sized, key=lambda device: device.memory_bytes or 0, default=None)
        if smallest is not None:
            check_device_memory(
                source, workload, planned, device=smallest.name, memory_bytes=smallest.memory_bytes or 0
            )
        return
    check_node_memory(source, workload, planned, ranks=ranks_here(layout), memory_bytes=memory_limit())


def fp16_on_cpu() -> bool:
    """Whether torch computes in fp16 on this processor: DeepSpeed asks the same before it starts."""
    import torch  # noqa: PLC0415 - as above

    return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())  # noqa: SLF001 - torch has no public name for it


def ranks_here(layout: AttemptLayout) -> int:
    """Ranks on this node: all ranks if Treering starts them, else the outer launcher's number, at least 1."""
    if "RANK" not in os.environ:
        return layout.world_size
    return int(os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("LOCAL_SIZE") or 1)  # LOCAL_SIZE is DeepSpeed's
