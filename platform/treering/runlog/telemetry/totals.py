"""The energy of every device up to a moment, counted on as readings come, so that a long run is not read again.

Between two readings of a device the energy is what its counter says; where it has no counter, or the counter began
again, it is the mean power times the time, as long as the gap is short. Longer gaps are unseen, and nothing is made up
for them.
"""

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from treering.files import read_text
from treering.runlog.telemetry.readings import NONE, Floats, Readings

TOTALS_FILE: Final = "totals.json"
ROLLED_UP_FILE: Final = "rolled-up.json"
"""Names the parts whose single readings were deleted, see `treering.runlog.telemetry.rolled_up`."""
ENERGY: Final = "device/energy"
POWER: Final = "device/power"
COLUMNS: Final = (ENERGY, POWER)
LONGEST_GAP_S: Final = 30.0
"""Seconds between two readings over which power is integrated at most."""


@dataclass(slots=True)
class DeviceTotal:
    """One device so far.

    Attributes:
        first: Unix seconds of the first reading.
        last: of the newest one.
        energy: newest value of the counter, joules; NaN without one.
        power: newest power, watts; NaN without one.
        counted_j: joules that the counter says.
        counted_s: seconds that it covers.
        integrated_j: joules of power over time.
        integrated_s: seconds that it covers.
    """

    first: float
    last: float
    energy: float
    power: float
    counted_j: float = 0.0
    counted_s: float = 0.0
    integrated_j: float = 0.0
    integrated_s: float = 0.0

    def add(self, times: Floats, energy: Floats, power: Floats) -> None:
        """Adds readings of the device, in order of time; those before the newest one are left out."""
        new = times > self.last
        times = np.concatenate([[self.last], times[new]])
        energy = np.concatenate([[self.energy], energy[new]])
        power = np.concatenate([[self.power], power[new]])
        seconds, joules = np.diff(times), np.diff(energy)
        mean_w = (power[1:] + power[:-1]) / 2
        counted = joules >= 0  # NaN is not
        integrated = ~counted & np.isfinite(mean_w) & (seconds <= LONGEST_GAP_S)
        self.counted_j += float(joules[counted].sum())
        self.counted_s += float(seconds[counted].sum())
        self.integrated_j += float((mean_w * seconds)[integrated].sum())
        self.integrated_s += float(seconds[integrated].sum())
        self.last, self.energy, self.power = float(times[-1]), float(energy[-1]), float(power[-1])


class Totals:
    """The devices of an attempt.

    Attributes:
        devices: by node and NVML's index.
    """

    def __init__(self, devices: dict[tuple[int, int], DeviceTotal] | None = None) -> None:
        self.devices = devices or {}

    def add(self, readings: Readings) -> None:
        """Adds readings, those of each device later than the ones before."""
        if not len(readings):
            return
        energy, power = readings.column(ENERGY), readings.column(POWER)
        of_devices = (readings.devices != NONE) & (np.isfinite(energy) | np.isfinite(power))
        rows = np.flatnonzero(of_devices)
        rows = rows[np.lexsort((readings.times[rows], readings.devices[rows], readings.nodes[rows]))]
        keys = np.stack([readings.nodes[rows], readings.devices[rows]])
        starts = np.flatnonzero(np.any(np.diff(keys, axis=1), axis=0)) + 1
        for own in np.split(rows, starts) if len(rows) else ():
            key = (int(readings.nodes[own[0]]), int(readings.devices[own[0]]))
            times = readings.times[own]
            if key not in self.devices:
                self.devices[key] = DeviceTotal(
                    float(times[0]), float(times[0]), float(energy[own[0]]), float(power[own[0]])
                )
            self.devices[key].add(times, energy[own], power[own])

    def to_text(self, last: int) -> str:
        """As a file that holds for the parts up to a number."""
        rows = [[*key, *(_number(getattr(each, name)) for name in _FIELDS)] for key, each in self.devices.items()]
        return json.dumps({"last": last, "fields": _FIELDS, "devices": rows}, separators=(",", ":"))

    @classmethod
    def read(cls, folder: Path) -> tuple[Self, int]:
        """The totals in an attempt's `telemetry/`, and the number of the newest part in them.

        Nothing and -1 where there are none, or where they do not hold: they are counted again from the parts.
        """
        try:
            content = json.loads(read_text(folder / TOTALS_FILE))
            if content["fields"] != list(_FIELDS):
                return cls(), -1
            devices = {
                (int(node), int(device)): DeviceTotal(*(_float(value) for value in values))
                for node, device, *values in content["devices"]
            }
            return cls(devices), int(content["last"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return cls(), -1


_FIELDS: Final = tuple(field.name for field in fields(DeviceTotal))


def _number(value: float) -> float | None:
    return round(value, 3) if np.isfinite(value) else None


def _float(value: Any) -> float:
    return float("nan") if value is None else float(value)
