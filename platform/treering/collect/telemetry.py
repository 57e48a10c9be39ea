"""Telemetry of a rank: a thread that sends what only its process knows to the collector of the node.

The first rank of a node starts the collector, a process (`treering.collect.node_collector`), and starts it again if it
dies. The training thread only appends to a queue. Telemetry fails open: after any error training goes on, and messages
that could not be sent are counted and shown. Units: utilisation in percent, power in watts, energy in joules, memory in
bytes, rates in bytes a second, temperature in degrees Celsius, clocks in MHz.
"""

import os
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from treering.collect.host_sensors import ProcessSensors
from treering.collect.nvml import Reading
from treering.collect.rank_messages import RankMessage, address
from treering.config.canonical import canonical_json

_RESTART_S: Final = 10.0
"""Seconds between two starts of a collector that dies."""
_WAITING: Final = 60
"""Messages that are kept until the collector listens."""
_PATIENCE_S: Final = 3.0
"""Seconds that the end of a training waits for the last readings."""


class StepReadings:
    """A rank's own numbers of its steps (`STEP_METRICS`), as means over the steps that ended since the last reading.

    The training thread adds, the thread of the telemetry reads; neither waits for the other.
    """

    def __init__(self) -> None:
        self._ended: deque[Mapping[str, float]] = deque()

    def add(self, values: Mapping[str, float]) -> None:
        """A step has ended."""
        self._ended.append(values)

    def read(self) -> dict[str, Reading]:
        """The means; empty where no step has ended."""
        steps = [self._ended.popleft() for _ in range(len(self._ended))]
        return {key: Reading(sum(step[key] for step in steps) / len(steps)) for key in steps[0]} if steps else {}


class RankTelemetry:
    """The telemetry of this rank, from `start` to `stop`.

    Args:
        folder: the attempt's `telemetry/`.
        rank: global rank.
        devices: NVML's index of each device that the rank computes on; none on the processor.
        first: whether it may start the node's collector; of several that may, one does.
        interval_s: seconds between two samples; a training that is shorter has no telemetry.
        ranks_here: ranks of this node, whose last messages the collector waits for.
        process: id of the process that trains, where this one only watches it.
    """

    def __init__(
        self,
        folder: Path,
        *,
        rank: int,
        devices: Sequence[int] = (),
        first: bool = True,
        interval_s: float = 1.0,
        ranks_here: int = 1,
        process: int | None = None,
    ) -> None:
        self._folder = folder.absolute()
        self._rank = rank
        self._devices = tuple(devices)
        self._first = first
        self._interval_s = interval_s
        self._ranks_here = ranks_here
        self._process = process
        self._steps = StepReadings()
        self._waiting: deque[bytes] = deque()
        self._lost = 0
        self._heard = False
        self._collector: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"telemetry-{rank}", daemon=True)

    def start(self) -> None:
        """Starts the thread; returns at once."""
        self._thread.start()

    def add(self, values: Mapping[str, float]) -> None:
        """A step of this rank has ended: its numbers by key of the metric catalog."""
        self._steps.add(values)

    def stop(self) -> None:
        """Sends the last readings and ends the collector; waits some seconds at most."""
        self._stopped.set()
        deadline = time.monotonic() + _PATIENCE_S
        if self._thread.is_alive():
            self._thread.join(timeout=_PATIENCE_S)
        if self._collector is not None:
            with suppress(subprocess.TimeoutExpired):
                self._collector.wait(max(0.0, deadline - time.monotonic()))

    @property
    def _collects(self) -> bool:
        """Whether the node's collector is a process of this rank."""
        return self._collector is not None and self._collector.poll() is None

    def _run(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as outbox:
            outbox.setblocking(False)
            sensors = ProcessSensors(self._process)
            while not self._stopped.wait(self._interval_s):
                self._tell(outbox, {**sensors.read(), **self._steps.read()})
                self._keep_collector()
            self._tell(outbox, {**sensors.read(), **self._steps.read()}, ends=True)

    def _tell(self, outbox: socket.socket, readings: Mapping[str, Reading], *, ends: bool = False) -> None:
        message = RankMessage(
            self._rank,
            self._devices,
            {name: float(reading.value) for name, reading in readings.items() if reading.value is not None},
            {name: reading.reason for name, reading in readings.items() if reading.reason},
            self._lost,
            ends=ends,
            stops=ends and self._collects,
        )
        # A short training may end while the node's collector still starts. Earlier messages say that one was wanted.
        starts = self._collects or (bool(self._waiting) and not self._heard)
        self._waiting.append(message.to_bytes())
        deadline = time.monotonic() + (_PATIENCE_S / 2 if ends and starts else 0.0)
        while self._waiting:
            try:
                outbox.sendto(self._waiting[0], address(self._folder))
                self._waiting.popleft()
                self._heard = True
            except OSError:  # nobody listens yet or any more, or the collector is behind
                if time.monotonic() >= deadline or (self._heard and not self._collects):
                    break
                time.sleep(0.02)
        while len(self._waiting) > _WAITING:
            self._waiting.popleft()
            self._lost += 1

    def _keep_collector(self) -> None:
        """Starts the collector of the node where none listens, and again some time after it died."""
        if not self._first or self._collects or not self._waiting:
            return
        if self._collector is not None and time.monotonic() - self._started_at < _RESTART_S:
            return
        self._started_at = time.monotonic()
        facts = {
            "folder": str(self._folder),
            "node": self._rank,
            "interval_s": self._interval_s,
            "ranks_here": self._ranks_here,
            "parent": os.getpid(),
            "ingests": self._rank == 0,
        }
        with suppress(OSError):  # no process can be started: the messages are counted as lost
            self._collector = subprocess.Popen(
                [sys.executable, "-P", "-m", "treering.collect.node_collector", canonical_json(facts)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
