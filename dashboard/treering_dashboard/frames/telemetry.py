"""What sensors saw while a step ran: readings of all ranks, brought onto the steps of the path.

Telemetry fails open: a line that cannot be read is left out. Every rank is read; of long files only the newest part,
and of many ranks less of each. Readings are joined to the step that was under way when they were taken.

Sensors (utilisation, power and memory of the devices, without one CPU and memory; what each rank computes in a step)
are drawn at the step that ran when they were read: mean over all ranks, band from lowest to highest. Below are how many
ranks of how many have readings, and the rank that computes longest. The newest 4 MiB of each rank's file are read, of
many ranks less of each (32 MiB together), and the page says how much.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from treering.metrics.ranks import RankSpeed, rank_speeds, tail_bytes
from treering.runlog.directory import RunDirectory
from treering.runlog.telemetry import newest_rows
from treering_dashboard.frames.rings import FACTS, column

MAX_BYTES: Final = 4 << 20
"""Newest bytes that are read of each file at most: some five hours of a reading a second."""
ALL_BYTES: Final = 32 << 20
"""Newest bytes that are read of all files of an attempt together."""

DEVICE: Final = ("device/utilisation", "device/power", "device/memory_used")
HOST: Final = ("host/cpu_utilisation", "host/memory_used", "process/rss")
"""What is drawn of ranks that compute on a device, and of ranks that compute on the processor."""
RANK: Final = ("rank/compute",)
"""What is drawn of all ranks: the highest is the rank that the others wait for."""


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Readings of a run.

    Attributes:
        steps: one row a step that has readings: the facts of `RunFrames.path`, and for each metric `m` the mean over
            ranks and time `m`, the lowest reading `m_min` and the highest `m_max`.
        keys: keys of the metric catalog of the metrics that were read, as far as they are drawn.
        reasons: why a reading is missing, by metric.
        ranks: how many ranks left readings.
        world_size: how many ranks the newest attempt has, 0 where its header does not hold.
        speeds: of every rank of the newest attempt that reported steps, the one that computes longest first.
        read_bytes: newest bytes that were read of each file of the newest attempt.
        file_bytes: size of its longest file.
        dropped: readings that the sampler lost.
    """

    steps: pd.DataFrame
    keys: tuple[str, ...]
    reasons: dict[str, str]
    ranks: int
    world_size: int
    speeds: tuple[RankSpeed, ...]
    read_bytes: int
    file_bytes: int
    dropped: int


def read_telemetry(run: RunDirectory, path: pd.DataFrame) -> Telemetry:
    """Reads the sensor files of the attempts on the path.

    Args:
        run: whose files.
        path: `RunFrames.path` of the same run.
    """
    readings: list[dict[str, float]] = []
    reasons: dict[str, str] = {}
    ranks: set[object] = set()
    dropped = 0
    attempts = set(path["attempt"]) if len(path) else set()
    own = run.attempts()
    read_bytes = 0
    for attempt in own:
        if attempt.number not in attempts:
            continue
        files = attempt.telemetry_files()
        read_bytes = tail_bytes(len(files), MAX_BYTES, ALL_BYTES)
        for file in files:
            lost = 0
            for line in newest_rows(file, read_bytes):
                ranks.add(line.get("rank"))
                reasons.update(line.get("reasons") or {})
                lost = line.get("dropped") or lost
                values = line["values"].items()
                numbers = {column(key): float(value) for key, value in values if isinstance(value, int | float)}
                readings.append({"time": float(line["time"]), "of": attempt.number, **numbers})
            dropped += lost
    frame = pd.DataFrame(readings)
    device, host, rank = (
        tuple(key for key in keys if column(key) in frame and frame[column(key)].notna().any())
        for keys in (DEVICE, HOST, RANK)
    )
    keys = (device or host) + rank
    steps = _by_step(frame, path, [column(key) for key in keys]) if keys else path.iloc[:0][list(FACTS)]
    newest = own[-1] if own else None
    return Telemetry(
        steps=steps,
        keys=keys,
        reasons=reasons,
        ranks=len(ranks),
        world_size=newest.header.layout.world_size if newest is not None and newest.has_header else 0,
        speeds=tuple(rank_speeds(newest)) if newest is not None else (),
        read_bytes=read_bytes,
        file_bytes=max((file.stat().st_size for file in newest.telemetry_files()), default=0) if newest else 0,
        dropped=dropped,
    )


def _by_step(readings: pd.DataFrame, path: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Mean, lowest and highest reading of each step; what was read before or after all steps is left out."""
    placed = []
    for attempt, rings in path.groupby("attempt", sort=False):
        own = readings[readings["of"] == attempt]
        begin = rings["ended_at"].iloc[0] - (rings["time_step"].iloc[0] if "time_step" in rings else 0.0)
        rows = np.searchsorted(rings["ended_at"].to_numpy(), own["time"].to_numpy())
        inside = (rows < len(rings)) & (own["time"].to_numpy() >= begin)
        placed.append(own[inside].assign(step=rings["step"].to_numpy()[rows[inside]]))
    grouped = pd.concat(placed).groupby("step")[names]
    parts = [grouped.mean(), grouped.min().add_suffix("_min"), grouped.max().add_suffix("_max")]
    return path[list(FACTS)].merge(pd.concat(parts, axis=1), left_on="step", right_index=True, how="inner")
