"""Which ranks are slower than their peers, and why: the newest steps of every rank, compared within a step.

Training is synchronous: all ranks wait for the one that computes longest. A rank's peers are the ranks of its pipeline
stage, which do the same work; where no layout is known, all ranks. A rank counts as a straggler if it computes at least
2 % longer than the median of its peers, and its distance is at least six times the usual one (1.4826 times the median
absolute deviation).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from treering.metrics.device_grid import DeviceGrid
from treering.metrics.symptoms import Symptom
from treering.runlog.telemetry.readings import Floats, Ints, Readings

EXCESS: Final = 0.02
"""Share of the peers' median by which a straggler computes longer at least."""
SCORE: Final = 6.0
"""Usual distances between a straggler and its peers at least."""
FEWEST_PEERS: Final = 4
"""With fewer ranks the usual distance is not known, and no rank is judged."""
_LEAST_SPREAD: Final = 0.001


@dataclass(frozen=True, slots=True)
class RankSteps:
    """A number of every rank over the newest steps.

    Attributes:
        steps: the last step of each column.
        ranks: of each row.
        values: means over the steps of a column, one row a rank; NaN without a reading.
        peers: number of each rank's group of peers.
    """

    steps: Ints
    ranks: Ints
    values: Floats
    peers: Ints

    def excess(self) -> Floats:
        """By how much each value is above the median of its peers in the same column, as a share of it."""
        found = np.full(self.values.shape, np.nan)
        with np.errstate(all="ignore"):
            for group in np.unique(self.peers):
                rows = self.peers == group
                found[rows] = self.values[rows] / _medians(self.values[rows], 0) - 1
        return found


@dataclass(frozen=True, slots=True)
class Straggler:
    """A rank beside its peers.

    Attributes:
        rank: global rank.
        cell: its first cell in the grid, -1 where the grid has none.
        seconds: what it computes in a step.
        excess: by how much that is above the peers' median, a share of it.
        score: the same in usual distances between peers; NaN where there are too few peers to know them.
        behind: in how many columns it was above the median.
        seen: of how many.
        symptoms: what its sensors say that others' do not.
    """

    rank: int
    cell: int
    seconds: float
    excess: float
    score: float
    behind: int
    seen: int
    symptoms: tuple[Symptom, ...]

    @property
    def flagged(self) -> bool:
        """Whether it is slower than noise and by enough to matter."""
        return self.excess >= EXCESS and self.score >= SCORE


def rank_steps(
    readings: Readings, metric: str, steps: Ints, ended_at: Floats, *, ranks_per_stage: int, most: int
) -> RankSteps:
    """The readings of a metric by rank and step.

    A rank says once an interval what its steps since the last reading took on average. A reading belongs to the last
    step that had ended when it was taken; clocks of nodes that disagree move it to a neighbour.

    Args:
        readings: of the newest steps.
        metric: key of the metric catalog.
        steps: the newest steps of the path.
        ended_at: Unix seconds at which each had ended.
        ranks_per_stage: ranks of a pipeline stage, which follow each other; 0: all ranks are peers.
        most: columns at most; more steps share columns.
    """
    column = readings.column(metric)
    at = np.searchsorted(ended_at, readings.times, "right") - 1
    rows = np.flatnonzero(np.isfinite(column) & (readings.ranks >= 0) & (at >= 0))
    ranks, of_rank = np.unique(readings.ranks[rows], return_inverse=True)
    used, of_step = np.unique(at[rows], return_inverse=True)
    width = -(-len(used) // most) if len(used) else 1
    of_column = of_step // width
    ends = np.minimum(np.arange(width - 1, len(used) + width - 1, width), len(used) - 1)
    shape = (len(ranks), len(ends))
    places = of_rank * shape[1] + of_column
    counts = np.bincount(places, minlength=shape[0] * shape[1])
    sums = np.bincount(places, column[rows], shape[0] * shape[1])
    means = np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)
    peers = ranks // ranks_per_stage if ranks_per_stage else np.zeros_like(ranks)
    return RankSteps(steps[used[ends]], ranks, means.reshape(shape), peers)


def stragglers(computed: RankSteps, grid: DeviceGrid, found: dict[int, tuple[Symptom, ...]]) -> list[Straggler]:
    """Every rank beside its peers, the one that is farthest behind first.

    Args:
        computed: `rank/compute` by rank and step.
        grid: the cells of the ranks.
        found: what their sensors say, see `symptoms`.
    """
    if not computed.values.size:
        return []
    excess = computed.excess()
    typical, seconds = _medians(excess, 1), _medians(computed.values, 1)
    scores = np.full(len(typical), np.nan)
    for group in np.unique(computed.peers):
        rows = computed.peers == group
        own = typical[rows]
        if np.isfinite(own).sum() >= FEWEST_PEERS:
            middle = np.nanmedian(own)
            spread = max(1.4826 * float(np.nanmedian(np.abs(own - middle))), _LEAST_SPREAD)
            scores[rows] = (own - middle) / spread
    cells = _first_cells(grid, computed.ranks)
    behind, seen = (excess > 0).sum(axis=1), np.isfinite(excess).sum(axis=1)
    order = np.argsort(-np.where(np.isfinite(typical), typical, -np.inf), kind="stable")
    return [
        Straggler(
            int(computed.ranks[row]),
            cells[row],
            float(seconds[row]),
            float(typical[row]),
            float(scores[row]),
            int(behind[row]),
            int(seen[row]),
            found.get(cells[row], ()),
        )
        for row in order.tolist()
    ]


def whole_nodes(flagged: Sequence[Straggler], grid: DeviceGrid) -> dict[int, int]:
    """Nodes of several ranks, all of which are stragglers, with their number of ranks: look at the node."""
    of_ranks = grid.ranks >= 0
    _ranks, first = np.unique(grid.ranks[of_ranks], return_index=True)
    nodes, counts = np.unique(grid.nodes[of_ranks][first], return_counts=True)
    behind: dict[int, int] = {}
    for each in flagged:
        if each.cell >= 0:
            node = int(grid.nodes[each.cell])
            behind[node] = behind.get(node, 0) + 1
    every = dict(zip(nodes.tolist(), counts.tolist(), strict=True))
    return {node: count for node, count in behind.items() if count > 1 and count == every[node]}


def _first_cells(grid: DeviceGrid, ranks: Ints) -> list[int]:
    first = {rank: cell for cell, rank in reversed(list(enumerate(grid.ranks.tolist())))}
    return [first.get(rank, -1) for rank in ranks.tolist()]


def _medians(values: Floats, axis: int) -> Floats:
    """Medians without what is missing; NaN where everything is, of which numpy's own warns."""
    ordered = np.sort(values, axis=axis)  # NaN last
    counts = np.isfinite(values).sum(axis=axis)
    low, high = (np.expand_dims(np.maximum(place, 0), axis) for place in ((counts - 1) // 2, counts // 2))
    low, high = (np.take_along_axis(ordered, np.minimum(each, values.shape[axis] - 1), axis) for each in (low, high))
    found: Floats = np.squeeze((low + high) / 2, axis)
    return found
