"""The devices of a run as a grid of nodes and devices, its ranks over the steps, and the ranks that are behind."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd

from treering.metrics.device_grid import COUNTERS, THROTTLED, XID
from treering.metrics.stragglers import RankSteps, Straggler
from treering.runlog.metric_catalog import METRICS
from treering_dashboard.frames.cluster import Cluster
from treering_dashboard.panels.heat_maps import HeatMap, limits
from treering_dashboard.panels.text import NOTHING, count, number, plural

QUANTITIES: Final = (
    "rank/compute", "rank/step", "rank/communication", "rank/tflops", "device/utilisation", "device/tensor_tflops",
    "device/tensor_activity", "device/sm_activity", "device/power", "device/power_limit", "device/temperature",
    "device/memory_temperature", "device/memory_used", "device/memory_utilisation", "device/sm_clock",
    "device/memory_clock", THROTTLED, "device/ecc_corrected", "device/ecc_uncorrected", "device/retired_pages",
    "device/remapped_rows", "device/remapping_pending", "device/remapping_failed", XID, "device/nvlink_sent",
    "device/nvlink_received", "device/nvlink_errors", "device/pcie_sent", "device/pcie_received",
    "device/pcie_replays", "process/cpu_utilisation", "process/rss", "host/cpu_utilisation", "host/memory_used",
    "host/disk_free", "host/network_received", "host/network_sent",
)  # fmt: skip
"""What the grid can show, in the order of the box."""

_ROWS: Final = 128
"""Ranks that have a column of their own over the steps; more share one with their node."""
_ROW_HEIGHT: Final = 20


def title(metric: str) -> str:
    """Name of a quantity."""
    return {THROTTLED: "Clock slowed", XID: "XID errors"}.get(metric, METRICS[metric].title)


TITLES: Final = {title(metric): metric for metric in QUANTITIES}
"""Quantities by their names, which the address has."""


def _unit(metric: str) -> str:
    return {THROTTLED: "%", "device/memory_used": "B"}.get(metric, METRICS[metric].unit.replace("bytes", "B"))


def grid_map(cluster: Cluster, metric: str) -> HeatMap:
    """Nodes beside each other, the devices of each below each other."""
    grid, unit = cluster.grid, _unit(metric)
    cells, rows = grid.columns_of(metric)
    values = grid.values[metric][cells]
    whole = metric in COUNTERS or metric == XID
    low, high = limits(values)
    frame = pd.DataFrame(
        {
            "x": [cluster.host(node) for node in grid.nodes[cells].tolist()],
            "y": [str(row) for row in rows.tolist()],
            "value": values,
            "rank": [_place(rank, "rank") for rank in grid.ranks[cells].tolist()],
            "device": [_place(device, "device") for device in grid.devices[cells].tolist()],
            "reading": [count(int(value)) if whole else number(value, unit) for value in values.tolist()],
        }
    ).sort_values("y", kind="stable", key=lambda column: column.astype(int) if column.name == "y" else column)
    return HeatMap(
        name=title(metric),
        frame=frame,
        x="node",
        y="device of the node",
        unit=unit,
        low=low,
        high=high,
        tooltip="{@x}<br>{@device} {@rank}<br><b>{@reading}</b>",
        height=90 + _ROW_HEIGHT * max(2, len(set(rows.tolist()))),
    )


def _place(value: int, noun: str) -> str:
    return f"{noun} {value}" if value >= 0 else ""


def steps_map(cluster: Cluster, metric: str) -> HeatMap:
    """Ranks, or the slowest rank of each node, beside each other; the newest steps below each other.

    Colours are distances from the median of a rank's peers in the same steps: a step that is slow for all is not seen.
    """
    steps = cluster.steps[metric]
    excess = 100.0 * steps.excess()
    groups, names = _groups(cluster, steps)
    worse = -1.0 if METRICS[metric].better == "higher" else 1.0
    rows = _worst(excess * worse, groups)
    columns = np.arange(excess.shape[1])
    values, seconds = excess[rows, columns], steps.values[rows, columns]
    unit = _unit(metric)
    at_row, at_column = np.nonzero(np.isfinite(values))
    known, read = values[at_row, at_column], seconds[at_row, at_column]
    low, high = limits(known)
    frame = pd.DataFrame(
        {
            "x": [names[place] for place in at_row.tolist()],
            "y": [count(int(steps.steps[place])) for place in at_column.tolist()],
            "value": known,
            "rank": steps.ranks[rows[at_row, at_column]],
            "reading": [number(value, unit) for value in read.tolist()],
            "distance": [f"{value:+.1f} %" for value in known.tolist()],
        }
    )
    order = {name: place for place, name in enumerate(names)}
    frame = frame.iloc[np.lexsort((frame["x"].map(order), at_column))]
    return HeatMap(
        name=f"{title(metric)} over the steps",
        frame=frame,
        x="node, its slowest rank" if len(names) < len(steps.ranks) else "rank",
        y="step",
        unit="%",
        low=low,
        high=high,
        tooltip="{@x}, step {@y}<br>rank {@rank}<br><b>{@distance}</b> of the median, {@reading}",
        height=90 + max(60, min(300, 8 * len(steps.steps))),
    )


def _groups(cluster: Cluster, steps: RankSteps) -> tuple[list[np.ndarray], list[str]]:
    """Rows that share a column, and the columns' names."""
    if len(steps.ranks) <= _ROWS:
        return [np.array([row]) for row in range(len(steps.ranks))], [str(rank) for rank in steps.ranks.tolist()]
    first = {rank: node for node, rank in zip(cluster.grid.nodes.tolist(), cluster.grid.ranks.tolist(), strict=True)}
    nodes = np.array([first.get(rank, -1) for rank in steps.ranks.tolist()])
    found = np.unique(nodes)
    return [np.flatnonzero(nodes == node) for node in found], [
        cluster.host(node) if node >= 0 else "no longer seen" for node in found.tolist()
    ]


