"""The collector of a node: a process beside the ranks that reads the sensors and writes the telemetry of all of them.

The first rank of the node starts it (`treering.collect.telemetry`). Ranks send it what only they know, as datagrams,
and never wait. It ends when that rank says so, or is gone. Telemetry fails open: what fails is counted, and the next
sample is taken.
"""

import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from treering.collect.device_sensors import DeviceSensors, XidEvents
from treering.collect.host_sensors import HostSensors
from treering.collect.nvml import Nvml, Reading, open_nvml, reason_of
from treering.collect.rank_messages import MOST_BYTES, RankMessage, address
from treering.runlog.telemetry.events import append_event
from treering.runlog.telemetry.live import LiveWriter
from treering.runlog.telemetry.readings import NONE

MINUTE_S: Final = 60.0
"""Seconds after which a live file is closed, and closed ones are put into a part."""
_POLL_S: Final = 0.2
_LAST_MESSAGES_S: Final = 1.0
"""Seconds to wait at the end for what the other ranks of the node say last."""


@dataclass(slots=True)
class _Rank:
    devices: tuple[int, ...]
    lost: int = 0
    ended: bool = False
    waiting: list[RankMessage] = field(default_factory=list)


class NodeCollector:
    """Samples a node.

    Args:
        folder: the attempt's `telemetry/`.
        node: number of the node, the lowest rank on it.
        ranks: how many ranks it has.
        ingests: whether this collector puts the live files of all nodes into parts.
    """

    def __init__(self, folder: Path, node: int, *, ranks: int = 1, ingests: bool) -> None:
        self._folder = folder
        self._node = node
        self._num_ranks = ranks
        self._ingests = ingests
        self._live = LiveWriter(folder, node)
        self._segment_began = time.monotonic()
        self._host = HostSensors(folder.parent)
        self._nvml, self._no_nvml = open_nvml()
        self._handles: dict[int, Any] = dict(enumerate(self._nvml.handles())) if self._nvml is not None else {}
        self._sensors: dict[int, DeviceSensors] = {}
        self._xids: XidEvents | None = None
        self._ranks: dict[int, _Rank] = {}
        self._said: set[tuple[str, str]] = set()
        self._events: list[dict[str, Any]] = []
        self._lost = self._said_lost = 0
        self._ingesting: threading.Thread | None = None
        self._events.append({"time": time.time(), "host": socket.gethostname()})

    @property
    def all_ended(self) -> bool:
        """Whether every rank of the node has said its last."""
        return sum(rank.ended for rank in self._ranks.values()) >= self._num_ranks

    def hear(self, message: RankMessage) -> None:
        """Takes a message of a rank."""
        rank = self._ranks.setdefault(message.rank, _Rank(message.devices))
        rank.devices, rank.lost, rank.ended = message.devices, message.lost, message.ends
        rank.waiting.append(message)

    def sample(self) -> None:
        """Takes and writes a sample; a failure of any kind is counted, never raised."""
        try:
            self._sample()
        except Exception as error:  # noqa: BLE001  (telemetry fails open)
            self._lost += 1
            self._say({"collector": reason_of(error)})
        lost = self._lost + sum(rank.lost for rank in self._ranks.values())
        if lost != self._said_lost:
            self._events.append({"time": time.time(), "lost": lost})
        try:
            while self._events:
                append_event(self._folder, self._node, self._events[0])
                self._said_lost = self._events.pop(0).get("lost", self._said_lost)
        except OSError:
            del self._events[_MOST_EVENTS:]
        if time.monotonic() - self._segment_began >= MINUTE_S:
            self._end_segment()

    def close(self) -> None:
        """Ends the live file, and puts it into a part where there are parts already: a run of a minute has none."""
        self._live.close_segment()
        if self._ingesting is not None:
            self._ingesting.join()
            self._ingest((self._node,))
        for sensors in self._sensors.values():
            sensors.close()
        if self._xids is not None:
            self._xids.close()
        if self._nvml is not None:
            self._nvml.close()

    def _sample(self) -> None:
        moment = time.time()
        rows: dict[tuple[int, int], dict[str, Reading]] = {(NONE, NONE): self._host.read()}
        devices = self._read_devices()
        for number, rank in sorted(self._ranks.items()):
            own = _averaged(rank.waiting)
            rank.waiting.clear()
            for device in rank.devices or (NONE,):
                rows[number, device] = {**own, **devices.pop(device, {})}
                own = {}
        names = dict.fromkeys(
            name for row in rows.values() for name, reading in row.items() if reading.value is not None
        )
        values = {name: [row.get(name, Reading()).value for row in rows.values()] for name in names}
        self._say({name: each.reason for row in rows.values() for name, each in row.items() if each.reason})
        try:
            self._live.append(moment, [rank for rank, _device in rows], [device for _rank, device in rows], values)
        except OSError as error:
            self._lost += len(rows)
            self._say({"live": reason_of(error)})

    def _read_devices(self) -> dict[int, dict[str, Reading]]:
        wanted = sorted({device for rank in self._ranks.values() for device in rank.devices})
        if not wanted:
            if self._ranks:
                self._say({"device": self._no_nvml or "the ranks of this node compute on the processor"})
            return {}
        if self._nvml is None:
            self._say({"device": self._no_nvml or ""})
            return {}
        for device in set(wanted) - self._sensors.keys():
            if device in self._handles:
                self._begin_device(self._nvml, device)
        found = {device: self._sensors[device].read() for device in wanted if device in self._sensors}
        for device, code in self._xids.read() if self._xids is not None else ():
            self._events.append({"time": time.time(), "xids": [{"device": device, "code": code}]})
            found.setdefault(device, {})["device/xid"] = Reading(code)
        return found

    def _begin_device(self, nvml: Nvml, device: int) -> None:
        handle = self._handles[device]
        self._sensors[device] = DeviceSensors(nvml, handle)
        facts = {
            "index": device,
            "name": nvml.read("nvmlDeviceGetName", handle).value,
            "uuid": nvml.read("nvmlDeviceGetUUID", handle).value,
        }
        self._events.append({"time": time.time(), "devices": [facts]})
        if self._xids is None:
            self._xids = XidEvents(nvml, self._handles)
            for reason in self._xids.reasons.values():
                self._say({"device/xid": reason})

    def _say(self, reasons: Mapping[str, str | None]) -> None:
        """Writes reasons that were not written before: each once, however often it comes back."""
        news = {name: reason for name, reason in reasons.items() if reason and (name, reason) not in self._said}
        if news:
            self._said.update(news.items())
            self._events.append({"time": time.time(), "reasons": news})

    def _end_segment(self) -> None:
        self._segment_began = time.monotonic()
        self._live.close_segment()
        if self._ingests and (self._ingesting is None or not self._ingesting.is_alive()):
            self._ingesting = threading.Thread(target=self._ingest, name="ingest", daemon=True)
            self._ingesting.start()

    def _ingest(self, ended: Collection[int] = ()) -> None:
        try:
            from treering.runlog.telemetry.ingest import ingest  # noqa: PLC0415 - a run of a minute loads no Arrow

            ingest(self._folder, ended)
        except Exception as error:  # noqa: BLE001  (telemetry fails open: the live files stay and are read)
            self._say({"parts": reason_of(error)})


