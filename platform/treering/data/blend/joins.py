"""Where a run starts from another run: which samples of each corpus are read again, and which are never read.

A run that starts from another run has its own data order. Unless that is the other run's order, or continues it
(`start_from.data: continue`), the other run stopped a corpus at one position and the new run begins it at another.
`corpus_joins` counts the samples between the two; `treering.data.blend.continuation` makes a blend without such gaps.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from treering.config.resolved import ReadRange, Resolved, ranges_before
from treering.config.resolved_blend import ResolvedBlend
from treering.data.order.treering1 import DataOrder
from treering.errors import EvidenceError

_MOST_PLACES = 1 << 26
"""Samples of a corpus up to which a comparison under two seeds looks at every one of them."""


@dataclass(frozen=True, slots=True)
class CorpusJoin:
    """One corpus at the place where a run starts from another run.

    Attributes:
        run: id of the run that starts.
        step: its first step.
        corpus: name of the corpus.
        digest: identity of the corpus; None for a declared one.
        epoch_samples: samples of one epoch.
        stopped: position at which the runs before stopped reading it; None if they did not read it.
        begins: position at which the run begins to read it; None if it does not read it.
        read_again: positions that the runs before have read and the run reads once more; where the runs shuffle the
            corpus by different seeds, samples that both read; None if nobody counted them.
        never_read: positions between `stopped` and `begins`, which no run reads; under different seeds samples that no
            run reads; None if nobody counted them.
        same_seed: whether the runs before shuffle the corpus as the run does.
    """

    run: str
    step: int
    corpus: str
    digest: str | None
    epoch_samples: int
    stopped: int | None
    begins: int | None
    read_again: int | None
    never_read: int | None
    same_seed: bool

    @property
    def even(self) -> bool:
        """Whether the corpus goes on where it stopped, begins with its first sample, or is not read any more."""
        if self.begins is None:
            return True
        return self.same_seed and self.begins == (self.stopped or 0) and not self.read_again

    @property
    def text(self) -> str:
        """One line."""
        if self.begins is None:
            return f"{self.corpus}: stopped at position {self.stopped:,}; this run does not read it"
        if self.stopped is None:
            start = f"not read before, begins at position {self.begins:,}"
        else:
            start = f"stopped at position {self.stopped:,}, begins at position {self.begins:,}"
        if self.same_seed:
            return f"{self.corpus}: {start}: {self.read_again:,} samples are read again, {self.never_read:,} never"
        if self.read_again is None:
            return f"{self.corpus}: {start} of another shuffle (another blend.seed); the overlap was not counted"
        return (
            f"{self.corpus}: {start} of another shuffle (another blend.seed): {self.read_again:,} samples are read "
            f"again, {self.never_read:,} of {self.epoch_samples:,} by neither"
        )


def join_lines(joins: Sequence[CorpusJoin]) -> list[str]:
    """The joins that people should know, in lines: none for a run where every corpus goes on where it stopped."""
    lines = []
    for run in dict.fromkeys(join.run for join in joins):
        mine = [join for join in joins if join.run == run]
        uneven = [join for join in mine if not join.even]
        if not uneven:
            continue
        lines.append(f"run {run} does not go on where the runs before stopped reading (step {mine[0].step}):")
        lines += [f"  {join.text}" for join in uneven]
        seed = "" if all(join.same_seed for join in mine) else "; it needs the blend.seed of the run before"
        lines.append(f"  `start_from.data: continue` lets every corpus go on where it stopped{seed}")
    return lines


def start_joins(resolved: Resolved, runs: Path) -> tuple[CorpusJoin, ...]:
    """The joins at a run's start, by the recipes; empty for a run that starts from nothing or whose blend is declared.

    Args:
        resolved: the run's config.
        runs: folder of run directories.

    Raises:
        EvidenceError: the config of a run before is missing or was changed.
    """
    before = [] if resolved.blend.declared else ranges_before(runs / resolved.run_id, resolved.recipe.start_from)
    if not before:
        return ()
    return tuple(corpus_joins(before, ReadRange.of(resolved, resolved.schedule.num_steps), resolved.first_step))


def start_lines(resolved: Resolved, runs: Path) -> list[str]:
    """What people should know before a run starts: where corpora do not go on, or that this is unknown.

    Args:
        resolved: the run's config.
        runs: folder of run directories.
    """
    try:
        return join_lines(start_joins(resolved, runs))
    except EvidenceError as error:
        return [f"it is unknown what the runs before have read, so samples may be read again or never: {error}"]


def corpus_joins(before: Sequence[ReadRange], after: ReadRange, step: int) -> Iterator[CorpusJoin]:
    """Each corpus of a run, and of the run before it, where the run starts.

    Args:
        before: what was read up to there, from the root on; at least one range.
        after: what the run reads.
        step: the run's first step.
    """
    orders = [DataOrder(each.blend) for each in before]
    order = DataOrder(after.blend)
    names = {
        part.digest or part.corpus: part.corpus for part in (*after.blend.components, *before[-1].blend.components)
    }
    mine = {part.digest or part.corpus: position for position, part in enumerate(after.blend.components)}
    for key, corpus in names.items():
        earlier = [
            (each_order, _position_of(each.blend, key), each.lo, each.hi)
            for each, each_order in zip(before, orders, strict=True)
            if _position_of(each.blend, key) >= 0
        ]
        stopped = earlier[-1][0].count(earlier[-1][1], earlier[-1][3]) if earlier else None
        position = mine.get(key)
        if position is None:
            part = earlier[-1][0].components[earlier[-1][1]]
            yield CorpusJoin(after.run, step, corpus, part.digest, part.num_samples, stopped, None, 0, 0, True)
            continue
        part, begins, end = order.components[position], order.count(position, after.lo), order.count(position, after.hi)
        alike = [each for each in earlier if _same_shuffle(each[0], order)]
        same = not earlier or earlier[-1] in alike
        again: int | None
        never: int | None
        if same:
            read = _union([(each.count(at, lo), each.count(at, hi)) for each, at, lo, hi in alike])
            again = _overlap(read, begins, end)
            gap = min(stopped or 0, begins)
            never = begins - gap - _overlap(read, gap, begins)
        else:
            again, never = _places(earlier, (order, position, after.lo, after.hi), part.num_samples)
        yield CorpusJoin(after.run, step, corpus, part.digest, part.num_samples, stopped, begins, again, never, same)


def _same_shuffle(one: DataOrder, other: DataOrder) -> bool:
    return (one.seed, one.sequence_length) == (other.seed, other.sequence_length)


def _position_of(blend: ResolvedBlend, key: str) -> int:
    """The component of a blend that is a corpus, by digest or declared name; -1 if there is none."""
    keys = [part.digest or part.corpus for part in blend.components]
    return keys.index(key) if key in keys else -1


_Reads = tuple[DataOrder, int, int, int]
"""Order, component, first sample, end: what one run reads of a corpus."""


def _places(earlier: Sequence[_Reads], after: _Reads, num_samples: int) -> tuple[int | None, int | None]:
    """Samples of a corpus that were read before and are read again, and samples that nobody reads."""
    lengths = {order.sequence_length for order, *_ in (*earlier, after)}
    order, component, *_ = after
    if num_samples > _MOST_PLACES or len(lengths) > 1 or order.components[component].digest is None:
        return None, None
    before: NDArray[np.bool_] = np.zeros(num_samples, dtype=np.bool_)
    for each, at, lo, hi in earlier:
        before |= each.read_counts(at, lo, hi) > 0
    mine = order.read_counts(component, *after[2:]) > 0
    return int(np.count_nonzero(before & mine)), int(np.count_nonzero(~(before | mine)))


def _union(intervals: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same whole numbers in intervals [lo, hi) that do not touch, ascending.

    The package `portion` would do this and `_overlap`, but a dependency costs more than these ten lines.
    """
    joined: list[tuple[int, int]] = []
    for lo, hi in sorted(intervals):
        if joined and lo <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], hi)
        else:
            joined.append((lo, hi))
    return joined


def _overlap(intervals: Sequence[tuple[int, int]], lo: int, hi: int) -> int:
    """How many whole numbers of [lo, hi) are in disjoint intervals."""
    return sum(max(min(hi, end) - max(lo, start), 0) for start, end in intervals)
