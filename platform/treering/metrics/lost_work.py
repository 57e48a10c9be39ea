"""What the restarts of a run cost, and where no step came for long: from the times of its rings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from treering.metrics.state import STALL_FLOOR_S, STALL_STEPS
from treering.runlog.columns.attempt import AttemptColumns
from treering.runlog.columns.rows import METRIC_PREFIX, Floats, Integers
from treering.runlog.find import AnyAttempt
from treering.runlog.recorded_directory import RecordedAttempt

_PAUSES: Final = (f"{METRIC_PREFIX}time/validation", f"{METRIC_PREFIX}time/checkpoint")
_BLOCK: Final = 20
"""Steps whose median a pause is compared with."""


@dataclass(frozen=True, slots=True)
class AttemptTimes:
    """When the steps of an attempt ended.

    Attributes:
        number: of the attempt.
        started_at: Unix seconds.
        world_size: how many ranks it has.
        parent: attempt of the same run and step that it goes on from; step 0 at the beginning.
        steps: of its rings.
        ended_at: Unix seconds of each.
        known_pauses_s: validation and saving beside each step.
    """

    number: int
    started_at: float
    world_size: int
    parent: tuple[int, int]
    steps: Integers
    ended_at: Floats
    known_pauses_s: Floats

    @classmethod
    def of(cls, attempt: AnyAttempt) -> "AttemptTimes":
        """Reads an attempt.

        Raises:
            EvidenceError: its header or a ring does not hold.
        """
        steps, series = AttemptColumns(attempt).series(["ended_at", *_PAUSES])
        pauses = np.sum([np.nan_to_num(series[name].values) for name in _PAUSES], axis=0)
        size, parent = _header(attempt)
        ended_at = series["ended_at"].values
        return cls(attempt.number, attempt.header.started_at, size, parent, steps, ended_at, pauses)

    @property
    def last_at(self) -> float:
        """When its last step ended, or its start where it has none."""
        return float(self.ended_at[-1]) if len(self.ended_at) else self.started_at

    def at(self, step: int) -> float:
        """When a step ended; the start before the first step."""
        place = int(np.searchsorted(self.steps, step, "right")) - 1
        return float(self.ended_at[place]) if place >= 0 else self.started_at


def _header(attempt: AnyAttempt) -> tuple[int, tuple[int, int]]:
    if isinstance(attempt, RecordedAttempt):
        parent = attempt.header.parent
        return attempt.header.world_size, (parent.attempt, parent.step) if parent else (0, 0)
    header = attempt.header
    own = header.parent is not None and header.parent.run == header.run
    return header.layout.world_size, (header.parent.attempt, header.parent.step) if own and header.parent else (0, 0)


@dataclass(frozen=True, slots=True)
class Loss:
    """What the end of an attempt cost.

    Attributes:
        steps: how many steps the next attempt went back behind; they were done again.
        seconds: for how long they had been trained.
        down_s: seconds from the last step to the first one of the next attempt, starting included.
        devices: ranks that these steps were trained on.
    """

    steps: int
    seconds: float
    down_s: float
    devices: int

    @property
    def device_hours(self) -> float:
        """Device-hours of these steps, and of the time until the next one."""
        return (self.seconds + self.down_s) * self.devices / 3600


def losses(attempts: Sequence[AttemptTimes]) -> dict[int, Loss]:
    """What the end of each attempt cost that another one followed, by number.

    A later attempt that goes back behind several attempts costs what all of them had done since.
    """
    found: dict[int, Loss] = {}
    path: list[tuple[AttemptTimes, int]] = []  # each with the last step that counts
    for before, following in zip((None, *attempts), attempts, strict=False):
        kept_attempt, kept_step = following.parent
        steps, seconds = 0, 0.0
        while path and path[-1][0].number >= kept_attempt:
            attempt, last = path.pop()
            kept = kept_step if attempt.number == kept_attempt else 0
            own = attempt.steps[(attempt.steps > kept) & (attempt.steps <= last)]
            if len(own):
                steps += len(own)
                seconds += attempt.at(last) - attempt.at(int(own[0]) - 1)
            if kept:
                path.append((attempt, kept))
                break
        if before is not None:
            first = float(following.ended_at[0]) if len(following.ended_at) else following.started_at
            found[before.number] = Loss(steps, seconds, max(0.0, first - before.last_at), before.world_size)
        path.append((following, int(following.steps[-1]) if len(following.steps) else 0))
    return found


@dataclass(frozen=True, slots=True)
class Silence:
    """A time in which no step ended.

    Attributes:
        after: the step before it.
        began: Unix seconds at which that step ended.
        seconds: until the next step ended, without validation and saving.
        usual: median of the steps before.
    """

    after: int
    began: float
    seconds: float
    usual: float


def silences(times: AttemptTimes) -> list[Silence]:
    """Where two rings are farther apart than a stall is (`treering.metrics.state`), though the run went on."""
    pauses = times.known_pauses_s
    gaps = np.maximum(0.0, np.diff(times.ended_at) - pauses[1:] - pauses[:-1])
    if len(gaps) < _BLOCK:
        return []
    blocks = np.median(gaps[: len(gaps) // _BLOCK * _BLOCK].reshape(-1, _BLOCK), axis=1)
    usual = blocks[np.clip(np.arange(len(gaps)) // _BLOCK - 1, 0, len(blocks) - 1)]
    long = np.flatnonzero(gaps > np.maximum(STALL_FLOOR_S, STALL_STEPS * usual))
    return [
        Silence(int(times.steps[each]), float(times.ended_at[each]), float(gaps[each]), float(usual[each]))
        for each in long.tolist()
    ]
