"""The rings on the path of another trainer's run in short: what `RunLine` and `treering show` need of them."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from treering.errors import EvidenceError
from treering.metrics.alarms import HELD_OUT_LOSS, LOSS
from treering.metrics.lines.curve import curve_by_columns, curve_of
from treering.runlog.columns.path import PathColumns
from treering.runlog.metric_catalog import described
from treering.runlog.recorded_directory import RecordedAttempt, RecordedRunDirectory, RecordedSegment
from treering.runlog.recorded_ring import RecordedRing
from treering.runlog.ring_file import state_of

LONG_BYTES: Final = 128 << 10
"""Rings of that many bytes are read through columns: some 250 steps."""

NEWEST_STEPS: Final = 320
"""Rings at hand: the background of the spike rule, and the steps that are judged against it."""


@dataclass(frozen=True, slots=True)
class RecordedPath:
    """The rings of a path in short.

    Attributes:
        newest: the newest rings, at most `NEWEST_STEPS`, oldest first.
        tokens: that the steps read, padding included; None where none reports tokens.
        all_ranks: whether they are those of all ranks; else of rank 0 alone.
        names: name of a metric, as the trainer reported it, by its key of the catalog.
        curve: the loss in a few points.
        validation_loss: the newest one; None before the first.
        segments: of the path; nothing where the records do not hold.
    """

    newest: Sequence[RecordedRing] = ()
    tokens: int | None = None
    all_ranks: bool = True
    names: dict[str, str] = field(default_factory=dict)
    curve: tuple[float, ...] = ()
    validation_loss: float | None = None
    segments: Sequence[RecordedSegment] = ()

    def value(self, ring: RecordedRing, key: str) -> float | None:
        """A metric of a ring by its key of the catalog; None where the trainer did not report it."""
        return ring.metrics.get(self.names.get(key, key))


def recorded_path(run: RecordedRunDirectory) -> RecordedPath:
    """The rings of a run's path in short.

    The tokens of several ranks are added up where all reported, for at most `SUMMED_RANKS` ranks.

    Raises:
        EvidenceError: a record or a ring does not hold.
    """
    segments = run.path_to_end()
    several = any(segment.attempt.header.world_size > 1 for segment in segments)
    if several or sum(state_of(segment.attempt.rings_file)[0] for segment in segments) >= LONG_BYTES:
        return _by_columns(segments)
    return _by_rings([ring for segment in segments for ring in segment.rings()], segments)


def path_before_fault(run: RecordedRunDirectory) -> RecordedPath:
    """The same of a run whose records do not hold: of the rings of rank 0 before the first fault of each attempt."""
    rings: list[RecordedRing] = []
    for attempt in run.attempts():
        rings += _before_fault(attempt)
    return _by_rings(rings)


def _before_fault(attempt: RecordedAttempt) -> list[RecordedRing]:
    rings: list[RecordedRing] = []
    with suppress(EvidenceError):  # `extend` keeps what came before it
        rings.extend(attempt.rings())
    return rings


def _by_columns(segments: Sequence[RecordedSegment]) -> RecordedPath:
    path = PathColumns.of_recorded(segments)
    names = _names(chain.from_iterable(columns.head().metrics for columns, _ in path.stretches))
    loss, held_out = names.get(LOSS), names.get(HELD_OUT_LOSS)
    return RecordedPath(
        newest=path.newest(NEWEST_STEPS),
        tokens=path.tokens(),
        all_ranks=path.all_ranks,
        names=names,
        curve=curve_by_columns(path, loss) if loss else (),
        validation_loss=path.last(held_out) if held_out else None,
        segments=segments,
    )


def _by_rings(rings: Sequence[RecordedRing], segments: Sequence[RecordedSegment] = ()) -> RecordedPath:
    names = _names(chain.from_iterable(ring.metrics for ring in rings))
    losses = [ring.metrics[names[LOSS]] for ring in rings if names.get(LOSS) in ring.metrics]
    held_out = [ring.metrics[names[HELD_OUT_LOSS]] for ring in rings if names.get(HELD_OUT_LOSS) in ring.metrics]
    known = [ring.tokens for ring in rings if ring.tokens is not None]
    return RecordedPath(
        newest=rings[-NEWEST_STEPS:],
        tokens=sum(known) if known else None,
        names=names,
        curve=curve_of(losses),
        validation_loss=held_out[-1] if held_out else None,
        segments=segments,
    )


def _names(reported: Iterable[str]) -> dict[str, str]:
    return {metric.key: name for name, metric in described(dict.fromkeys(reported)).items()}
