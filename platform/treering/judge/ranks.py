"""Which rank computes longest: each rank's own clock, from what its telemetry kept of the newest steps.

Training is synchronous, so every rank's step takes as long as the slowest one's. What tells them apart is how long each
computed in it, and how long it waited for others.
"""

import json
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from treering.runlog.directory import AttemptDirectory

_TAIL_BYTES: Final = 64 << 10
"""Newest bytes that are read of each rank's file: some minutes of a reading a second."""


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


def rank_speeds(attempt: AttemptDirectory) -> list[RankSpeed]:
    """The ranks of an attempt whose telemetry holds steps, the one that computes longest first.

    Telemetry fails open: what cannot be read is passed over.
    """
    speeds = [speed for path in attempt.telemetry_files() if (speed := _speed(path)) is not None]
    return sorted(speeds, key=lambda speed: (-speed.compute_s, speed.rank))


def _speed(path: Path) -> RankSpeed | None:
    rank, readings = 0, []
    for line in _newest(path):
        values = line["values"]
        if "rank/step" in values:
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


def _newest(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL_BYTES))
            lines = file.read().split(b"\n")
    except OSError:
        return
    for line in lines[1 if size > _TAIL_BYTES else 0 : -1]:
        try:
            row = json.loads(line)
            row["values"].items()
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
        yield row
