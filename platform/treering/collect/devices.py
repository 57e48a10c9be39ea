"""The devices of this node: accelerators as NVML reports them, and the processor."""

import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from treering.collect.nvml import Nvml, open_nvml


@dataclass(frozen=True, slots=True)
class Device:
    """One device.

    Attributes:
        kind: `cuda` or `cpu`.
        name: the product, as its driver names it.
        uuid: the vendor's identity of this very device; None for a processor, which has none.
        memory_bytes: memory of the device, or of the node for its processor.
        driver: version of the driver; None for a processor.
        index: position in NVML's order; 0 for the processor.
    """

    kind: str
    name: str
    uuid: str | None
    memory_bytes: int | None
    driver: str | None
    index: int

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return asdict(self)


def collect_devices(nvml: Nvml | None) -> list[Device]:
    """Every device of this node, accelerators first; the processor is always the last one.

    Args:
        nvml: the open library of `open_nvml`, None where there is none.
    """
    found = []
    if nvml:
        driver = nvml.read("nvmlSystemGetDriverVersion").value
        for index, handle in enumerate(nvml.handles()):
            found.append(
                Device(
                    kind="cuda",
                    name=nvml.read("nvmlDeviceGetName", handle).value or "unknown",
                    uuid=nvml.read("nvmlDeviceGetUUID", handle).value,
                    memory_bytes=nvml.read("nvmlDeviceGetMemoryInfo", handle, pick=lambda info: int(info.total)).value,
                    driver=driver,
                    index=index,
                )
            )
    found.append(Device("cpu", cpu_model(), None, psutil.virtual_memory().total, None, 0))
    return found


def node_devices() -> list[Device]:
    """Every device of this node, read through NVML where it can be opened, which is closed again."""
    nvml, _reason = open_nvml()
    try:
        return collect_devices(nvml)
    finally:
        if nvml is not None:
            nvml.close()


def visible_index(devices: Sequence[Device], local_rank: int, visible: str | None) -> int | None:
    """NVML's index of the device that a local rank computes on.

    Args:
        devices: all devices of the node.
        local_rank: rank on this node, which takes CUDA's device of this number.
        visible: CUDA_VISIBLE_DEVICES, None when unset. Entries are numbers or (beginnings of) UUIDs.

    Returns:
        None where the rank computes on the processor.
    """
    accelerators = [device for device in devices if device.kind == "cuda"]
    if visible is None:
        entries = [str(device.index) for device in accelerators]
    else:
        entries = [entry.strip() for entry in visible.split(",") if entry.strip()]
    if local_rank >= len(entries):
        return None
    entry = entries[local_rank]
    for device in accelerators:
        if str(device.index) == entry or (not entry.isdigit() and (device.uuid or "").startswith(entry)):
            return device.index
    return None


def visible_indexes(devices: Sequence[Device], visible: str | None) -> list[int]:
    """NVML's index of every device that a process sees, in CUDA's order.

    Args:
        devices: all devices of the node.
        visible: CUDA_VISIBLE_DEVICES, None when unset.
    """
    found = (visible_index(devices, place, visible) for place in range(len(devices)))
    return [index for index in found if index is not None]


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Name of the processor."""
    try:
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
