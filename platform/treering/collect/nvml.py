"""NVIDIA's management library through `nvidia-ml-py`: every reading is a value, or the reason why it is missing.

`import pynvml` works without a GPU; the driver's library is looked for only by `open_nvml`. The library is an argument,
so that the errors of each driver can be tested without a GPU.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pynvml


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading: a value or a reason; neither for a rate whose counter was read once.

    Attributes:
        value: what the device reported.
        reason: why it reported nothing, in NVML's own words.
        code: NVML's number of the error; None for an error of another kind.
    """

    value: Any = None
    reason: str | None = None
    code: int | None = None


class Nvml:
    """An initialised NVML.

    Args:
        library: module or object with NVML's functions by name.
    """

    def __init__(self, library: Any) -> None:
        self._library = library

    def read(self, function: str, *arguments: Any, pick: Callable[[Any], Any] = lambda value: value) -> Reading:
        """Calls an NVML function by name; whatever it raises becomes the reason.

        Args:
            function: like `nvmlDeviceGetPowerUsage`; one that this library lacks is a reason too.
            arguments: passed on.
            pick: takes the wanted number out of what the function returns.
        """
        try:
            return Reading(pick(getattr(self._library, function)(*arguments)))
        except Exception as error:  # noqa: BLE001  (telemetry fails open: an error of a driver must never end a training)
            code = error.value if isinstance(error, pynvml.NVMLError) else None
            return Reading(reason=f"{function}: {reason_of(error)}", code=code)

    def handles(self) -> list[Any]:
        """Handle of every device that answers, in NVML's order (PCI bus), which ignores CUDA_VISIBLE_DEVICES."""
        count = self.read("nvmlDeviceGetCount").value or 0
        found = (self.read("nvmlDeviceGetHandleByIndex", index).value for index in range(count))
        return [handle for handle in found if handle is not None]

    def close(self) -> None:
        """Shuts the library down; safe to call after a device was lost."""
        self.read("nvmlShutdown")


def reason_of(error: Exception) -> str:
    """NVML's own words for an error, without its class's name."""
    return str(error) or type(error).__name__


def open_nvml(library: Any = pynvml) -> tuple[Nvml | None, str | None]:
    """Opens NVML.

    Returns:
        The open library and None, or None and the reason (no driver, no GPU, no permission): never an exception.
    """
    nvml = Nvml(library)
    reading = nvml.read("nvmlInit")
    if reading.reason:
        return None, reading.reason
    if not nvml.handles():
        nvml.close()
        return None, "nvmlDeviceGetCount: no device"
    return nvml, None
