"""The energy of a run: joules of its devices over all attempts, J a token, TFLOP/s per watt, cost and CO2e.

Abandoned attempts count: their energy was spent for the run too. Only devices count, as NVML reports them: hosts,
network and cooling are not in it. 1 kWh is 3.6 MJ.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from treering.config.operation import ElectricityConfig
from treering.runlog.folders import AttemptFolder
from treering.runlog.telemetry.totals import POWER, DeviceTotal

_J_OF_KWH: Final = 3.6e6
_NEWEST_S: Final = 120.0
MEASURED_TFLOPS: Final = "device/tensor_tflops"


@dataclass(frozen=True, slots=True)
class AttemptSpan:
    """An attempt whose energy counts.

    Attributes:
        attempt: its folder.
        started_at: Unix seconds.
        ended_at: when it ended, or was last seen.
        devices: how many devices it computes on; None where that is not on record.
        electricity: its price and factor.
    """

    attempt: AttemptFolder[Any]
    started_at: float
    ended_at: float
    devices: int | None
    electricity: ElectricityConfig


def run_energy(
    spans: Sequence[AttemptSpan], tokens: int | None, tflops_per_device: float | None = None
) -> dict[str, Any] | None:
    """The energy of a run's attempts, as JSON values.

    Args:
        spans: all attempts, abandoned ones too.
        tokens: that the run has trained on its path; None where that is not known.
        tflops_per_device: the model's, of the newest steps.

    `kwh` is of all devices that were seen; `counted_kwh` is the part that devices' own counters say,
    `integrated_kwh` the part that is power over time. `devices` were seen, the counter of `devices_with_counter`
    was read. `seen_share`: seconds of devices with readings, of all that the attempts lasted. `power_w`: mean power
    of a device over the newest two minutes. `tflops_per_watt`: the model's TFLOP/s of a device over that power.
    `measured_tflops_per_device`: of the performance monitors. `cost` in `currency` and `co2e_kg` are there where
    price and factor are configured. `doubt`: what is not in the numbers, in sentences. None: cannot be said.

    Returns:
        The values by name; None where the attempts compute on no device, as far as that is known.
    """
    total = _Total()
    for span in spans:
        total.add(span)
    if not total.seen and not total.expected:
        return None
    joules = total.counted_j + total.integrated_j if total.seen else None
    newest = spans[-1].attempt.telemetry.read((POWER, MEASURED_TFLOPS), newest_s=_NEWEST_S).readings
    power_w = _mean(newest.column(POWER))
    cost, currency = total.cost()
    return {
        "kwh": joules / _J_OF_KWH if joules is not None else None,
        "counted_kwh": total.counted_j / _J_OF_KWH,
        "integrated_kwh": total.integrated_j / _J_OF_KWH,
        "devices": len(total.seen),
        "devices_with_counter": len(total.with_counter),
        "seen_share": total.seen_share,
        "power_w": power_w,
        "joules_per_token": joules / tokens if tokens and joules is not None else None,
        "tflops_per_watt": tflops_per_device / power_w if tflops_per_device is not None and power_w else None,
        "measured_tflops_per_device": _mean(newest.column(MEASURED_TFLOPS)),
        "cost": cost,
        "currency": currency,
        "co2e_kg": total.co2e_g / 1000 if total.with_factor and total.seen else None,
        "doubt": total.doubt() if total.seen else [_unseen(total.expected, spans[-1])],
    }


def _unseen(expected: int | None, newest: AttemptSpan) -> str:
    reasons = newest.attempt.telemetry.events().reasons
    reason = reasons.get("device") or reasons.get("collector") or "they left no reading of power or energy"
    return f"none of {expected} devices was seen: {reason}"


class _Total:
    """What the attempts add up to."""

    def __init__(self) -> None:
        self.counted_j = self.integrated_j = 0.0
        self.seen: set[tuple[int, int]] = set()
        self.with_counter: set[tuple[int, int]] = set()
        self.co2e_g = 0.0
        self.with_factor = False
        self.expected: int | None = 0
        self._covered_s = self._device_s = 0.0
        self._costs: dict[str, float] = {}
        self._unpriced_kwh = self._unfactored_kwh = 0.0
        self._damaged = 0

    def add(self, span: AttemptSpan) -> None:
        totals, damaged = span.attempt.telemetry.energy()
        self._damaged += damaged
        devices = totals.devices
        self.seen |= devices.keys()
        self.with_counter |= {place for place, device in devices.items() if device.counted_s}
        counted, integrated = (
            sum(getattr(d, name) for d in devices.values()) for name in ("counted_j", "integrated_j")
        )
        self.counted_j, self.integrated_j = self.counted_j + counted, self.integrated_j + integrated
        self._covered_s += sum(map(_covered_s, devices.values()))
        if span.devices is None or self.expected is None:
            self.expected = None
        else:
            self.expected = max(self.expected, span.devices)
            self._device_s += span.devices * max(0.0, span.ended_at - span.started_at)
        self._price((counted + integrated) / _J_OF_KWH, span.electricity)

    @property
    def seen_share(self) -> float | None:
        """Seconds with readings, of all seconds of all devices."""
        if self.expected is None or not self._device_s:
            return None
        return min(1.0, self._covered_s / self._device_s)

    def cost(self) -> tuple[float | None, str | None]:
        """Cost and currency; None where there is no price, or more than one currency."""
        if len(self._costs) != 1 or not self.seen:
            return None, None
        ((currency, cost),) = self._costs.items()
        return cost, currency

    def doubt(self) -> list[str]:
        by_power = len(self.seen) - len(self.with_counter)
        texts = [f"{len(self.with_counter)} of {len(self.seen)} devices by their energy counter"]
        if by_power:
            texts[0] += f", {by_power} by power over time, as they have no counter"
        missing = (self.expected or 0) - len(self.seen)
        if missing > 0:
            texts.append(f"{missing} of {self.expected} devices were never seen: their energy is not in it")
        share = self.seen_share
        if share is not None and share < _WHOLE:
            texts.append(f"readings cover {share:.1%} of the devices' time: the energy of the rest is not in it")
        if self._damaged:
            texts.append(f"{self._damaged} files of telemetry cannot be read")
        if len(self._costs) > 1:
            texts.append(f"no cost: the attempts have prices in {' and '.join(sorted(self._costs))}")
        elif self._costs and self._unpriced_kwh:
            texts.append(f"the cost leaves out {self._unpriced_kwh:.3g} kWh of attempts without a price")
        if self.with_factor and self._unfactored_kwh:
            texts.append(f"CO2e leaves out {self._unfactored_kwh:.3g} kWh of attempts without a factor")
        return [*texts, "hosts, network and cooling are not in it"]

    def _price(self, kwh: float, electricity: ElectricityConfig) -> None:
        if electricity.price_per_kwh is not None and electricity.currency is not None:
            costs = self._costs.get(electricity.currency, 0.0)
            self._costs[electricity.currency] = costs + kwh * electricity.price_per_kwh
        else:
            self._unpriced_kwh += kwh
        if electricity.co2e_g_per_kwh is not None:
            self.with_factor = True
            self.co2e_g += kwh * electricity.co2e_g_per_kwh
        else:
            self._unfactored_kwh += kwh


_WHOLE: Final = 0.995
"""Share of the time from which on nothing is said: the first reading comes some seconds after the start."""


def _covered_s(device: DeviceTotal) -> float:
    return device.counted_s + device.integrated_s


def _mean(values: Any) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None
