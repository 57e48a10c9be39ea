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
from treering_dashboard.frames.buckets import MAX_BUCKETS, Envelope, Positions, bucket_starts, last_rows, starts_between
from treering_dashboard.frames.path_rows import STORED, PathRows, RowsOfStretch
from treering_dashboard.frames.sources import Piece, computed_of_part
from treering_dashboard.frames.stretch import Offset, Stretch

FACTS: Final = ("segment", "attempt", "step", "samples", "tokens", "wall_s", "process_s", "ended_at")
"""What places a ring on its path."""

ROWS_A_BUCKET: Final = 64
"""From that many rows a bucket on, the pyramid is read."""

TAIL_STEPS: Final = 64
"""Where the newest value of a computed metric is looked for first."""

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
        found.__dict__.update({"_rows": self._rows, "_derived": self._derived})
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
        return {each.attempt for each, rows in zip(self.stretches, self._rows.lengths, strict=True) if rows}

    def __len__(self) -> int:
        return self._window.stop - self._window.start if isinstance(self._window, slice) else len(self._window)

    def describe(self, key: str) -> Metric:
        """The metric of a key."""
        return self.metrics[key][1]

    def __contains__(self, key: str) -> bool:
        return key in self.metrics

    @cached_property
    def _rows(self) -> PathRows:
        """The rows that are read, those that are left out too."""
        stretches = self.stretches
        return PathRows(
            (each.number, each.attempt, each.source.pieces(STORED, each.after, each.last_step)) for each in stretches
        )

    @cached_property
    def _derived(self) -> dict[str, Floats]:
        return {}

    def fact(self, name: str) -> Any:
        """One fact of every row; see `FACTS`."""
        if name in self._rows:
            return self._rows.whole(name)[self._window]
        if name not in self._derived:
            self._derived[name] = self._whole(name)
        return self._derived[name][self._window]

    def _fact_at(self, name: str, positions: Any) -> Any:
        """One fact of some rows; of the facts that are stored, no other row is joined."""
        window = self._window
        stored = self._stored(name)
        if stored is None or isinstance(positions, slice) or not isinstance(window, slice):
            return self.fact(name)[positions]
        values = self._rows.at(stored, np.asarray(positions, np.int64) + window.start)
        return values - self.begin if name == "wall_s" else values

    def _stored(self, name: str) -> str | None:
        """The fact of the rows from which one follows at each row by itself; None: it follows from all rows."""
        if name == "tokens":
            return "reported" if self.cumulative else None
        name = "ended_at" if name == "wall_s" else name
        return name if name in self._rows else None

    def extent(self, name: str) -> tuple[float, float]:
        """The smallest and the largest value of a fact; there must be a row."""
        stored = self._stored(name)
        if stored is None or not self._is_whole:
            values = self.fact(name)
            return float(values.min()), float(values.max())
        low, high = self._rows.extent(stored)
        return (low - self.begin, high - self.begin) if name == "wall_s" else (low, high)

    @property
    def _is_whole(self) -> bool:
        """Whether no row is left out."""
        return len(self) == len(self._rows)

    @cached_property
    def _window(self) -> slice | Positions:
        """The rows that are not left out; stretches that do not follow each other may have some before and behind."""
        if not self._rows.rising:
            steps = self._rows.whole("step")
            return np.flatnonzero((steps > self.after) & (steps <= self._until))
        start = int(self._rows.search(self.after, right=True)) if self.after else 0
        if self.until_step is None:
            return slice(start, len(self._rows))
        return slice(start, max(start, int(self._rows.search(self.until_step, right=True))))

    def _whole(self, name: str) -> Floats:
        if name == "wall_s":
            return np.asarray(self._rows.whole("ended_at") - self.begin)
        if name == "tokens" and self.cumulative:
            return np.asarray(self._rows.whole("reported"))
        pieces = self._increments(name)
        total, found = 0.0, []
        for stretch, piece in zip(self.stretches, pieces, strict=True):
            start = total if stretch.offset is None else stretch.offset(name)
            found.append(start + np.cumsum(np.nan_to_num(piece)))
            total = float(found[-1][-1]) if len(piece) else start
        return np.concatenate([np.zeros(0), *found])

    def _increments(self, name: str) -> list[Floats]:
        """What each row adds to a fact, by stretch."""
        ends = list(accumulate(self._rows.lengths))
        if name == "tokens":
            return np.split(self._rows.whole("reported"), ends)[:-1]
        if name == "process_s" and not self.cumulative:
            ended = np.split(self._rows.whole("ended_at"), ends)[:-1]
            return [np.diff(each, prepend=s.started_at) for s, each in zip(self.stretches, ended, strict=True)]
        key = "optim/global_batch_size" if name == "samples" else "time/step"
        return [self.read(stretch, key, 0, stretch.last_step).values for stretch in self.stretches]

    def until(self, step: int) -> Offset:
        """What was consumed up to and with a step; nothing where the path has no such step."""

        def offset(fact: str) -> float:
            position = int(np.searchsorted(self.fact("step"), step, "right"))
            return float(self.fact(fact)[position - 1]) if position else 0.0

        return offset

    @cached_property
    def has_tokens(self) -> bool:
        """Whether the rows report tokens; they are read where the head of the columns does not say."""
        known = [None if each.after else each.source.has_tokens(each.last_step) for each in self.stretches]
        if None in known and True not in known:
            return any(piece.series["tokens"].known.any() for piece in self._rows.pieces)
        return True in known

    def read(self, stretch: Stretch, key: str, after: int, last_step: int) -> Series:
        """A metric that the rows of a stretch hold.

        Args:
            stretch: one of the path.
            key: of the metric, or its name in the columns.
            after: the step after which the rows begin.
            last_step: the last step.
        """
        name = f"{METRIC_PREFIX}{self._name(key)}"
        return stretch.source.series([name], max(stretch.after, after), min(stretch.last_step, last_step))[1][name]

    def rows_of(self, stretch: Stretch, after: int, last_step: int) -> RowsOfStretch:
        """What is stored of the rows of a stretch beside metrics, behind a step up to another one."""
        return self._rows.of_stretch(self.stretches.index(stretch), after, last_step)

    def _of(self, stretch: Stretch, keys: Sequence[str], after: int | None = None) -> dict[str, Series]:
        """Metrics at the rows of a stretch; those that are stored are read at once.

        Args:
            stretch: one of the path.
            keys: of the metrics.
            after: the step after which the rows begin; None: that after which rows are not left out.
        """
        after, end = max(stretch.after, self.after if after is None else after), self._end(stretch)
        computed = {key: stretch.computed[key] for key in keys if stretch.computed and key in stretch.computed}
        names = {key: f"{METRIC_PREFIX}{self._name(key)}" for key in keys if key not in computed}
        found = {key: compute(self, stretch, after, end) for key, compute in computed.items()}
        if names:
            stored = stretch.source.series(list(names.values()), after, end)[1]
            found |= {key: stored[name] for key, name in names.items()}
        return found

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
            for after in (max(self.after, self._end(stretch) - TAIL_STEPS), self.after):
                series = self._of(stretch, [key], after)[key]
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
        # Nothing is computed for no rows: a fact of a million rows takes time.
        if not isinstance(positions, slice) and not len(positions):
            kinds = {name: np.int64 if name in ("step", "segment", "attempt") else np.float64 for name in names}
            return pd.DataFrame({n: np.zeros(0, k) for n, k in kinds.items() if n != "tokens" or self.has_tokens})
        return pd.DataFrame(
            {name: self._fact_at(name, positions) for name in names if name != "tokens" or self.has_tokens}
        )

    def at(self, steps: Sequence[int], facts: Sequence[str] = FACTS) -> pd.DataFrame:
        """Facts of the rows of steps; steps without a row are left out."""
        wanted = np.asarray(steps, np.int64)
        if isinstance(self._window, slice):
            found = self._rows.search(wanted) - self._window.start
            inside = (found >= 0) & (found < len(self))
        else:
            every = self.fact("step")
            order = np.argsort(every, kind="stable")
            found = np.searchsorted(every, wanted, sorter=order)
            inside = found < len(every)
            found[inside] = order[found[inside]]
        found, wanted = found[inside], wanted[inside]
        return self.frame(found[self._fact_at("step", found) == wanted], facts)

    def first_from(self, step: int) -> int | None:
        """The first step from one on that has a row; None where none has."""
        if not isinstance(self._window, slice):
            behind = self.fact("step")[self.fact("step") >= step]
            return int(behind.min()) if len(behind) else None
        found = max(0, int(self._rows.search(step)) - self._window.start)
        return int(self._fact_at("step", [found])[0]) if found < len(self) else None

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
        rest = [key for key in keys if key not in envelopes]
        if self._is_whole and any(piece.part for piece in self._rows.pieces):
            envelopes |= {key: self._by_pieces(key, starts) for key in rest}
        else:
            for key, series in self.all_series(rest).items():
                envelopes[key] = Envelope.of(series, starts, positive=self.describe(key).logarithmic)
        ends = last_rows(starts, rows)
        return Drawn(self.frame(ends, ("tokens", *facts)).assign(count=ends - starts + 1), envelopes)

    def _by_pyramid(self, keys: Sequence[str], limit: int) -> tuple[Positions, dict[str, Envelope]]:
        """First row of every bucket, and the metrics that the pyramid holds."""
        rows, window, last = len(self), self._window, self._until
        names = {
            key: self.metrics[key][0] for key in keys if not any(key in (s.computed or ()) for s in self.stretches)
        }
        if not names or rows < limit * ROWS_A_BUCKET or len(self.stretches) * ROWS_A_BUCKET > limit:
            if isinstance(window, slice):
                return starts_between(self._rows.seams(window), rows, limit), {}
            return bucket_starts(self.fact("segment"), limit), {}
        starts: list[Positions] = []
        found: dict[str, list[Buckets]] = {key: [] for key in names}
        first = 0
        for stretch, length, pieces in zip(self.stretches, self._rows.lengths, self._rows.by_stretch, strict=True):
            if not length:
                continue
            quota = max(1, limit * length // rows)  # of the whole stretch, so that the window gets its `limit`
            buckets = stretch.source.many_buckets(list(names.values()), quota, stretch.last_step)
            merged = {key: buckets[name].at_most(quota).between(self.after + 1, last) for key, name in names.items()}
            begins = next(iter(merged.values())).first_step
            begin = first + sum(np.searchsorted(piece.steps, begins) for piece in pieces)
            inside = begin - window.start if isinstance(window, slice) else np.searchsorted(window, begin)
            starts.append(np.maximum(inside, 0))
            for key, each in merged.items():
                found[key].append(each)
            first += length
        envelopes = {}
        for key, parts in found.items():
            envelope = Envelope.of_buckets(Buckets.joined(parts), positive=self.describe(key).logarithmic)
            if envelope is not None:
                envelopes[key] = envelope
        return np.concatenate(starts), envelopes

    def _by_pieces(self, key: str, starts: Positions) -> Envelope:
        """The buckets of a metric at all rows, from those of each piece: no series of all rows is made."""
        positive = self.describe(key).logarithmic
        first, edges, found = 0, [], []
        for stretch, pieces in zip(self.stretches, self._rows.by_stretch, strict=True):
            for piece in pieces:
                inner = starts[np.searchsorted(starts, first, "right") : np.searchsorted(starts, first + len(piece))]
                edges.append(np.append(first, inner))
                series = self._of_piece(stretch, piece, key, begins=piece is pieces[0])
                found.append(Envelope.of(series, edges[-1] - first, positive=positive))
                first += len(piece)
        return Envelope.joined(found).merged(np.searchsorted(np.concatenate(edges), starts))

    def _of_piece(self, stretch: Stretch, piece: Piece, key: str, *, begins: bool) -> Series:
        """A metric at the rows of a piece; a computed one of a part stays in memory as the part does."""
        after, last_step = int(piece.steps[0]) - 1, int(piece.steps[-1])
        compute = (stretch.computed or {}).get(key)
        if compute is None:
            return self.read(stretch, key, after, last_step)
        if piece.part is None:
            return compute(self, stretch, after, last_step)
        first = stretch.started_at if begins else None
        return computed_of_part(*piece.part, repr(compute), first, lambda: compute(self, stretch, after, last_step))
