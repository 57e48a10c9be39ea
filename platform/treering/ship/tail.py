"""How far a run was shipped, and the telemetry that belongs to the rings behind that place."""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from treering.runlog.attempt import AttemptDirectory
from treering.runlog.recorded_directory import RecordedAttempt
from treering.runlog.telemetry.readings import Readings

_AHEAD_S: Final = 60.0
_LATE_S: Final = 10.0
"""Seconds that a node may be behind another one."""


@dataclass(frozen=True, slots=True)
class Position:
    """A place on a run's path.

    Attributes:
        attempt: number of the attempt.
        step: last step before the place, 0 at the attempt's start.
        digest: of that step's ring, or of the attempt's header at its start.
    """

    attempt: int
    step: int
    digest: str

    def __str__(self) -> str:
        return f"{self.attempt} {self.step} {self.digest}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Reads back what `str` wrote; None for anything else."""
        match text.split(" "):
            case [attempt, step, digest] if attempt.isdigit() and step.isdigit():
                return cls(int(attempt), int(step), digest)
        return None


class TelemetryTail:
    """Sensor readings of one attempt, averaged between one ring and the next.

    Memory counts as the highest value, everything else as the mean over time and ranks.

    Args:
        attempt: whose readings.
        since: Unix seconds; earlier readings belong to rings before.
    """

    def __init__(self, attempt: AttemptDirectory | RecordedAttempt, since: float = 0.0) -> None:
        self._telemetry = attempt.telemetry
        self._given = since
        self._read = Readings.empty()
        self._read_until = since

    def until(self, time_s: float) -> dict[str, float]:
        """Takes all readings up to a moment (Unix seconds) and reduces them; empty where there are none.

        Telemetry fails open: what cannot be read is left out.
        """
        if time_s > self._read_until:
            self._look(time_s)
        taken, self._read = self._read.between(self._given, time_s), self._read.between(time_s, np.inf)
        self._given = max(self._given, time_s)
        taken = taken.sorted()  # so that a sum of them has the same digits, wherever they were read
        known = {key: column[np.isfinite(column)] for key, column in taken.values.items()}
        return {
            key: float(column.max() if key.endswith(("memory_used", "rss")) else column.mean())
            for key, column in known.items()
            if len(column)
        }

    def _look(self, time_s: float) -> None:
        """Reads ahead of a moment, as far as no node writes any more: who is behind does not read for each ring."""
        until = time_s + _AHEAD_S
        self._read = self._telemetry.read(since=self._given, until=until).readings
        newest = float(self._read.times.max()) if len(self._read) else time_s
        self._read_until = max(time_s, min(until, newest - _LATE_S))
