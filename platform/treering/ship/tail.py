"""Reads what is new in a run's log: rings on the run's own path, and the telemetry that belongs to them.

Each file is read once from where the last look ended; a line without its newline is left for the next look.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from treering.errors import EvidenceError
from treering.runlog.ancestry import PathSegment
from treering.runlog.attempt import AttemptDirectory
from treering.runlog.directory import RunDirectory
from treering.runlog.ring import Ring
from treering.runlog.ring_log import Place
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


def own_segments(run: RunDirectory) -> list[PathSegment]:
    """The stretches of a run's current path in the run itself; it may start from another run, here or missing."""
    return run.path_to(own=True)


def is_on_path(position: Position, segments: list[PathSegment]) -> bool:
    """Whether what was shipped up to `position` is still part of the path.

    Raises:
        EvidenceError: a ring before it was changed.
    """
    for segment in segments:
        attempt = segment.attempt
        if attempt.number != position.attempt:
            continue
        if position.step == 0:
            return attempt.header_digest == position.digest
        if not segment.holds(position.attempt, position.step):
            return False
        return any(ring.step == position.step and ring.digest == position.digest for ring in attempt.rings())
    return False


class RingTail:
    """New rings on a run's path, in order, each with its attempt."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._position: Position | None = None
        self._header = ""
        self._place = Place("")

    @property
    def position(self) -> Position | None:
        """After the last ring that was given out; None before the first attempt."""
        return self._position

    def rewound(self, segments: list[PathSegment]) -> bool:
        """Whether rings that were returned before are no longer on the path."""
        position = self._position
        if position is None:
            return False
        for segment in segments:
            if segment.attempt.number == position.attempt:
                ended = not segment.holds(position.attempt, position.step)
                return ended or not self._starts_with_same_header(segment.attempt)
        return True

    def new_rings(self, segments: list[PathSegment]) -> Iterator[tuple[AttemptDirectory, Ring]]:
        """The rings since the last call.

        Args:
            segments: the path, of which nothing that was given out has been taken back (`rewound` is False).

        Raises:
            EvidenceError: a ring was changed, removed or put in.
        """
        for segment in segments:
            attempt = segment.attempt
            if self._position is not None and attempt.number < self._position.attempt:
                continue
            if self._position is None or attempt.number != self._position.attempt:
                self._position = Position(attempt.number, 0, attempt.header_digest)
                self._header = attempt.header_digest
                self._place = Place(self._header)
            for ring in self._read(segment):
                yield attempt, ring

    def _read(self, segment: PathSegment) -> Iterator[Ring]:
        attempt, last_step = segment.attempt, segment.last_step
        if last_step is not None and self._position is not None and self._position.step >= last_step:
            return
        for ring, place in attempt.ring_log.after(self._place):
            self._position, self._place = Position(attempt.number, ring.step, ring.digest), place
            yield ring
            if ring.step == last_step:
                return

    def _starts_with_same_header(self, attempt: AttemptDirectory) -> bool:
        try:
            return attempt.header_digest == self._header
        except EvidenceError:
            return False


class TelemetryTail:
    """Sensor readings of one attempt, averaged between one ring and the next.

    Memory counts as the highest value, everything else as the mean over time and ranks.

    Args:
        attempt: whose readings.
        since: Unix seconds; earlier readings belong to rings before.
    """

    def __init__(self, attempt: AttemptDirectory, since: float = 0.0) -> None:
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
