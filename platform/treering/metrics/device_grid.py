"""One number for each device of a run at a moment: what its sensors read over the newest minute.

A cell is a rank's device, a rank that computes on the processor, or a node with its own readings. Counters keep their
newest reading, and throttling is the share of readings in which the driver slowed the clock for heat or power supply.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from treering.runlog.telemetry.events import Events
from treering.runlog.telemetry.readings import Floats, Ints, Readings

THROTTLED: Final = "device/throttle_reasons"
XID: Final = "device/xid"
COUNTERS: Final = frozenset(
    {
        "device/ecc_corrected", "device/ecc_uncorrected", "device/retired_pages", "device/remapped_rows",
        "device/remapping_pending", "device/remapping_failed", "device/nvlink_errors", "device/pcie_replays",
        "device/energy",
    }
)  # fmt: skip
"""Series whose newest reading counts, not their mean."""
SLOWDOWNS: Final = 0x08 | 0x20 | 0x40 | 0x80
"""Bits of `device/throttle_reasons`: hardware slowdown, software and hardware thermal slowdown, power brake. A board at
its power limit (0x04) is not among them: it is usual under load.

Source: `nvmlClocksEventReason*` in NVIDIA's nvml.h.
"""


@dataclass(frozen=True, slots=True)
class DeviceGrid:
    """The cells of a run; all arrays have one entry a cell, by node, rank and device.

    Attributes:
        nodes: number of the node, the lowest rank on it.
        ranks: global rank, -1 for a node's own readings.
        devices: NVML's index, -1 without a device.
        values: by key of the metric catalog; NaN where there is no reading. `THROTTLED` in percent of the readings,
            `XID` as the number of errors of the attempt.
        growth: of counters, how much each grew while it was read.
    """

    nodes: Ints
    ranks: Ints
    devices: Ints
    values: Mapping[str, Floats]
    growth: Mapping[str, Floats]

    @classmethod
    def of(cls, readings: Readings, events: Events) -> Self:
        """The cells of readings, which are best those of a minute."""
        every = readings.sorted()
        keys = np.stack([every.nodes, every.ranks, every.devices])
        begins = np.ones(len(every), bool)
        begins[1:] = np.any(np.diff(keys, axis=1), axis=0)
        starts = np.flatnonzero(begins)
        of_row, size = np.cumsum(begins) - 1, len(starts)
        nodes, ranks, devices = keys[:, starts]
        values, growth = {}, {}
        for name, column in every.values.items():
            rows = np.flatnonzero(np.isfinite(column))
            if not len(rows):
                continue
            own, cells = column[rows], of_row[rows]
            if name in COUNTERS:
                first, last = np.full(size, np.nan), np.full(size, np.nan)
                first[cells[::-1]], last[cells] = own[::-1], own  # rows are in order of time
                values[name], growth[name] = last, last - first
                continue
            if name == THROTTLED:
                own = 100.0 * ((own.astype(np.int64) & SLOWDOWNS) != 0)
            counts = np.bincount(cells, minlength=size)
            sums = np.bincount(cells, own, size)
            values[name] = np.divide(sums, counts, out=np.full(size, np.nan), where=counts > 0)
        values[XID] = _xids(events, nodes, devices)
        return cls(nodes, ranks, devices, values, growth)

    def __len__(self) -> int:
        return len(self.nodes)

    def known(self) -> list[str]:
        """The metrics that any cell has, in the order of the readings."""
        return [name for name, column in self.values.items() if np.isfinite(column).any()]

    def columns_of(self, name: str) -> tuple[Ints, Ints]:
        """The cells that a metric has, and the place of each on its node, from 0."""
        cells = np.flatnonzero(np.isfinite(self.values[name]))
        begins = np.ones(len(cells), bool)
        begins[1:] = np.diff(self.nodes[cells]) != 0
        starts = np.flatnonzero(begins)
        return cells, np.arange(len(cells)) - starts[np.cumsum(begins) - 1]


def _xids(events: Events, nodes: Ints, devices: Ints) -> Floats:
    """How many XID errors each device had; NaN for cells without a device."""
    counts: dict[tuple[int, int], int] = {}
    for xid in events.xids:
        counts[xid.node, xid.device] = counts.get((xid.node, xid.device), 0) + 1
    pairs = zip(nodes.tolist(), devices.tolist(), strict=True)
    return np.array([counts.get(pair, 0.0) if pair[1] >= 0 else np.nan for pair in pairs], np.float64)
