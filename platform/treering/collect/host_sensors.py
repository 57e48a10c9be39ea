"""Readings of a node and of a rank's process by psutil; rates are differences of the kernel's counters over time.

A process's CPU counts 100 % for each core. The network is the node's: the kernel counts none by process.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import psutil

from treering.collect.nvml import Reading, reason_of

HOST_METRICS: Final = (
    "host/cpu_utilisation", "host/memory_used", "host/disk_read", "host/disk_written", "host/disk_free",
    "host/network_received", "host/network_sent",
)  # fmt: skip


class Rates:
    """How much counters grow a second.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._before: dict[str, tuple[float, float]] = {}

    def of(self, name: str, counter: Reading, unit: int = 1) -> Reading:
        """The rate since the last call with this name; nothing at the first one, and where the counter began again."""
        if counter.value is None:
            self._before.pop(name, None)
            return counter
        now, before = (self._clock(), float(counter.value)), self._before.get(name)
        self._before[name] = now
        if before is None or now[1] < before[1] or now[0] <= before[0]:
            return Reading()
        return Reading(round((now[1] - before[1]) * unit / (now[0] - before[0])))


class HostSensors:
    """Readings of the node.

    Args:
        folder: of the run; the free space is of its file system.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rates = Rates()
        psutil.cpu_percent()  # the first reading measures from here

    def read(self) -> dict[str, Reading]:
        """One reading of every host metric."""
        disk, network = attempt(psutil.disk_io_counters), attempt(psutil.net_io_counters)
        counters = {
            "host/disk_read": _of(disk, "read_bytes"),
            "host/disk_written": _of(disk, "write_bytes"),
            "host/network_received": _of(network, "bytes_recv"),
            "host/network_sent": _of(network, "bytes_sent"),
        }
        return {
            "host/cpu_utilisation": attempt(psutil.cpu_percent),
            "host/memory_used": attempt(lambda: psutil.virtual_memory().used),
            "host/disk_free": attempt(lambda: psutil.disk_usage(str(self._folder)).free),
            **{name: self._rates.of(name, counter) for name, counter in counters.items()},
        }


class ProcessSensors:
    """Readings of a process, and of the processes that it has started where it is another one.

    Args:
        process: its id; None: this process alone.
    """

    def __init__(self, process: int | None = None) -> None:
        self._whole = process is not None
        self._processes: dict[int, psutil.Process] = {}
        self._first: psutil.Process | None = attempt(partial(psutil.Process, process)).value
        self._rates = Rates()
        self._known()

    def read(self) -> dict[str, Reading]:
        """One reading of every process metric."""
        known = self._known()
        return {
            "process/cpu_utilisation": _total(lambda each: each.cpu_percent(), known),
            "process/rss": _total(lambda each: each.memory_info().rss, known),
            "process/read": self._rates.of("read", _total(lambda each: each.io_counters().read_bytes, known)),
            "process/written": self._rates.of("written", _total(lambda each: each.io_counters().write_bytes, known)),
        }

    def _known(self) -> list[psutil.Process]:
        """The processes, each the same object as before: it measures CPU since its last reading."""
        if self._first is None:
            return []
        found = [self._first]
        if self._whole:
            with suppress(psutil.Error):
                found += self._first.children(recursive=True)
        self._processes = {each.pid: self._processes.get(each.pid) or _begun(each) for each in found}
        return list(self._processes.values())


def attempt(function: Callable[[], Any]) -> Reading:
    """What a function returns, or why it does not."""
    try:
        found = function()
    except Exception as error:  # noqa: BLE001  (telemetry fails open)
        return Reading(reason=reason_of(error))
    return Reading(found) if found is not None else Reading(reason="the system does not count it")


def _begun(process: psutil.Process) -> psutil.Process:
    with suppress(psutil.Error):
        process.cpu_percent()
    return process


def _total(value: Callable[[psutil.Process], float], processes: Sequence[psutil.Process]) -> Reading:
    """The sum over processes; one that has ended meanwhile is left out, unless all have."""
    readings = [attempt(partial(value, each)) for each in processes]
    known = [reading.value for reading in readings if reading.value is not None]
    return Reading(sum(known)) if known else (*readings, Reading(reason="the process has ended"))[0]


def _of(counters: Reading, name: str) -> Reading:
    return counters if counters.value is None else Reading(getattr(counters.value, name))
