"""How each series of telemetry is stored: as whole numbers of a unit that fits the sensor, or as floats.

Whole numbers that change little take about a byte a reading. A series without an entry is stored as floats.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np

STEP_METRICS: Final = ("rank/step", "rank/compute", "rank/communication", "rank/tflops")
"""A rank's own numbers of its steps, as means over the steps of an interval."""

FLOAT32: Final = ("rank/", "device/")
"""Series of these areas that are no whole numbers are stored in 32 bits."""

PER_UNIT: Final[Mapping[str, int]] = MappingProxyType(
    {
        "rank/step": 100_000,
        "rank/compute": 100_000,
        "rank/communication": 100_000,
        "host/cpu_utilisation": 10,
        "process/cpu_utilisation": 10,
        "device/power": 10,
        "device/power_limit": 10,
        "device/tensor_activity": 100,
        "device/sm_activity": 100,
        **dict.fromkeys(
            (
                "host/memory_used", "host/disk_read", "host/disk_written", "host/disk_free", "host/network_received",
                "host/network_sent", "process/rss", "process/read", "process/written", "device/utilisation",
                "device/memory_utilisation", "device/memory_used", "device/energy", "device/temperature",
                "device/memory_temperature", "device/sm_clock", "device/memory_clock", "device/throttle_reasons",
                "device/ecc_corrected", "device/ecc_uncorrected", "device/retired_pages", "device/remapped_rows",
                "device/remapping_pending", "device/remapping_failed", "device/nvlink_sent", "device/nvlink_received",
                "device/nvlink_errors", "device/pcie_sent", "device/pcie_received", "device/pcie_replays", "device/xid",
            ),
            1,
        ),
    }
)  # fmt: skip
"""Stored units in a unit of the metric, of series that are stored as whole numbers: a watt has 10, since NVML measures
power to 5 W (`nvmlDeviceGetPowerUsage`); energy comes from the counter."""


def as_stored(name: str, value: Any) -> Any:
    """A reading as it will be read from a part: a live one must not differ from it in its last digits."""
    per_unit = PER_UNIT.get(name)
    if not isinstance(value, int | float) or not math.isfinite(value):
        return value
    if per_unit is None:
        return float(np.float32(value)) if name.startswith(FLOAT32) else value
    units = round(value * per_unit)
    return units if per_unit == 1 else units / per_unit
