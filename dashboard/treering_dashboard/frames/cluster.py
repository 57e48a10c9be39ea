"""All devices of a run at a glance: the newest minute of each, the newest steps of every rank, and who is behind.

Readings of a live attempt are read on from where the last look ended, whoever looks, and an answer is kept for some
seconds, so that many viewers of a large run cost no more than one.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import streamlit as st

from treering.errors import EvidenceError
from treering.metrics.device_grid import DeviceGrid
from treering.metrics.stragglers import RankSteps, Straggler, rank_steps, stragglers, whole_nodes
from treering.metrics.symptoms import Symptom, symptoms
from treering.runlog.directory import RunDirectory
from treering.runlog.find import AnyRun
from treering.runlog.folders import TELEMETRY, AttemptFolder
from treering.runlog.recorded_directory import RecordedAttempt, RecordedRunDirectory
from treering.runlog.telemetry.events import Events
from treering.runlog.telemetry.reading import Telemetry, TelemetryFolder
from treering.runlog.telemetry.readings import Floats, Ints
from treering.runlog.telemetry.schema import STEP_METRICS
from treering_dashboard.frames import cached

GRID_S: Final = 60.0
"""Seconds of readings that the grid is the mean of."""
MOST_ROWS: Final = 1_000_000
"""Newest readings that are read for the steps: 2,240 ranks leave as many in seven minutes."""
COLUMNS: Final = 60
"""Most columns of steps."""
COMPUTE: Final = "rank/compute"
LOOK_S: Final = 5
"""Seconds for which an answer about a live run is kept."""
_STEPS: Final = 20_000


@dataclass(frozen=True)
class Cluster:
    """The devices and ranks of a run's newest attempt that has readings.

    Attributes:
        attempt: number of the attempt, and whether it is the newest.
        newest: whether the attempt is the run's newest.
        grid: the newest minute.
        hosts: name of each node.
        steps: by metric of the ranks, over the newest steps; empty where no step has ended.
        ranks: every rank beside its peers, the slowest first.
        symptoms: what sensors say, by cell of the grid.
        reasons: why readings are missing, by metric.
        world_size: how many ranks the attempt has; 0 where its header does not hold.
        read_until: Unix seconds of the newest reading; 0 where none is left.
        lost: readings that the collectors lost.
        damaged: files that cannot be read.
        deleted: readings that `treering gc` deleted.
    """

    attempt: int
    newest: bool
    grid: DeviceGrid
    hosts: dict[int, str]
    steps: dict[str, RankSteps]
    ranks: tuple[Straggler, ...]
    symptoms: dict[int, tuple[Symptom, ...]]
    reasons: dict[str, str]
    world_size: int
    read_until: float
    lost: int
    damaged: int
    deleted: int

    @cached_property
    def flagged(self) -> list[Straggler]:
        """The ranks that are slower than noise, the slowest first."""
        return [each for each in self.ranks if each.flagged]

    @cached_property
    def slow_nodes(self) -> dict[int, int]:
        """Nodes all of whose ranks are slow, with their number."""
        return whole_nodes(self.flagged, self.grid)

    @cached_property
    def num_ranks(self) -> int:
        """How many ranks have left readings in the newest minute."""
        return len(np.unique(self.grid.ranks[self.grid.ranks >= 0]))

    def host(self, node: int) -> str:
        """Name of a node, with its number where several have the same or it has none."""
        name = self.hosts.get(node, "")
        return name if name and self._names.get(name) == 1 else f"{name or 'node'} ({node})"

    @cached_property
    def _names(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for name in self.hosts.values():
            found[name] = found.get(name, 0) + 1
        return found


class _Reader:
    """Reads an attempt's telemetry for all viewers, one at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = TelemetryFolder(folder)
        self._lock = threading.Lock()

    def read(self) -> tuple[Telemetry, Telemetry, Events]:
        """The newest minute of everything, the newest steps of the ranks, and the events."""
        with self._lock:
            minute = self._folder.read(newest_s=GRID_S)
            steps = self._folder.read(STEP_METRICS, most_rows=MOST_ROWS)
            return minute, steps, self._folder.events()


@st.cache_resource(max_entries=16, show_spinner=False)
def _reader(folder: str) -> _Reader:
    return _Reader(Path(folder))


def cluster(run: AnyRun, *, alive: bool) -> Cluster | None:
    """The devices of a run as of now; None where no attempt has readings."""
    seen = (("", 0, int(time.time() // LOOK_S)),) if alive else cached.sensors_version(run)
    return _cluster(str(run.path), seen, recorded=isinstance(run, RecordedRunDirectory))


@st.cache_resource(max_entries=8, show_spinner=False)
def _cluster(path: str, seen: cached.Version, *, recorded: bool) -> Cluster | None:
    del seen  # part of the key alone
    run: AnyRun = RecordedRunDirectory(Path(path)) if recorded else RunDirectory(Path(path))
    attempts: Sequence[AttemptFolder[Any]] = run.attempts()
    attempt = next((each for each in reversed(attempts) if each.telemetry.exists()), None)
    if attempt is None:
        return None
    minute, of_steps, events = _reader(str(attempt.path / TELEMETRY)).read()
    grid = DeviceGrid.of(minute.readings, events)
    world_size, per_stage = _sizes(attempt)
    ended = _ended(run, attempt.number)
    steps = {
        metric: found
        for metric in STEP_METRICS
        if (found := rank_steps(of_steps.readings, metric, *ended, ranks_per_stage=per_stage, most=COLUMNS)).ranks.size
    }
    texts = symptoms(grid, events)
    return Cluster(
        attempt=attempt.number,
        newest=attempt is attempts[-1],
        grid=grid,
        hosts=events.hosts,
        steps=steps,
        ranks=tuple(stragglers(steps[COMPUTE], grid, texts)) if COMPUTE in steps else (),
        symptoms=texts,
        reasons=events.reasons,
        world_size=world_size,
        read_until=float(minute.readings.times.max()) if len(minute.readings) else 0.0,
        lost=events.lost,
        damaged=minute.damaged + of_steps.damaged,
        deleted=minute.left_out,
    )


def _ended(run: AnyRun, attempt: int) -> tuple[Ints, Floats]:
    """The newest steps of an attempt on the path, and when each had ended."""
    path = cached.frames(run).path.last(_STEPS)
    if not len(path):
        return np.array([], np.int64), np.array([], np.float64)
    own = path.fact("attempt") == attempt
    return path.fact("step")[own].astype(np.int64), path.fact("ended_at")[own]


def _sizes(attempt: AttemptFolder[Any]) -> tuple[int, int]:
    """How many ranks an attempt has, and how many follow each other in a pipeline stage; 0 where it is not known."""
    try:
        if isinstance(attempt, RecordedAttempt):
            return attempt.header.world_size, 0
        layout = attempt.header.layout
    except EvidenceError:
        return 0, 0
    return layout.world_size, layout.tensor * layout.data if layout.pipeline > 1 else 0