def _worst(excess: np.ndarray, groups: Sequence[np.ndarray]) -> np.ndarray:
    """Of each group and column the row with the highest value."""
    known = np.where(np.isfinite(excess), excess, -np.inf)
    return np.stack([rows[np.argmax(known[rows], axis=0)] for rows in groups])


def verdict(cluster: Cluster) -> str:
    """The slowest rank in a sentence, and what its sensors say; or that none stands out."""
    if not cluster.ranks:
        return "No rank has reported the time of a step."
    worst = cluster.ranks[0]
    if not worst.flagged:
        beyond = "" if math.isnan(worst.excess) else f", {worst.excess:+.1%} of its peers' median"
        every = plural(len(cluster.ranks), "rank")
        return f"No rank stands out among {every}: rank {worst.rank} computes longest{beyond}."
    sentence = (
        f"{name(cluster, worst)} computes {worst.excess:.1%} longer than its peers, {number(worst.seconds, 's')} a "
        f"step, in {worst.behind} of {worst.seen} looks; all ranks wait for it. Why: {reason(cluster, worst)}."
    )
    more = len(cluster.flagged) - 1
    return sentence if not more else f"{sentence} {plural(more, 'more rank')} behind."


def name(cluster: Cluster, straggler: Straggler) -> str:
    """Rank, node and device."""
    if straggler.cell < 0:
        return f"Rank {straggler.rank}"
    grid = cluster.grid
    device = f" device {grid.devices[straggler.cell]}" if grid.devices[straggler.cell] >= 0 else ""
    return f"Rank {straggler.rank} ({cluster.host(int(grid.nodes[straggler.cell]))}{device})"


def reason(cluster: Cluster, straggler: Straggler) -> str:
    """Why a rank is behind, as far as its sensors say."""
    texts = [symptom.text for symptom in straggler.symptoms]
    if straggler.cell >= 0 and (node := int(cluster.grid.nodes[straggler.cell])) in cluster.slow_nodes:
        texts.insert(0, f"all {cluster.slow_nodes[node]} ranks of the node are behind")
    if texts:
        return "; ".join(texts)
    if straggler.cell >= 0 and cluster.grid.devices[straggler.cell] >= 0:
        return "its sensors read as those of the others; compare its software and network"
    return "not seen: no sensor of a device was read"


def worst_ranks(cluster: Cluster, most: int) -> pd.DataFrame:
    """The slowest ranks, the slowest first."""
    return pd.DataFrame(
        [
            {
                "": "▲ behind" if each.flagged else "",
                "Rank": str(each.rank),
                "Node": cluster.host(int(cluster.grid.nodes[each.cell])) if each.cell >= 0 else NOTHING,
                "Device": _known(cluster, each),
                "Computes": number(each.seconds, "s"),
                "Above peers": NOTHING if math.isnan(each.excess) else f"{each.excess:+.1%}",
                "Distance": NOTHING if math.isnan(each.score) else f"{each.score:.1f}",
                "Behind in": f"{each.behind} of {each.seen}",
                "Reason": reason(cluster, each) if each.flagged or each.symptoms else "",
            }
            for each in cluster.ranks[:most]
        ]
    )


def _known(cluster: Cluster, straggler: Straggler) -> str:
    device = int(cluster.grid.devices[straggler.cell]) if straggler.cell >= 0 else -1
    return str(device) if device >= 0 else NOTHING


def faults(cluster: Cluster) -> pd.DataFrame:
    """Devices with a fault by itself, whether they are slow or not."""
    grid = cluster.grid
    return pd.DataFrame(
        [
            {
                "Node": cluster.host(int(grid.nodes[cell])),
                "Device": _place(int(grid.devices[cell]), "device"),
                "Rank": _place(int(grid.ranks[cell]), "rank"),
                "Fault": "; ".join(symptom.text for symptom in found if symptom.fault),
            }
            for cell, found in sorted(cluster.symptoms.items())
            if any(symptom.fault for symptom in found)
        ]
    )
