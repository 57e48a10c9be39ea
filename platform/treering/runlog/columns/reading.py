"""Reads columns through their head: series, buckets, tokens and places of lines."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from treering.runlog.columns.buckets import Buckets
from treering.runlog.columns.head import Head, Part
from treering.runlog.columns.history import History
from treering.runlog.columns.parts import LEVELS, read_columns
from treering.runlog.columns.rows import METRIC_PREFIX, Integers, Series
from treering.runlog.columns.store import Store
from treering.runlog.ring import Ring

PyramidReader = Callable[[Store, Part, Sequence[str], int], dict[str, Buckets]]
"""Reads the buckets of a part at a level, as `read_buckets`."""


def histories(store: Store, head: Head, metrics: Sequence[str], last_step: int | None) -> dict[str, History]:
    """Whole series up to a step, by name."""
    steps: dict[str, list[Any]] = {name: [] for name in metrics}
    values: dict[str, list[Any]] = {name: [] for name in metrics}
    for part in _up_to(head, last_step):
        found = read_columns(store, part, ["step", *(f"{METRIC_PREFIX}{name}" for name in metrics)])
        every = found["step"].to_numpy()
        if last_step is not None:
            every = every[: np.searchsorted(every, last_step, "right")]
        for name in metrics:
            if f"{METRIC_PREFIX}{name}" not in found:
                continue
            column = found[f"{METRIC_PREFIX}{name}"]
            if column.null_count:
                series = Series.of_arrow(column)
                known = series.known[: len(every)]
                steps[name].append(every[known])
                values[name].append(series.values[: len(every)][known])
            else:
                steps[name].append(every)
                values[name].append(column.to_numpy()[: len(every)])
    return {name: History(_joined(steps[name], np.int64), _joined(values[name], np.float64)) for name in metrics}


def series(
    store: Store, head: Head, names: Sequence[str], after: int, last_step: int | None
) -> tuple[Integers, dict[str, Series]]:
    """Steps after a step up to another one, and columns of the rows at these steps.

    Args:
        store: where the columns are kept.
        head: what they hold.
        names: metrics with `METRIC_PREFIX`, or `ended_at` or `tokens`.
        after: the step after which the rows begin.
        last_step: the last step, None: the newest.
    """
    steps: list[Integers] = []
    found: dict[str, list[Series]] = {name: [] for name in names}
    for part in _up_to(head, last_step):
        if part.last_step <= after:
            continue
        columns = read_columns(store, part, ["step", *names])
        every = columns["step"].to_numpy()
        start = int(np.searchsorted(every, after, "right"))
        end = len(every) if last_step is None else int(np.searchsorted(every, last_step, "right"))
        steps.append(every[start:end])
        for name in names:
            whole = Series.of_arrow(columns[name]) if name in columns else Series.missing(len(every))
            found[name].append(Series(whole.values[start:end], whole.known[start:end]))
    return _joined(steps, np.int64), {name: Series.joined(each) for name, each in found.items()}


def buckets(
    store: Store,
    head: Head,
    metrics: Sequence[str],
    count: int,
    last_step: int | None,
    *,
    read: PyramidReader,
) -> dict[str, Buckets]:
    """At least `count` buckets of each series up to a step, or a bucket a ring where there are no more rings.

    All series have the same buckets.

    Args:
        store: where the columns are kept.
        head: what they hold.
        metrics: their names.
        count: how many are needed.
        last_step: the last step that counts, None: the newest.
        read: reads the pyramid of a part.
    """
    parts = list(_up_to(head, last_step))
    rows = sum(part.rows for part in parts)
    level = next((level for level in LEVELS if rows >= count * level), None)
    found: dict[str, list[Buckets]] = {name: [] for name in metrics}
    for part in parts:
        if level is not None and (last_step is None or part.last_step <= last_step):
            there = read(store, part, metrics, level)
        else:
            there = _buckets_of_rows(store, part, metrics, level, last_step)
        if there:
            missing = next(iter(there.values())).without_numbers()
        elif metrics:
            missing = _buckets_of_rows(store, part, metrics[:1], level, last_step)[metrics[0]]
        for name in metrics:
            found[name].append(there.get(name, missing))
    empty = Buckets.of_rows(np.zeros(0, np.int64), Series.missing(0))
    return {name: Buckets.joined(each) if each else empty for name, each in found.items()}


def _buckets_of_rows(
    store: Store, part: Part, metrics: Sequence[str], level: int | None, last_step: int | None
) -> dict[str, Buckets]:
    """The buckets of a part, made of its rows up to a step."""
    columns = read_columns(store, part, ["step", *(f"{METRIC_PREFIX}{name}" for name in metrics)])
    steps = columns["step"].to_numpy()
    end = len(steps) if last_step is None else int(np.searchsorted(steps, last_step, "right"))
    found = {}
    for name in metrics:
        column = columns.get(f"{METRIC_PREFIX}{name}")
        whole = Series.missing(len(steps)) if column is None else Series.of_arrow(column)
        single = Buckets.of_rows(steps[:end], Series(whole.values[:end], whole.known[:end]))
        found[name] = single if level is None else single.in_groups_of(level)
    return found


def tokens(store: Store, head: Head, last_step: int, kind: type[Any]) -> int | None:
    """Tokens up to a step, None where no ring reports tokens."""
    total: int | None = None
    for part in _up_to(head, last_step):
        found = read_columns(store, part, ("step", "tokens"))
        end = int(np.searchsorted(found["step"].to_numpy(), last_step, "right"))
        series = Series.of_arrow(found["tokens"])
        known = series.values[:end][series.known[:end]]
        if len(known):
            total = int(known[-1]) if kind is Ring else (total or 0) + int(known.sum())
    return total


def line_bounds(store: Store, head: Head, step: int, count: int) -> tuple[int, int] | None:
    """Where the lines of the last `count` rings up to a step are in `rings.jsonl`, None where there is no such step.

    Returns:
        Bytes before the first of them, and up to the end of the last.
    """
    last: int | None = None
    for part in reversed(head.parts):
        if part.first_step > step:
            continue
        found = read_columns(store, part, ("step", "end"))
        ends = found["end"].to_numpy()
        after = part.rows
        if last is None:
            after = int(np.searchsorted(found["step"].to_numpy(), step, "right"))
            if found["step"][after - 1].as_py() != step:
                return None
            last = int(ends[after - 1])
        if after > count:
            return int(ends[after - count - 1]), last
        if after == count and part is not head.parts[0]:
            before = head.parts[head.parts.index(part) - 1]
            return int(read_columns(store, before, ("end",))["end"].to_numpy()[-1]), last
        count -= after
    return None if last is None else (0, last)


def _up_to(head: Head, last_step: int | None) -> Iterator[Part]:
    """The parts that have a step up to `last_step`."""
    return (part for part in head.parts if last_step is None or part.first_step <= last_step)


def _joined(arrays: list[Any], kind: Any) -> Any:
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate(arrays) if arrays else np.zeros(0, kind)
