"""The numbers of a run along its path, read from the columns as far as a chart needs them.

A chart of a long path reads the columns' pyramid: buckets that keep every extreme. Short paths, windows, shares that
are computed from several metrics, and values that a log axis cannot show are read row by row.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from treering.runlog.columns.buckets import Buckets
from treering.runlog.columns.rows import METRIC_PREFIX, Series
from treering.runlog.metric_catalog import Metric
from treering_dashboard.frames.buckets import MAX_BUCKETS, Envelope, Positions, bucket_starts, last_rows
from treering_dashboard.frames.stretch import Offset, Stretch

FACTS: Final = ("segment", "attempt", "step", "samples", "tokens", "wall_s", "process_s", "ended_at")
"""What places a ring on its path."""

ROWS_A_BUCKET: Final = 64
"""From that many rows a bucket on, the pyramid is read."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Drawn:
    """Metrics in buckets.

    Attributes:
        rows: facts of the last row of each bucket, one row a bucket.
        envelopes: by key.
    """

    rows: pd.DataFrame
    envelopes: dict[str, Envelope]


@dataclass(frozen=True)
class Curves:
    """The numbers of stretches, oldest first.

    Attributes:
        stretches: of the path.
        names: the name of each metric in the columns, and its metric; computed ones under their key.
        cumulative: whether the rows' tokens are those consumed so far; else those of a step.
        begin: Unix seconds at which the wall clock starts.
        after: rows up to this step are left out; what they consumed counts.
        until_step: rows behind this step are left out; None: none.
    """

    stretches: tuple[Stretch, ...]
    metrics: dict[str, tuple[str, Metric]]
    cumulative: bool
    begin: float = 0.0
    after: int = 0
    until_step: int | None = None

    def last(self, num_steps: int) -> "Curves":
        """The newest steps alone."""
        return self.behind(self.last_step - num_steps)

    def behind(self, step: int) -> "Curves":
        """What is behind a step; the facts are those of the whole."""
        return self.between(step + 1, self.until_step)

    def between(self, first_step: int, last_step: int | None) -> "Curves":
        """What is from one step to another; the facts are those of the whole."""
        found = replace(self, after=max(self.after, first_step - 1), until_step=last_step)
        found.__dict__.update({"_base": self._base, "_derived": self._derived})
        return found

    @property
    def last_step(self) -> int:
        """The newest step; 0 if the run has no step."""
        return next((each.last_step for each in reversed(self.stretches) if each.last_step), 0)

    @property
    def last_drawn(self) -> int:
        """The newest step that is not left out; later steps may be."""
        return self.last_step if self.until_step is None else min(self.last_step, self.until_step)

    @property
    def _until(self) -> int:
        """No row behind this step is drawn; an earlier stretch may end behind the newest one."""
        return (
            max((each.last_step for each in self.stretches), default=0) if self.until_step is None else self.until_step
        )

    @property
    def attempts(self) -> set[int]:
        """The attempts that have rows."""
        return {each.attempt for each, rows in zip(self.stretches, self._base["lengths"], strict=True) if rows}

    def __len__(self) -> int:
        return len(self._base["step"][self._window])

    def describe(self, key: str) -> Metric:
        """The metric of a key."""
        return self.metrics[key][1]

    def __contains__(self, key: str) -> bool:
        return key in self.metrics

    @cached_property
    def _base(self) -> dict[str, Any]:
        """Facts that are read."""
        found = [each.source.series(["ended_at", "tokens"], each.after, each.last_step) for each in self.stretches]
        lengths = [len(steps) for steps, _ in found]
        steps = np.concatenate([np.zeros(0, np.int64), *(steps for steps, _ in found)])
        return {
            "lengths": lengths,
            "step": steps,
            "rising": bool((steps[1:] > steps[:-1]).all()),
            "segment": np.repeat(np.array([each.number for each in self.stretches], np.int64), lengths),
            "attempt": np.repeat(np.array([each.attempt for each in self.stretches], np.int64), lengths),
            "ended_at": Series.joined(series["ended_at"] for _, series in found).values,
            "reported": Series.joined(series["tokens"] for _, series in found),
        }

    @cached_property
    def _derived(self) -> dict[str, Floats]:
        return {}

    def fact(self, name: str) -> Any:
        """One fact of every row; see `FACTS`."""
        if name not in self._base and name not in self._derived:
            self._derived[name] = self._whole(name)
        whole = self._base[name] if name in self._base else self._derived[name]
        return whole[self._window]

    @cached_property
    def _window(self) -> slice | Positions:
        """The rows that are not left out; stretches that do not follow each other may have some before and behind."""
        steps = self._base["step"]
        if not self._base["rising"]:
            return np.flatnonzero((steps > self.after) & (steps <= self._until))
        start = int(np.searchsorted(steps, self.after, "right")) if self.after else 0
        if self.until_step is None:
            return slice(start, len(steps))
        return slice(start, max(start, int(np.searchsorted(steps, self.until_step, "right"))))

    def _whole(self, name: str) -> Floats:
        ended: Floats = self._base["ended_at"]
        if name == "wall_s":
            return ended - self.begin
        if name == "tokens" and self.cumulative:
            return np.asarray(self._base["reported"].values)
        pieces = self._increments(name)
        total, found = 0.0, []
        for stretch, piece in zip(self.stretches, pieces, strict=True):
            start = total if stretch.offset is None else stretch.offset(name)
            found.append(start + np.cumsum(np.nan_to_num(piece)))
            total = float(found[-1][-1]) if len(piece) else start
        return np.concatenate([np.zeros(0), *found])

    def _increments(self, name: str) -> list[Floats]:
        """What each row adds to a fact, by stretch."""
        ends = list(accumulate(self._base["lengths"]))
        if name == "tokens":
            return np.split(self._base["reported"].values, ends)[:-1]
        if name == "process_s" and not self.cumulative:
            ended = np.split(self._base["ended_at"], ends)[:-1]
            return [np.diff(each, prepend=s.started_at) for s, each in zip(self.stretches, ended, strict=True)]
        key = "optim/global_batch_size" if name == "samples" else "time/step"
        return [self.read(stretch, key, 0).values for stretch in self.stretches]

    def until(self, step: int) -> Offset:
        """What was consumed up to and with a step; nothing where the path has no such step."""

        def offset(fact: str) -> float:
            position = int(np.searchsorted(self.fact("step"), step, "right"))
            return float(self.fact(fact)[position - 1]) if position else 0.0

        return offset

    @property
    def has_tokens(self) -> bool:
        """Whether the rows report tokens."""
        return bool(self._base["reported"].known.any())

    def read(self, stretch: Stretch, key: str, after: int) -> Series:
        """A metric that the rows of a stretch hold.

        Args:
            stretch: one of the path.
            key: of the metric, or its name in the columns.
            after: the step after which the rows begin.
        """
        name = f"{METRIC_PREFIX}{self._name(key)}"
        return stretch.source.series([name], max(stretch.after, after), stretch.last_step)[1][name]

    def facts_of(self, stretch: Stretch) -> dict[str, Any]:
        """The facts that are read of the rows of a stretch, as arrays."""
        index = self.stretches.index(stretch)
        start = sum(self._base["lengths"][:index])
        end = start + self._base["lengths"][index]
        reported = self._base["reported"]
        tokens = Series(reported.values[start:end], reported.known[start:end])
        return {"step": self._base["step"][start:end], "ended_at": self._base["ended_at"][start:end], "tokens": tokens}

    def _of(self, stretch: Stretch, keys: Sequence[str]) -> dict[str, Series]:
        """Metrics at the rows of a stretch; those that are stored are read at once."""
        computed = {key: stretch.computed[key] for key in keys if stretch.computed and key in stretch.computed}
        names = {key: f"{METRIC_PREFIX}{self._name(key)}" for key in keys if key not in computed}
        found = {key: self._cut(compute(self, stretch, self.after), stretch) for key, compute in computed.items()}
        if names:
            after = max(stretch.after, self.after)
            stored = stretch.source.series(list(names.values()), after, self._end(stretch))[1]
            found |= {key: stored[name] for key, name in names.items()}
        return found

    def _cut(self, series: Series, stretch: Stretch) -> Series:
        """The rows up to the last step that is not left out, of rows behind `after`."""
        if self.until_step is None:
            return series
        steps = self.facts_of(stretch)["step"]
        rows = int(((steps > self.after) & (steps <= self.until_step)).sum())
        return Series(series.values[:rows], series.known[:rows])

    def _end(self, stretch: Stretch) -> int:
        return stretch.last_step if self.until_step is None else min(stretch.last_step, self.until_step)

    def _name(self, key: str) -> str:
        return self.metrics[key][0] if key in self.metrics else key

    def all_series(self, keys: Sequence[str]) -> dict[str, Series]:
        """Metrics at every row, by key."""
        parts = [self._of(stretch, keys) for stretch in self.stretches]
        return {key: Series.joined(part[key] for part in parts) for key in keys}

    def series(self, key: str) -> Series:
        """A metric at every row."""
        return self.all_series([key])[key]

    def points(self, key: str) -> tuple[Positions, Floats]:
        """Positions of the rows that have a metric, and its values."""
        series = self.series(key)
        positions = np.flatnonzero(series.known)
        return positions, series.values[positions]

    def latest(self, key: str) -> float:
        """The newest value of a metric; NaN if no ring has the metric."""
        for stretch in reversed(self.stretches):
            newest = stretch.source.newest(self._name(key), stretch.last_step)
            if newest is not None:
                return newest
            series = self._of(stretch, [key])[key]
            if series.known.any():
                return float(series.values[series.known][-1])
        return float("nan")

    def frame(self, positions: Any, facts: Sequence[str] = FACTS) -> pd.DataFrame:
        """Facts of rows.

        Args:
            positions: of the rows.
            facts: names; tokens are left out where the rows report none.
        """
        names = dict.fromkeys(("step", "segment", "attempt", *facts))
        if not isinstance(positions, slice) and not len(
            positions
        ):  # nothing is computed: a fact of a million rows takes time
            kinds = {name: np.int64 if name in ("step", "segment", "attempt") else np.float64 for name in names}
            return pd.DataFrame({n: np.zeros(0, k) for n, k in kinds.items() if n != "tokens" or self.has_tokens})
        return pd.DataFrame({name: self.fact(name)[positions] for name in names if name != "tokens" or self.has_tokens})

    def at(self, steps: Sequence[int], facts: Sequence[str] = FACTS) -> pd.DataFrame:
        """Facts of the rows of steps; steps without a row are left out."""
        every, wanted = self.fact("step"), np.asarray(steps, np.int64)
        order = None if self._base["rising"] else np.argsort(every, kind="stable")
        found = np.searchsorted(every, wanted, sorter=order)
        found = found[found < len(every)] if order is None else order[found[found < len(every)]]
        return self.frame(found[np.isin(every[found], wanted)], facts)

    def drawn(self, keys: Sequence[str], facts: Sequence[str] = (), limit: int = MAX_BUCKETS) -> Drawn:
        """Metrics in at most `limit` buckets, all in the same.

        Args:
            keys: of the metrics.
            facts: beside step, segment, attempt and tokens.
            limit: most buckets.
        """
        rows = len(self)
        if not rows:
            empty = Envelope(np.zeros(0), np.zeros(0), np.zeros(0), np.zeros(0, np.int64))
            return Drawn(self.frame(np.zeros(0, np.int64), ("tokens", *facts)), dict.fromkeys(keys, empty))
        starts, envelopes = self._by_pyramid(keys, limit)
        for key, series in self.all_series([key for key in keys if key not in envelopes]).items():
            envelopes[key] = Envelope.of(series, starts, positive=self.describe(key).logarithmic)
        ends = last_rows(starts, rows)
        return Drawn(self.frame(ends, ("tokens", *facts)).assign(count=ends - starts + 1), envelopes)

    def _by_pyramid(self, keys: Sequence[str], limit: int) -> tuple[Positions, dict[str, Envelope]]:
        """First row of every bucket, and the metrics that the pyramid holds."""
        segments = self.fact("segment")
        rows = len(segments)
        names = {
            key: self.metrics[key][0] for key in keys if not any(key in (s.computed or ()) for s in self.stretches)
        }
        if not names or rows < limit * ROWS_A_BUCKET or len(self.stretches) * ROWS_A_BUCKET > limit:
            return bucket_starts(segments, limit), {}
        window, last = self._window, self._until
        starts: list[Positions] = []
        found: dict[str, list[Buckets]] = {key: [] for key in names}
        first = 0
        for stretch, length in zip(self.stretches, self._base["lengths"], strict=True):
            if not length:
                continue
            quota = max(1, limit * length // rows)  # of the whole stretch, so that the window gets its `limit`
            buckets = stretch.source.many_buckets(list(names.values()), quota, stretch.last_step)
            merged = {key: buckets[name].at_most(quota).between(self.after + 1, last) for key, name in names.items()}
            steps = self._base["step"][first : first + length]
            begin = first + np.searchsorted(steps, next(iter(merged.values())).first_step)
            inside = begin - window.start if isinstance(window, slice) else np.searchsorted(window, begin)
            starts.append(np.maximum(inside, 0))
            for key, each in merged.items():
                found[key].append(each)
            first += length
        envelopes = {}
        for key, pieces in found.items():
            envelope = Envelope.of_buckets(Buckets.joined(pieces), positive=self.describe(key).logarithmic)
            if envelope is not None:
                envelopes[key] = envelope
        return np.concatenate(starts), envelopes