_MOST_EVENTS: Final = 1000
"""Events that wait for a full disk at most."""


def _averaged(messages: list[RankMessage]) -> dict[str, Reading]:
    """What a rank said since the last sample: means of its steps, and the newest of everything else."""
    found: dict[str, Reading] = {}
    steps: dict[str, list[float]] = {}
    for message in messages:
        for name, value in message.values.items():
            if name.startswith("rank/"):
                steps.setdefault(name, []).append(value)
            else:
                found[name] = Reading(value)
        found |= {name: Reading(reason=reason) for name, reason in message.reasons.items()}
    return found | {name: Reading(sum(values) / len(values)) for name, values in steps.items()}


def run(folder: Path, node: int, interval_s: float, parent: int, *, ranks: int, ingests: bool) -> None:
    """Collects until the rank that started this process says so, or is gone."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as inbox:
        try:
            inbox.bind(address(folder))
        except OSError:
            return  # the node has a collector of this attempt
        inbox.setblocking(False)
        collector = NodeCollector(folder, node, ranks=ranks, ingests=ingests)
        due = time.monotonic() + interval_s
        stops = False
        while not stops and os.getppid() == parent:
            stops = _listen(inbox, collector, max(0.0, min(_POLL_S, due - time.monotonic())))
            now = time.monotonic()
            if now >= due:
                collector.sample()
                due = max(due + interval_s, now)
        end = time.monotonic() + _LAST_MESSAGES_S
        while stops and not collector.all_ended and time.monotonic() < end:
            _listen(inbox, collector, _POLL_S)
        collector.sample()
        collector.close()


def _listen(inbox: socket.socket, collector: NodeCollector, seconds: float) -> bool:
    """Takes the messages that come within some seconds; whether one of them ends the collector."""
    select.select([inbox], [], [], seconds)
    stops = False
    with suppress(BlockingIOError):
        while True:
            message = RankMessage.parse(inbox.recv(MOST_BYTES))
            if message is not None:
                collector.hear(message)
                stops = stops or message.stops
    return stops


def main() -> None:
    """`python -m treering.collect.node_collector FACTS`, facts as JSON."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the ranks end after their step, and this process after them
    facts = json.loads(sys.argv[1])
    folder = Path(facts["folder"])
    try:
        run(
            folder,
            facts["node"],
            facts["interval_s"],
            facts["parent"],
            ranks=facts["ranks_here"],
            ingests=facts["ingests"],
        )
    except Exception as error:  # noqa: BLE001  (nobody reads what this process prints)
        with suppress(OSError):
            reason = f"{type(error).__name__}: {error}"
            append_event(folder, facts["node"], {"time": time.time(), "reasons": {"collector": reason}})
        sys.exit(1)


if __name__ == "__main__":
    main()
