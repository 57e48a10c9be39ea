"""Reads what is new on a run's path from its columns: whole buckets of rows, after what was shipped.

A bucket goes out when it is complete: when the path has a ring behind it, or when the attempt writes no more rings. A
bucket never reaches from one attempt into the next one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from treering.runlog.columns.attempt import AttemptColumns
from treering.runlog.columns.rows import METRIC_PREFIX, Floats, Integers, Series
from treering.ship.decimation import buckets_of
from treering.ship.tail import Position


@dataclass(frozen=True, slots=True)
class Stretch:
    """The rings of one attempt that are on the path.

    Attributes:
        attempt: number of the attempt.
        begin: digest of its header.
        columns: of the attempt.
        last_step: the last step of the stretch; None: all rings of the attempt.
        before: rings on the path before it.
        ended: whether no ring follows those that are there.
    """

    attempt: int
    begin: str
    columns: AttemptColumns
    last_step: int | None
    before: int
    ended: bool


@dataclass(frozen=True, slots=True)
class Window:
    """Consecutive rows of a stretch, in whole buckets.

    Attributes:
        steps: of the rows.
        ended_at: when each step ended, Unix seconds.
        starts: the first row of each bucket.
        metrics: series by name.
    """

    steps: Integers
    ended_at: Floats
    starts: Integers
    metrics: Mapping[str, Series]


def num_rings(columns: AttemptColumns, last_step: int | None) -> int:
    """How many rings an attempt has up to a step, None: in all."""
    head = columns.head()
    if last_step is None or last_step >= head.last_step:
        return head.rings
    whole = sum(part.rows for part in head.parts if part.last_step <= last_step)
    split = next((part for part in head.parts if part.first_step <= last_step < part.last_step), None)
    return whole + (len(columns.series((), split.first_step - 1, last_step)[0]) if split else 0)


def digest_at(stretch: Stretch, step: int) -> str:
    """Digest of the ring of a step, of the attempt's header at step 0; empty where there is no such ring."""
    if step == 0:
        return stretch.begin
    ring = stretch.columns.ring(step)
    return str(ring.digest) if ring else ""


def holds(stretches: Sequence[Stretch], position: Position) -> bool:
    """Whether what was shipped up to a position is still part of the path.

    Raises:
        EvidenceError: a ring before it was changed.
    """
    for stretch in stretches:
        if stretch.attempt == position.attempt:
            beyond = stretch.last_step is not None and position.step > stretch.last_step
            return not beyond and digest_at(stretch, position.step) == position.digest
    return False


def is_within_bucket(stretch: Stretch, step: int) -> bool:
    """Whether the bucket of a step goes on behind it: the step was not the end of one, but of the rings at the time."""
    number = stretch.before + num_rings(stretch.columns, step)
    around = buckets_of(np.array([number - 1, number]))
    return bool(around[0] == around[1])


def windows(
    stretch: Stretch,
    after: int,
    horizon: int | None,
    derive: Callable[[Mapping[str, Series]], Mapping[str, Series]] | None = None,
    names: Sequence[str] | None = None,
) -> Iterator[Window]:
    """The new rows of a stretch.

    Args:
        stretch: the stretch.
        after: step after which they begin.
        horizon: the newest step of the attempt that counts; None: all do.
        derive: metrics that no ring holds, computed from those that it holds.
        names: metrics to read; None: all.

    Raises:
        EvidenceError: a ring was changed, removed or put in.
    """
    head = stretch.columns.head()
    end = min(step for step in (head.last_step, horizon, stretch.last_step) if step is not None)
    columns = [f"{METRIC_PREFIX}{name}" for name in (head.metrics if names is None else names)]
    for part in head.parts:
        if part.last_step <= after or part.first_step > end:
            continue
        upto = min(end, part.last_step)
        steps, found = stretch.columns.series(["ended_at", *columns], after, upto)
        first = stretch.before + num_rings(stretch.columns, after)
        buckets = buckets_of(np.arange(first, first + len(steps) + 1))
        size = len(steps)
        if not (upto == end and stretch.ended):  # the last bucket may not be complete
            size = int(np.searchsorted(buckets[:-1], buckets[-1], "left"))
        if not size:
            continue
        starts = np.flatnonzero(np.diff(buckets[:size], prepend=-1))
        metrics: dict[str, Any] = {
            name.removeprefix(METRIC_PREFIX): Series(each.values[:size], each.known[:size])
            for name, each in found.items()
            if name != "ended_at"
        }
        metrics |= derive(metrics) if derive else {}
        metrics = {name: each for name, each in metrics.items() if each.known.any()}
        yield Window(steps[:size], found["ended_at"].values[:size], starts, metrics)
        after = int(steps[size - 1])
