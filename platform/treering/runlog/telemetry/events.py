"""What changed on a node: its devices, reasons of missing readings, lost readings, XID errors; a line of JSON each.

Lines are few: each says only what is new. `host` and `devices` come once; `reasons` has a reason for each missing
metric, by `<metric>` or `<metric> of device N`; `lost` is how many readings this collector could not write so far.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from treering.files import SMALL_FILE_BYTES, open_regular

_NAME: Final = re.compile(r"^node-(\d{5,})\.events\.jsonl$")


@dataclass(frozen=True, slots=True)
class Xid:
    """An XID error that a driver reported.

    Attributes:
        at: Unix seconds.
        node: number of the node.
        device: NVML's index.
        code: NVIDIA's number of the error.
    """

    at: float
    node: int
    device: int
    code: int


@dataclass(slots=True)
class Events:
    """What changed in an attempt.

    Attributes:
        hosts: name by number of the node.
        devices: facts of each device, by node and NVML's index.
        reasons: why readings are missing, by metric; of all nodes together.
        lost: readings that could not be written.
        xids: XID errors in the order in which nodes wrote them.
    """

    hosts: dict[int, str] = field(default_factory=dict)
    devices: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    lost: int = 0
    xids: list[Xid] = field(default_factory=list)


def events_file(folder: Path, node: int) -> Path:
    """The file of a node's events in an attempt's `telemetry/`."""
    return folder / f"node-{node:05d}.events.jsonl"


def append_event(folder: Path, node: int, event: Mapping[str, Any]) -> None:
    """Appends an event.

    Raises:
        OSError: it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    descriptor = os.open(events_file(folder, node), flags, 0o644)
    try:
        content = f"{json.dumps(event, separators=(',', ':'))}\n".encode()
        if os.write(descriptor, content) != len(content):
            os.write(descriptor, b"\n")  # what is torn must not swallow the next event
            raise OSError("an event of telemetry was cut")
    finally:
        os.close(descriptor)


def read_events(folder: Path) -> Events:
    """The events of all nodes; a line that is no event is left out."""
    found = Events()
    for path in sorted(folder.glob("node-*.events.jsonl")):
        match = _NAME.match(path.name)
        if match:
            lost = [0]
            for event in _lines(path):
                _take(found, int(match[1]), event, lost)
            found.lost += sum(lost)
    return found


def _take(found: Events, node: int, event: Mapping[str, Any], lost: list[int]) -> None:
    try:
        if "host" in event:
            found.hosts[node] = str(event["host"])
            lost.append(0)  # another collector of the node, which counts from 0
        for device in event.get("devices", ()):
            found.devices[node, int(device["index"])] = dict(device)
        found.reasons |= {str(name): str(reason) for name, reason in event.get("reasons", {}).items()}
        lost[-1] = int(event.get("lost", lost[-1]))
        found.xids += [
            Xid(float(event["time"]), node, int(xid["device"]), int(xid["code"])) for xid in event.get("xids", ())
        ]
    except (ValueError, KeyError, TypeError, AttributeError):
        return


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with open_regular(path) as file:
            content = file.read(SMALL_FILE_BYTES)
    except OSError:
        return
    for line in content.split(b"\n")[:-1]:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            yield event
