"""What `treering runs` and `treering show` say about the rings of a run's path.

A short path is read ring by ring. A long one is read through its columns: what was verified once is not read again.
Where the columns meet a ring that does not hold, the path is read ring by ring too, so that the errors are the same.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

from treering.errors import EvidenceError
from treering.metrics.alarms import Alarm
from treering.metrics.path_alarms import alarms_of
from treering.metrics.stored_alarms import alarms_by_columns
from treering.runlog.ancestry import PathLeft, PathSegment, path_left, segments_left
from treering.runlog.columns.path import PathColumns
from treering.runlog.directory import RunDirectory
from treering.runlog.ring import Ring
from treering.runlog.ring_file import state_of

NEWEST_STEPS: Final = 100
"""Throughput is the median over that many of the newest steps: start-up and single slow steps do not count."""

LONG_BYTES: Final = 4 << 20
"""Rings of that many bytes are read through columns: about 5,000 steps, which are read one by one in 0.2 s."""


@dataclass(frozen=True, slots=True)
class PathSummary:
    """The rings of a path in short.

    Attributes:
        segments: of the path, oldest first.
        missing: what is missing before them, in a sentence; empty where the path is whole.
        newest: the newest rings, at most `NEWEST_STEPS`, oldest first.
        validation_loss: the newest held-out loss, None before the first.
        alarms: of the rules of health, in the order of their steps.
    """

    segments: tuple[PathSegment, ...]
    missing: str
    newest: tuple[Ring, ...]
    validation_loss: float | None
    alarms: tuple[Alarm, ...]

    @property
    def last(self) -> Ring | None:
        """The newest ring, None before the first."""
        return self.newest[-1] if self.newest else None


def summary_of_path(run: RunDirectory) -> PathSummary:
    """The rings of a run's path in short.

    Raises:
        EvidenceError: a record or a ring of the run itself is missing or does not hold.
    """
    segments, missing = segments_left(run)
    if sum(state_of(segment.attempt.rings_file)[0] for segment in segments) >= LONG_BYTES:
        try:
            return _by_columns(run, tuple(segments), missing)
        except EvidenceError:  # the rings say what is wrong, and which of them are left
            pass
    return _by_rings(run, path_left(run))


def _by_rings(run: RunDirectory, path: PathLeft) -> PathSummary:
    newest: deque[Ring] = deque(maxlen=NEWEST_STEPS)
    validation_loss = None
    for ring in path.rings:
        newest.append(ring)
        validation_loss = validation_loss if ring.validation_loss is None else ring.validation_loss
    return PathSummary(path.segments, path.missing, tuple(newest), validation_loss, tuple(alarms_of(run, path)))


def _by_columns(run: RunDirectory, segments: tuple[PathSegment, ...], missing: str) -> PathSummary:
    columns = PathColumns.of_run(segments, whole=not missing)
    newest = tuple(columns.newest(NEWEST_STEPS))
    alarms = alarms_by_columns(run, segments, columns)
    return PathSummary(segments, missing, newest, columns.last("validation/loss"), tuple(alarms))
