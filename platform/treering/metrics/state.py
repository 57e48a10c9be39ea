"""The state of a run as people need it: the run log's, and `stalled` where processes live but no step comes.

Reads the lock, the newest rings and the telemetry of the newest attempt. `treering runs` and `show`, MLflow's tags and
every page of the dashboard show what this says.

A running run is stalled when its newest ring is older than

    max(30 s, 5 · median step time) + validation, if the next step validates + saving, if a checkpoint is due

The step time is the median over the newest 20 steps, each divided by its batch and multiplied by the next step's: a
batch ramp makes steps longer. Validation and saving count as long as the longest among the newest 256 steps (saving
twice as long: file servers vary); where none was measured, validation counts as if every sample were trained on, saving
as 300 s. Before the first step of an attempt the limit is 1,800 s after its start, as for the trainer's watchdog: data
are digested, weights loaded and kernels compiled by then. The trainer itself ends a stuck job later, after
`parallel.rank_timeout_s`.
"""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from treering.errors import EvidenceError
from treering.runlog.attempt import AttemptDirectory
from treering.runlog.directory import RunDirectory
from treering.runlog.records import RunState
from treering.runlog.ring import Ring

State = Literal[RunState, "stalled"]

STALL_STEPS: Final = 5
"""Steps, of median time, that a run may take for one: collecting garbage or a slow file server cost a few."""
STALL_FLOOR_S: Final = 30.0
"""Seconds that are never called a stall: clocks differ, and steps of milliseconds say little."""
START_S: Final = 1800.0
SILENT_S: Final = 10.0
SAVE_S: Final = 300.0

_MEDIAN_STEPS: Final = 20
_LOOK_BACK: Final = 256
_TAIL_BYTES: Final = 8 << 10
_SILENT_SAMPLES: Final = 5
_NEWEST_S: Final = 600.0
_OWN: Final = ("process/", "rank/")
"""What only the rank's own process reports; its device answers for others."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A run's state with what it rests on.

    Attributes:
        state: the run log's, or `stalled`.
        step: of the newest ring of the newest attempt, 0 before its first.
        silent_s: seconds since that ring, or since the attempt began; None where no attempt has.
        limit_s: seconds after which the silence is a stall; None where the run does not run.
        silent_ranks: of a stalled run, the ranks whose telemetry has stopped, or never began, while that of others goes
            on, in order.
        ranks: of a stalled run, how many ranks there are; 0 where no rank has telemetry.
    """

    state: State
    step: int
    silent_s: float | None
    limit_s: float | None
    silent_ranks: tuple[int, ...] = ()
    ranks: int = 0

    @property
    def stall(self) -> str:
        """What is the matter, in a sentence; empty where the run is not stalled."""
        if self.state != "stalled" or self.silent_s is None or self.limit_s is None:
            return ""
        after = f"after step {self.step:,}" if self.step else "since the attempt began"
        text = f"no step for {self.silent_s:,.0f} s {after}, expected one within {self.limit_s:,.0f} s"
        if not self.ranks:
            return f"{text}; no rank has telemetry"
        if not self.silent_ranks:
            return f"{text}; the telemetry of all {self.ranks:,} ranks goes on"
        if len(self.silent_ranks) == self.ranks:
            return f"{text}; all {self.ranks:,} ranks are silent"
        return f"{text}; silent: {rank_names(self.silent_ranks)} of {self.ranks:,} ranks"


def rank_names(ranks: Sequence[int], most: int = 8) -> str:
    """`rank 3`, `ranks 3, 17`, at most `most` by number: `ranks 0, 1, 2 and 61 more`."""
    shown = ", ".join(str(rank) for rank in ranks[:most])
    more = f" and {len(ranks) - most:,} more" if len(ranks) > most else ""
    return f"rank{'' if len(ranks) == 1 else 's'} {shown}{more}"


