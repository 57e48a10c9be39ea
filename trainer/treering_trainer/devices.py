"""Chooses what ranks run on and how many there are, without touching CUDA in the launching process."""

import os
from dataclasses import dataclass

import torch

from treering.collect.devices import Device, collect_devices
from treering.collect.nvml import open_nvml
from treering.config.resolve import Resolved
from treering.errors import UserError
from treering.runlog.records import Layout


@dataclass(frozen=True, slots=True)
class Hardware:
    """What this node offers.

    Attributes:
        device: `cuda` or `cpu`.
        count: accelerators that this process may use; 0 on a processor.
        devices: all devices of the node, for the record.
        note: what is worth saying about the choice, empty if nothing is.
    """

    device: str
    count: int
    devices: tuple[Device, ...]
    note: str


def find_hardware() -> Hardware:
    """Asks NVML, not CUDA: a process that has touched CUDA can no longer start ranks by fork."""
    nvml, _reason = open_nvml()
    devices = tuple(collect_devices(nvml))
    if nvml is not None:
        nvml.close()
    count = sum(device.kind == "cuda" for device in devices)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        count = min(count, len([entry for entry in visible.split(",") if entry.strip()]))
    if count and os.environ.get("DS_ACCELERATOR") == "cpu":
        return Hardware("cpu", 0, devices, "")
    if count and torch.version.cuda is None:
        return Hardware(
            "cpu", 0, devices, f"{count} GPUs are here, but this torch is built for processors: training on CPU"
        )
    return Hardware("cuda" if count else "cpu", count, devices, "")


def choose_layout(resolved: Resolved, hardware: Hardware, world_size: int | None = None) -> tuple[Layout, str]:
    """The layout of an attempt.

    Args:
        resolved: the config, whose batch sizes fit `parallel.data` unless that is `auto`.
        hardware: what the node offers.
        world_size: number of ranks that an outer launcher has started, None if we start them.

    Returns:
        The layout, and what is worth saying about it (empty if nothing is).

    Raises:
        UserError: more ranks are asked for than there are devices, or than an outer launcher started.
    """
    parallel = resolved.attempt.parallel
    model_parallel = parallel.tensor * parallel.pipeline
    available = world_size or hardware.count or parallel.cpu_processes
    note = ""
    if parallel.data == "auto":
        data = wanted = max(available // model_parallel, 1)
        while data > 1 and resolved.schedule.check_divisible(parallel.micro_batch_size * data) is not None:
            data -= 1
        if data < wanted:
            note = (
                f"data parallel size {data} instead of {wanted}: every batch size of the schedule must be divisible by "
                f"micro_batch_size {parallel.micro_batch_size} x data parallel size"
            )
    else:
        data = parallel.data
    layout = Layout(
        tensor=parallel.tensor,
        pipeline=parallel.pipeline,
        data=data,
        micro_batch_size=parallel.micro_batch_size,
        world_size=model_parallel * data,
        device=hardware.device,
        backend="nccl" if hardware.device == "cuda" else "gloo",
    )
    if hardware.count and world_size is None and layout.world_size > hardware.count:
        raise UserError(
            f"layout {layout} (TP x PP x DP) needs {layout.world_size} GPUs, {hardware.count} are here; "
            "make parallel.* smaller, or start one launcher a node with torchrun"
        )
    if world_size is not None and layout.world_size != world_size:
        raise UserError(f"layout {layout} (TP x PP x DP) has {layout.world_size} ranks, WORLD_SIZE is {world_size}")
    return layout, note
