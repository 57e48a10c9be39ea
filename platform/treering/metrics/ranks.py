"""Which rank computes longest: each rank's own clock, from what its telemetry kept of the newest steps.

Training is synchronous, so every rank's step takes as long as the slowest one's. What tells them apart is how long each
computed in it, and how long it waited for others.
"""

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from treering.runlog.attempt import AttemptDirectory
from treering.runlog.telemetry import STEP_METRICS, newest_rows

_TAIL_BYTES: Final = 64 << 10
"""Newest bytes that are read of each rank's file at most: some minutes of a reading a second."""
_LEAST_BYTES: Final = 4 << 10
_ALL_BYTES: Final = 32 << 20
"""Newest bytes that are read of all files together: every rank is read, of many ranks less of each."""


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


def tail_bytes(num_files: int, most: int = _TAIL_BYTES, together: int = _ALL_BYTES) -> int:
    """Newest bytes to read of each rank's file, so that all ranks are read within a limit for all together."""
    return max(_LEAST_BYTES, min(most, together // max(1, num_files)))


def rank_speeds(attempt: AttemptDirectory) -> list[RankSpeed]:
    """All ranks of an attempt whose telemetry holds steps, the one that computes longest first.

    Telemetry fails open: what cannot be read is left out.
    """
    files = attempt.telemetry_files()
    size = tail_bytes(len(files))
    speeds = [speed for path in files if (speed := _speed(path, size)) is not None]
    return sorted(speeds, key=lambda speed: (-speed.compute_s, speed.rank))


def _speed(path: Path, size: int) -> RankSpeed | None:
    rank, readings = 0, []
    for line in newest_rows(path, size):
        values = line["values"]
        if all(isinstance(values.get(key), int | float) for key in STEP_METRICS):
            rank = int(line["rank"])
            readings.append(values)
    if not readings:
        return None

    def median(key: str) -> float:
        return statistics.median(float(values[key]) for values in readings)

    return RankSpeed(
        rank=rank,
        step_s=median("rank/step"),
        compute_s=median("rank/compute"),
        communication_s=median("rank/communication"),
        tflops=median("rank/tflops"),
    )
