"""What the sensors of a device say that those of the others do not: why a rank may be slow, and what will break."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from treering.metrics.device_grid import THROTTLED, XID, DeviceGrid
from treering.runlog.telemetry.events import Events
from treering.runlog.telemetry.readings import NONE, Floats

Fires = Callable[[Floats, float], npt.NDArray[np.bool_]]
"""Of the values of all cells and their median, for which cells a rule fires."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """When a reading differs from those of the others.

    Attributes:
        metric: key of the metric catalog.
        fires: for which cells.
        text: with the places {own} and {median}.
        fault: whether it is a fault by itself, also where the rank is as fast as others.
        growth: whether the growth of a counter is judged, not its value.
    """

    metric: str
    fires: Fires
    text: str
    fault: bool = False
    growth: bool = False


def _below(share: float) -> Fires:
    return lambda values, median: values < share * median


def _above(by: float) -> Fires:
    return lambda values, median: values > median + by


_RULES: Final = (
    _Rule(THROTTLED, _above(10), "clock slowed by heat or power supply in {own:.0f} % of the readings", fault=True),
    _Rule("device/sm_clock", _below(0.97), "SM clock {own:,.0f} MHz, median {median:,.0f}"),
    _Rule("device/memory_clock", _below(0.97), "memory clock {own:,.0f} MHz, median {median:,.0f}"),
    _Rule("device/power_limit", _below(0.97), "power limit {own:.0f} W, median {median:.0f}"),
    _Rule("device/power", _below(0.9), "power {own:.0f} W, median {median:.0f}"),
    _Rule("device/temperature", _above(8), "chip {own:.0f} °C, median {median:.0f}"),
    _Rule("device/memory_temperature", _above(8), "memory {own:.0f} °C, median {median:.0f}"),
    _Rule("device/ecc_uncorrected", _above(0), "uncorrected ECC errors: {own:.0f}", fault=True),
    _Rule("device/ecc_corrected", _above(0), "new corrected ECC errors: {own:.0f}", growth=True),
    _Rule("device/remapping_pending", _above(0), "a reset is due: a memory row waits for its spare", fault=True),
    _Rule("device/remapping_failed", _above(0), "no spare memory row is left: replace the device", fault=True),
    _Rule("device/pcie_replays", _above(0), "new PCIe replays: {own:.0f}", growth=True),
    _Rule("device/nvlink_errors", _above(0), "new NVLink errors: {own:.0f}", growth=True),
    _Rule(XID, _above(0), "XID errors: {own:.0f}", fault=True),
    _Rule("host/cpu_utilisation", _above(30), "CPU of the node {own:.0f} % busy, median {median:.0f}"),
)
"""Thresholds are ours: well outside what equal, healthy devices differ by under one load."""


@dataclass(frozen=True, slots=True)
class Symptom:
    """What one rule says of a cell.

    Attributes:
        text: in words, with the numbers.
        fault: whether it is a fault by itself, not only a reason for slowness.
    """

    text: str
    fault: bool


def symptoms(grid: DeviceGrid, events: Events) -> dict[int, tuple[Symptom, ...]]:
    """What differs, by number of the cell; a rank's cells have what its node says as well.

    Args:
        grid: the cells.
        events: name the codes of XID errors.
    """
    found: dict[int, list[Symptom]] = {}
    for rule in _RULES:
        values = (grid.growth if rule.growth else grid.values).get(rule.metric)
        if values is None or not np.isfinite(values).any():
            continue
        median = float(np.nanmedian(values))
        for cell in np.flatnonzero(rule.fires(values, median) & np.isfinite(values)).tolist():
            text = _xid_text(grid, cell, events) if rule.metric == XID else rule.text
            symptom = Symptom(text.format(own=float(values[cell]), median=median), rule.fault)
            for each in _reached(grid, cell):
                found.setdefault(each, []).append(symptom)
    return {cell: tuple(texts) for cell, texts in found.items()}


def _reached(grid: DeviceGrid, cell: int) -> Sequence[int]:
    """The cells that a symptom concerns: of a node's own reading all of the node."""
    if grid.ranks[cell] != NONE:
        return [cell]
    found: list[int] = np.flatnonzero(grid.nodes == grid.nodes[cell]).tolist()
    return found


def _xid_text(grid: DeviceGrid, cell: int, events: Events) -> str:
    codes: Mapping[int, None] = dict.fromkeys(
        xid.code for xid in events.xids if (xid.node, xid.device) == (grid.nodes[cell], grid.devices[cell])
    )
    return f"XID errors: {{own:.0f}} ({', '.join(map(str, codes))})"
