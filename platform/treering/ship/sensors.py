"""Sends sensor readings: of each bucket of rings one number a metric, when no earlier reading can follow any more.

A reading may reach the disk after the ring that ended later. So the readings of a bucket are sent when a ring shows
that 30 seconds have passed, or when the attempt writes no more: then a run that is sent again gets the same numbers.
They have a position of their own, in a tag of their own.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from treering.runlog.find import AnyAttempt
from treering.ship.projection import SENSORS_TAG
from treering.ship.tail import Position, TelemetryTail
from treering.ship.windows import Stretch, digest_at, holds, windows
from treering.store.memory import Writable
from treering.store.values import MAX_METRICS, Point, StoredRun

SETTLED_S: Final = 30.0
"""Seconds after which a reading is on disk."""


class SensorShipper:
    """Sends the readings of one run.

    Args:
        registry: where to.
        stored: the MLflow run.
    """

    def __init__(self, registry: Writable, stored: StoredRun) -> None:
        self._registry, self._run_id = registry, stored.run_id
        self._sent = Position.parse(stored.tags.get(SENSORS_TAG, ""))
        self._tail: tuple[int, TelemetryTail] | None = None

    def ship(self, attempts: Sequence[AnyAttempt], stretches: Sequence[Stretch], shipped: Position) -> None:
        """Sends what has settled.

        Args:
            attempts: of the run.
            stretches: of the path.
            shipped: how far the rings were sent: no readings go before them.

        Raises:
            StoreError: MLflow does not answer.
            EvidenceError: a ring was changed, removed or put in.
        """
        by_number = {attempt.number: attempt for attempt in attempts}
        sent = self._sent
        if sent is None or not holds(stretches, sent):
            sent = Position(stretches[0].attempt, 0, stretches[0].begin)
        for stretch in stretches:
            attempt = by_number[stretch.attempt]
            if sent.attempt <= stretch.attempt <= shipped.attempt and attempt.telemetry.exists():
                after = sent.step if sent.attempt == stretch.attempt else 0
                upto = shipped.step if stretch.attempt == shipped.attempt else None
                self._ship_stretch(attempt, stretch, after, upto)

    def _ship_stretch(self, attempt: Any, stretch: Stretch, after: int, upto: int | None) -> None:
        if self._tail is None or self._tail[0] != attempt.number:
            ring = stretch.columns.ring(after) if after else None
            since = float(ring.ended_at) if ring else 0.0
            self._tail = (attempt.number, TelemetryTail(attempt, since))
        newest = stretch.columns.newest(1)
        settled = newest[-1].ended_at - SETTLED_S if newest and not stretch.ended else np.inf
        points: list[Point] = []
        for window in windows(replace(stretch, ended=True), after, upto, names=()):
            for row in (np.append(window.starts[1:], len(window.steps)) - 1).tolist():
                ended_at = float(window.ended_at[row])
                if ended_at > settled:
                    break
                after = int(window.steps[row])
                values = self._tail[1].until(ended_at)
                points += [Point(key, value, after, round(ended_at * 1000)) for key, value in sorted(values.items())]
                if len(points) >= MAX_METRICS // 2:
                    self._send(points, stretch, after)
                    points = []
        self._send(points, stretch, after)

    def _send(self, points: Sequence[Point], stretch: Stretch, after: int) -> None:
        position = Position(stretch.attempt, after, digest_at(stretch, after))
        if points:
            for start in range(0, len(points), MAX_METRICS):
                self._registry.log(self._run_id, points[start : start + MAX_METRICS], {SENSORS_TAG: str(position)})
        self._sent = position
