"""What sensors saw while a step ran: readings of all ranks, brought onto the steps of the path.

Telemetry fails open: what cannot be read is left out and counted. Readings are joined to the step that was under way
when they were taken.

Sensors (utilisation, power and memory of the devices, without one CPU and memory; what each rank computes in a step)
are drawn at the step that ran when they were read: mean over all ranks, band from lowest to highest. Below are how many
ranks of how many have readings, and the rank that computes longest. The newest two million readings of an attempt are
read one by one; earlier ones by the minute, from the roll-up.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pandas as pd

from treering.errors import EvidenceError
from treering.metrics.ranks import RankSpeed, rank_speeds
from treering.runlog.find import AnyRun
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering.runlog.telemetry.reading import TelemetryFolder
from treering_dashboard.frames.curves import FACTS, Curves

MOST_ROWS: Final = 2_000_000
"""Readings of an attempt that are read one by one."""

DEVICE: Final = (
    "device/utilisation",
    "device/tensor_tflops",
    "device/power",
    "device/temperature",
    "device/sm_clock",
    "device/memory_used",
)
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
        by_minute: readings that were read by the minute.
        cut: whether earlier readings are left out, of files of an earlier version.
        damaged: files that cannot be read.
        dropped: readings that the collectors lost.
    """

    steps: pd.DataFrame
    keys: tuple[str, ...]
    reasons: dict[str, str]
    ranks: int
    world_size: int
    speeds: tuple[RankSpeed, ...]
    by_minute: int
    cut: bool
    damaged: int
    dropped: int


def column(key: str) -> str:
    """Column of a key of the metric catalog; charts cannot name a field with a slash or a dot without escapes."""
    return key.replace("/", "_").replace(".", "_")


def read_telemetry(run: AnyRun, curves: Curves) -> Telemetry:
    """Reads the sensors of the attempts on the path.

    Args:
        run: whose files.
        curves: `RunFrames.path` of the same run.
    """
    frames = []
    reasons: dict[str, str] = {}
    ranks: set[int] = set()
    dropped = damaged = by_minute = 0
    cut = False
    attempts = curves.attempts
    own = run.attempts()
    for attempt in own:
        if attempt.number not in attempts:
            continue
        found = attempt.telemetry.read((*DEVICE, *HOST, *RANK), most_rows=MOST_ROWS)
        readings = found.readings
        values = {column(key): series for key, series in readings.values.items()}
        frames.append(pd.DataFrame({"time": readings.times, "of": attempt.number, **values}))
        if found.left_out:
            until = float(readings.times.min()) if len(readings) else math.inf
            frames.append(_by_minute(attempt.telemetry, until).assign(of=attempt.number))
        ranks.update(np.unique(readings.ranks[readings.ranks >= 0]).tolist())
        events = attempt.telemetry.events()
        reasons |= events.reasons
        cut = cut or found.cut
        dropped, damaged, by_minute = dropped + events.lost, damaged + found.damaged, by_minute + found.left_out
    frame = pd.concat(frames) if frames else pd.DataFrame()
    device, host, rank = (
        tuple(key for key in keys if column(key) in frame and frame[column(key)].notna().any())
        for keys in (DEVICE, HOST, RANK)
    )
    keys = (device or host) + rank
    nothing = curves.frame(np.zeros(0, np.int64))
    steps = _by_step(frame, curves, [column(key) for key in keys]) if keys else nothing
    newest = own[-1] if own else None
    return Telemetry(
        steps=steps,
        keys=keys,
        reasons=reasons,
        ranks=len(ranks),
        world_size=_world_size(run),
        speeds=tuple(rank_speeds(newest)) if newest is not None else (),
        by_minute=by_minute,
        cut=cut,
        damaged=damaged,
        dropped=dropped,
    )


def _world_size(run: AnyRun) -> int:
    """How many ranks the newest attempt has, 0 where its header does not hold."""
    try:
        if isinstance(run, RecordedRunDirectory):
            return run.attempts()[-1].header.world_size
        return run.attempts()[-1].header.layout.world_size
    except (EvidenceError, IndexError):
        return 0


def _by_minute(telemetry: TelemetryFolder, until: float) -> pd.DataFrame:
    """The roll-up of whole minutes before a moment, at their ends: mean, lowest and highest in columns of their own."""
    rows: dict[int, dict[str, float]] = {}
    for minute in telemetry.minutes((*DEVICE, *HOST, *RANK)):
        if minute.began + 60 <= until:
            name = column(minute.metric)
            values = {name: minute.mean, f"{name}_min": minute.low, f"{name}_max": minute.high}
            rows.setdefault(minute.began, {"time": minute.began + 60.0}).update(values)
    return pd.DataFrame(list(rows.values()), columns=None if rows else ["time"])


def _by_step(readings: pd.DataFrame, curves: Curves, names: list[str]) -> pd.DataFrame:
    """Mean, lowest and highest reading of each step; what was read before or after all steps is left out.

    Only the rows that have readings become a frame: a path may have a million.
    """
    attempts, ended = curves.fact("attempt"), curves.fact("ended_at")
    first_s = np.nan_to_num(curves.series("time/step").values) if "time/step" in curves else np.zeros(len(curves))
    borders = np.flatnonzero(np.diff(attempts, prepend=-1, append=-1)).tolist()
    placed = []
    for start, end in pairwise(borders):
        own = readings[readings["of"] == attempts[start]]
        times = own["time"].to_numpy()
        rows = start + np.searchsorted(ended[start:end], times)
        inside = (rows < end) & (times >= ended[start] - first_s[start])
        placed.append(own[inside].assign(row=rows[inside]))
    every = pd.concat(placed)
    ends = {f"{name}{end}": name for name in names for end in ("_min", "_max")}
    every = every.assign(
        **{end: every[end].fillna(every[name]) if end in every else every[name] for end, name in ends.items()}
    )
    grouped = every.groupby("row")
    lowest, highest = ([f"{name}{end}" for name in names] for end in ("_min", "_max"))
    parts = [grouped[names].mean(), grouped[lowest].min(), grouped[highest].max()]
    values = pd.concat(parts, axis=1)
    facts = FACTS if curves.cumulative else [name for name in FACTS if name != "samples"]  # see `axes_of`
    return curves.frame(values.index.to_numpy(), facts).join(values.reset_index(drop=True))