def condition(run: RunDirectory, now: float | None = None) -> Condition:
    """The state of a run.

    Args:
        run: the run.
        now: Unix seconds; default the clock's.

    Raises:
        EvidenceError: the record of the newest attempt's end does not hold.
    """
    now = time.time() if now is None else now
    state = run.state()
    attempts = run.attempts()
    if state != "running" or not attempts:
        return Condition(state, 0, None, None)
    newest = attempts[-1]
    try:
        rings = newest.ring_log.newest(_LOOK_BACK)
        step = rings[-1].step if rings else 0
        silent_s = now - (rings[-1].ended_at if rings else newest.header.started_at)
        limit_s = stall_limit_s(run, rings) if rings else START_S
        interval_s = run.resolved.attempt.telemetry.interval_s
        world_size = newest.header.layout.world_size
    except EvidenceError:  # whoever reads all rings names the damage
        return Condition("running", 0, None, None)
    if silent_s <= limit_s:
        return Condition("running", step, silent_s, limit_s)
    silent, ranks = silent_ranks(newest, world_size, now, interval_s)
    return Condition("stalled", step, silent_s, limit_s, silent, ranks)


def stall_limit_s(run: RunDirectory, rings: Sequence[Ring]) -> float:
    """Seconds after the last of the newest rings, at least one, from which on the run is stalled.

    Raises:
        EvidenceError: the run's config does not hold.
    """
    resolved, last = run.resolved, rings[-1]
    schedule, config = resolved.schedule, resolved.attempt
    last_step = schedule.num_steps
    batch_size = last.global_batch_size
    if last.step < last_step:
        start, end = schedule.sample_range(last.step + 1)
        batch_size = end - start
    per_sample = statistics.median(ring.time_s["step"] / ring.global_batch_size for ring in rings[-_MEDIAN_STEPS:])
    limit_s = max(STALL_FLOOR_S, STALL_STEPS * per_sample * batch_size)
    validation = config.validation
    if validation is not None and last.step < last_step:
        following = last.step + 1
        if following % validation.every_steps == 0 or following in (resolved.first_step, last_step):
            measured = [ring.time_s["validation"] for ring in rings if "validation" in ring.time_s]
            unmeasured = per_sample * validation.samples * len(resolved.blend.components)
            limit_s += max(measured, default=unmeasured)
    if last.step % config.checkpoint.every_steps == 0 or last.step == last_step:
        saves = [ring.time_s["checkpoint"] for ring in rings if "checkpoint" in ring.time_s]
        limit_s += 2 * max(saves) if saves else SAVE_S
    return limit_s


def silent_ranks(
    attempt: AttemptDirectory, world_size: int, now: float, interval_s: float
) -> tuple[tuple[int, ...], int]:
    """The ranks whose newest reading is old or missing, and how many ranks there are; telemetry fails open.

    Old is older by `SILENT_S` and five intervals than the newest of all ranks, or than now where all have stopped. A
    rank that was stopped before its first reading has none. Where no rank has a reading, none is called silent.
    """
    readings = attempt.telemetry.read(newest_s=_NEWEST_S, old_bytes=_TAIL_BYTES).readings
    own = [column for name, column in readings.values.items() if name.startswith(_OWN)]
    alive = np.any(np.isfinite(own), axis=0) & (readings.ranks >= 0) if own else np.zeros(len(readings), bool)
    newest: dict[int, float] = {}
    for rank, at in zip(readings.ranks[alive].tolist(), readings.times[alive].tolist(), strict=True):
        newest[rank] = max(newest.get(rank, 0.0), at)
    patience_s = max(SILENT_S, _SILENT_SAMPLES * interval_s)
    latest = max(newest.values(), default=0.0)
    measure = latest if now - latest <= patience_s else now
    if not newest:
        return (), 0
    ranks = set(range(world_size)) | newest.keys()
    return tuple(sorted(rank for rank in ranks if measure - newest.get(rank, 0.0) > patience_s)), len(ranks)
