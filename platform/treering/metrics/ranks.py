"""Which rank computes longest: each rank's own clock, from what its telemetry kept of the newest steps.

Training is synchronous, so every rank's step takes as long as the slowest one's. What tells them apart is how long each
computed in it, and how long it waited for others.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from treering.runlog.folders import AttemptFolder
from treering.runlog.telemetry.schema import STEP_METRICS

_NEWEST_S: Final = 120.0
"""Seconds before the newest reading that are read."""
_OLD_BYTES: Final = 64 << 10
"""The same of each file of an earlier version."""


@dataclass(frozen=True, slots=True)
class RankSpeed:
    """Medians over a rank's newest readings, each the mean of a step in an interval.

    Attributes:
        rank: global rank.
        step_s: the whole step by its own clock.
        compute_s: forward, backward and optimizer, without communication.
        communication_s: blocked in collectives and transfers.
        tflops: model FLOPs of a step over devices and its own time, 10¹² a second.
    """

    rank: int
    step_s: float
    compute_s: float
    communication_s: float
    tflops: float


def rank_speeds(attempt: AttemptFolder[Any]) -> list[RankSpeed]:
    """All ranks of an attempt whose telemetry holds steps, the one that computes longest first.

    Telemetry fails open: what cannot be read is left out.
    """
    readings = attempt.telemetry.read(STEP_METRICS, newest_s=_NEWEST_S, old_bytes=_OLD_BYTES).readings
    columns = np.stack([readings.column(key) for key in STEP_METRICS])
    rows = np.flatnonzero(np.isfinite(columns).all(axis=0))
    rows = rows[np.argsort(readings.ranks[rows], kind="stable")]
    ranks, starts = np.unique(readings.ranks[rows], return_index=True)
    speeds = [
        RankSpeed(int(rank), *(float(np.median(column[own])) for column in columns))
        for rank, own in zip(ranks, np.split(rows, starts[1:]), strict=False)
    ]
    return sorted(speeds, key=lambda speed: (-speed.compute_s, speed.rank))
