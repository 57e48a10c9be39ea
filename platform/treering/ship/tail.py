"""Reads what is new in a run's log: rings on the run's own path, and the telemetry that belongs to them.

Each file is read once from where the last look ended; a line without its newline is left for the next look.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from treering.errors import EvidenceError
from treering.files import open_regular
from treering.runlog.ancestry import PathSegment
from treering.runlog.attempt import AttemptDirectory
from treering.runlog.directory import RunDirectory
from treering.runlog.ring import Ring
from treering.runlog.ring_log import Place


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
    """

    def __init__(self, attempt: AttemptDirectory) -> None:
        self._attempt = attempt
        self._offsets: dict[Path, int] = {}
        self._waiting: list[tuple[float, Mapping[str, Any]]] = []

    def until(self, time_s: float) -> dict[str, float]:
        """Takes all readings up to a moment (Unix seconds) and reduces them; empty where there are none.

        Telemetry fails open: lines that cannot be read are skipped.
        """
        if not self._waiting or self._waiting[-1][0] <= time_s:
            self._look()
        taken = [values for time, values in self._waiting if time <= time_s]
        self._waiting = self._waiting[len(taken) :]
        columns: dict[str, list[float]] = {}
        for values in taken:
            for key, value in values.items():
                if isinstance(value, int | float):
                    columns.setdefault(key, []).append(float(value))
        return {
            key: max(column) if key.endswith(("memory_used", "rss")) else sum(column) / len(column)
            for key, column in columns.items()
        }

    def _look(self) -> None:
        for path in self._attempt.telemetry_files():
            with open_regular(path) as file:
                file.seek(self._offsets.get(path, 0))
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._offsets[path] = self._offsets.get(path, 0) + len(line)
                    try:
                        row = json.loads(line)
                        self._waiting.append((float(row["time"]), row["values"]))
                    except (ValueError, KeyError, TypeError):
                        continue
        self._waiting.sort(key=lambda entry: entry[0])
