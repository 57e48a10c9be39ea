"""What `treering runs` and `treering show` say about the rings of a run's path.

A short path is read ring by ring. A long one is read through its columns: what was verified once is not read again.
Where the columns meet a ring that does not hold, the path is read ring by ring too, so that the errors are the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from treering.errors import EvidenceError
from treering.metrics.alarms import LOSS, Alarm
from treering.metrics.lines.curve import curve_by_columns, curve_of
from treering.metrics.path_alarms import alarms_in, alarms_of
from treering.metrics.stored_alarms import alarms_by_columns
from treering.runlog.ancestry import PathLeft, PathSegment, path_left, segments_left
from treering.runlog.before_fault import rings_before_fault
from treering.runlog.columns.path import PathColumns
from treering.runlog.directory import RunDirectory
from treering.runlog.ring import Ring
from treering.runlog.ring_file import state_of

NEWEST_STEPS: Final = 100
"""Throughput is the median over that many of the newest steps: start-up and single slow steps do not count."""

LONG_BYTES: Final = 128 << 10
"""Rings of that many bytes are read through columns: about 150 steps, so that a list of runs is read in no time."""


@dataclass(frozen=True, slots=True)
class PathSummary:
    """The rings of a path in short.

    Attributes:
        segments: of the path, oldest first.
        missing: what is missing before them, in a sentence; empty where the path is whole.
        newest: the newest rings, oldest first.
        validation_loss: the newest held-out loss, None before the first.
        alarms: of the rules of health, in the order of their steps.
        curve: the loss in a few points, see `curve_of`.
    """

    segments: tuple[PathSegment, ...]
    missing: str
    newest: tuple[Ring, ...]
    validation_loss: float | None
    alarms: tuple[Alarm, ...]
    curve: tuple[float, ...]

    @property
    def last(self) -> Ring | None:
        """The newest ring, None before the first."""
        return self.newest[-1] if self.newest else None


def summary_of_path(run: RunDirectory, newest: int = NEWEST_STEPS) -> PathSummary:
    """The rings of a run's path in short.

    Args:
        run: the run.
        newest: how many of the newest rings.

    Raises:
        EvidenceError: a record or a ring of the run itself is missing or does not hold.
    """
    segments, missing = segments_left(run)
    if sum(state_of(segment.attempt.rings_file)[0] for segment in segments) >= LONG_BYTES:
        try:
            return _by_columns(run, tuple(segments), missing, newest)
        except EvidenceError:  # the rings say what is wrong, and which of them are left
            pass
    path = path_left(run)
    return _summary(path, alarms_of(run, path), newest)


def summary_before_fault(run: RunDirectory, problems: list[EvidenceError]) -> PathSummary:
    """The same of a path that does not hold: of the rings before its first fault.

    Args:
        run: the run.
        problems: gets what does not hold.
    """
    segments, parts, missing = rings_before_fault(run, problems)
    rings = tuple(ring for part in parts for ring in part)
    try:
        alarms = alarms_in(run, rings)
    except EvidenceError:  # the config does not hold, which the line names
        alarms = []
    return _summary(PathLeft(tuple(segments), rings, missing), alarms)


def _summary(path: PathLeft, alarms: Sequence[Alarm], newest: int = NEWEST_STEPS) -> PathSummary:
    held_out = next((ring.validation_loss for ring in reversed(path.rings) if ring.validation_loss is not None), None)
    curve = curve_of([ring.loss for ring in path.rings])
    return PathSummary(path.segments, path.missing, path.rings[-newest:], held_out, tuple(alarms), curve)


def _by_columns(run: RunDirectory, segments: tuple[PathSegment, ...], missing: str, number: int) -> PathSummary:
    columns = PathColumns.of_run(segments, whole=not missing)
    newest = tuple(columns.newest(number))
    alarms = alarms_by_columns(run, segments, columns)
    held_out, curve = columns.last("validation/loss"), curve_by_columns(columns, LOSS)
    return PathSummary(segments, missing, newest, held_out, tuple(alarms), curve)
