"""Sensor readings beside the training thread: in each interval one JSON line to `telemetry/rank-N.jsonl`.

Telemetry fails open: after any error training goes on, and lost lines are counted (`dropped`) and shown. A line holds
`time` (Unix seconds), `rank`, `values` (metric to number or null), and, where something changed since the line before,
`reasons` (metric to the reason of its null) and `dropped` (lines lost so far). Units: utilisation in percent, power in
watts, memory in bytes, temperature in degrees Celsius, clocks in MHz.
"""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import psutil
import pynvml

from treering.collect.nvml import Nvml, Reading, open_nvml, reason_of

HOST_METRICS: Final = ("host/cpu_utilisation", "host/memory_used", "process/cpu_utilisation", "process/rss")
DEVICE_METRICS: Final = (
    "device/utilisation", "device/memory_used", "device/power", "device/temperature", "device/sm_clock",
    "device/memory_clock",
)  # fmt: skip


class HostSensors:
    """Node and process readings by psutil. A process's utilisation counts 100 % for each core."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self.begin()

    def begin(self) -> None:
        """Starts the interval that the next reading measures; psutil keeps the node's apart for each thread."""
        psutil.cpu_percent()
        self._process.cpu_percent()

    def read(self) -> dict[str, Reading]:
        """One reading of every host metric."""
        return {
            "host/cpu_utilisation": _attempt(psutil.cpu_percent),
            "host/memory_used": _attempt(lambda: psutil.virtual_memory().used),
            "process/cpu_utilisation": _attempt(self._process.cpu_percent),
            "process/rss": _attempt(lambda: self._process.memory_info().rss),
        }


class DeviceSensors:
    """Readings of one accelerator, or the reason why they are missing.

    Args:
        device_index: NVML's index of the device that this rank computes on; None if it computes on the processor.
        library: NVML's functions by name.
    """

    def __init__(self, device_index: int | None, library: Any = pynvml) -> None:
        self._nvml: Nvml | None = None
        self._handle: Any = None
        self._reason: str | None = "this rank computes on the processor" if device_index is None else None
        if device_index is not None:
            self._nvml, self._reason = open_nvml(library)
        if self._nvml is not None:
            handle = self._nvml.read("nvmlDeviceGetHandleByIndex", device_index)
            self._handle, self._reason = handle.value, handle.reason

    def read(self) -> dict[str, Reading]:
        """One reading of every device metric; without a device a single reason under `device`."""
        if self._nvml is None or self._reason is not None:
            return {"device": Reading(reason=self._reason)}
        nvml, handle = self._nvml, self._handle
        return {
            "device/utilisation": nvml.read("nvmlDeviceGetUtilizationRates", handle, pick=lambda rates: int(rates.gpu)),
            "device/memory_used": nvml.read("nvmlDeviceGetMemoryInfo", handle, pick=lambda info: int(info.used)),
            "device/power": nvml.read("nvmlDeviceGetPowerUsage", handle, pick=lambda milliwatts: milliwatts / 1000),
            "device/temperature": nvml.read("nvmlDeviceGetTemperature", handle, 0),  # 0: NVML_TEMPERATURE_GPU
            "device/sm_clock": nvml.read("nvmlDeviceGetClockInfo", handle, 1),  # 1: NVML_CLOCK_SM
            "device/memory_clock": nvml.read("nvmlDeviceGetClockInfo", handle, 2),  # 2: NVML_CLOCK_MEM
        }

    def close(self) -> None:
        """Shuts NVML down."""
        if self._nvml is not None:
            self._nvml.close()


class StepReadings:
    """A rank's own numbers of its steps (`STEP_METRICS`), as means over the steps that ended since the last reading.

    The training thread adds, the sampler's reads; neither waits for the other.
    """

    def __init__(self) -> None:
        self._ended: deque[Mapping[str, float]] = deque()

    def add(self, values: Mapping[str, float]) -> None:
        """A step has ended."""
        self._ended.append(values)

    def read(self) -> dict[str, Reading]:
        """The means; empty where no step has ended."""
        steps = [self._ended.popleft() for _ in range(len(self._ended))]
        return {key: Reading(sum(step[key] for step in steps) / len(steps)) for key in steps[0]} if steps else {}


class TelemetrySampler:
    """A daemon thread that samples every interval until stopped; used as a context or by `start` and `stop`.

    Args:
        path: `telemetry/rank-N.jsonl`; appended to, its folder is made.
        rank: global rank, stored in every line.
        interval_s: seconds between two samples.
        sensors: what to read; host and the rank's device by default.
    """

    def __init__(
        self,
        path: Path,
        *,
        rank: int,
        interval_s: float = 1.0,
        sensors: Sequence[HostSensors | DeviceSensors | StepReadings] | None = None,
    ) -> None:
        self._path = path
        self._rank = rank
        self._interval_s = interval_s
        self._sensors = tuple(sensors) if sensors is not None else None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"telemetry-{rank}", daemon=True)
        self._reasons: dict[str, str] = {}
        self._dropped = 0
        self._shown_dropped = 0

    @property
    def dropped(self) -> int:
        """Samples that could not be taken or written."""
        return self._dropped

    def start(self) -> None:
        """Starts sampling; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Takes a last sample and ends the thread; waits at most two seconds for a sensor that hangs."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2.0)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def sample(self) -> None:
        """Takes and writes one sample; a failure of any kind is counted, never raised."""
        try:
            if self._sensors is None:
                self._sensors = (HostSensors(), DeviceSensors(None))
            readings = {name: reading for sensor in self._sensors for name, reading in sensor.read().items()}
            self._write(readings)
        except Exception:  # noqa: BLE001  (telemetry fails open)
            self._dropped += 1

    def _write(self, readings: dict[str, Reading]) -> None:
        reasons = {name: reading.reason for name, reading in readings.items() if reading.reason}
        line: dict[str, Any] = {
            "time": time.time(),
            "rank": self._rank,
            "values": {name: reading.value for name, reading in readings.items()},
        }
        news = {name: reason for name, reason in reasons.items() if self._reasons.get(name) != reason}
        if news:
            line["reasons"] = news
        if self._dropped != self._shown_dropped:
            line["dropped"] = self._dropped
        text = json.dumps(line, separators=(",", ":")) + "\n"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # Unbuffered: a line is written whole or not at all, whenever the process dies.
        with self._path.open("ab", buffering=0) as file:
            file.write(text.encode())
        self._reasons, self._shown_dropped = reasons, self._dropped

    def _run(self) -> None:
        for sensor in self._sensors or ():
            if isinstance(sensor, HostSensors):
                with suppress(Exception):  # telemetry fails open
                    sensor.begin()
        while not self._stopped.wait(self._interval_s):
            self.sample()
        self.sample()
        for sensor in self._sensors or ():
            if isinstance(sensor, DeviceSensors):
                sensor.close()


def rank_sensors(device_index: int | None, library: Any = pynvml) -> tuple[HostSensors, DeviceSensors]:
    """What a rank reads: its node, its process and the device that it computes on.

    Args:
        device_index: see `treering.collect.devices.visible_index`.
        library: NVML's functions by name.
    """
    return HostSensors(), DeviceSensors(device_index, library)


def _attempt(function: Callable[[], Any]) -> Reading:
    try:
        return Reading(function())
    except Exception as error:  # noqa: BLE001  (telemetry fails open)
        return Reading(reason=reason_of(error))
