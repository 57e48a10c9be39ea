"""The newest readings of a node: a line of JSON a sample, in a file that is closed after a minute.

A line holds `time` (Unix seconds) and lists with one entry a row: `rank` and `device` (-1: none), and under `values`
each metric. A torn line was never acknowledged and is left out.
"""

import json
import os
import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from treering.files import open_regular
from treering.runlog.telemetry.readings import Readings
from treering.runlog.telemetry.schema import as_stored

LIVE: Final = "live"
_SEGMENT = re.compile(r"^node-(\d{5,})-(\d{13,})\.jsonl$")


class Segment(NamedTuple):
    """A file of live readings.

    Attributes:
        node: number of the node.
        began: Unix milliseconds, higher than those of the node's files before.
    """

    node: int
    began: int

    @property
    def name(self) -> str:
        """Name of the file."""
        return f"node-{self.node:05d}-{self.began:013d}.jsonl"

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Reads a file's name; None for any other file."""
        match = _SEGMENT.match(name)
        return cls(int(match[1]), int(match[2])) if match else None


def segments(folder: Path) -> list[Segment]:
    """The files of live readings in an attempt's `telemetry/`, by node and age."""
    try:
        names = [path.name for path in (folder / LIVE).iterdir()]
    except OSError:
        return []
    return sorted(segment for name in names if (segment := Segment.parse(name)))


def closed(found: Sequence[Segment], ended: Collection[int]) -> list[Segment]:
    """Those that no collector writes any more, by age: all but the newest of each node that has not ended."""
    newest = {segment.node: segment for segment in found}
    taken = [each for each in found if newest[each.node] != each or each.node in ended]
    return sorted(taken, key=lambda each: each.began)


class LiveWriter:
    """Appends the samples of a node.

    Args:
        folder: the attempt's `telemetry/`; it is made.
        node: number of the node.
    """

    def __init__(self, folder: Path, node: int) -> None:
        self._folder = folder
        self._node = node
        self._last = max((each.began for each in segments(folder) if each.node == node), default=0)
        self._descriptor: int | None = None
        self._torn = False

    def append(
        self, moment: float, ranks: Sequence[int], devices: Sequence[int], values: Mapping[str, Sequence[Any]]
    ) -> None:
        """Appends a sample with one `write(2)`: when this returns, the death of the process cannot take it back.

        Raises:
            OSError: the disk is full, or the file cannot be written.
        """
        stored = {name: [as_stored(name, value) for value in column] for name, column in values.items()}
        line = json.dumps(
            {"time": round(moment, 3), "rank": ranks, "device": devices, "values": stored}, separators=(",", ":")
        )
        content = (b"\n" if self._torn else b"") + line.encode() + b"\n"
        if self._descriptor is None:
            self._descriptor = self._begin()
        written = 0
        try:
            written = os.write(self._descriptor, content)
        finally:
            self._torn = written != len(content) and (self._torn or written > 0)
        if written != len(content):
            raise OSError(f"wrote {written} of {len(content)} bytes")

    def close_segment(self) -> None:
        """Ends the file: the next sample begins another one."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor, self._torn = None, False

    def _begin(self) -> int:
        (self._folder / LIVE).mkdir(parents=True, exist_ok=True)
        self._last = max(self._last + 1, round(time.time() * 1000))
        path = self._folder / LIVE / Segment(self._node, self._last).name
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)


@dataclass(slots=True)
class LiveFile:
    """What was read of a file that grows; each look reads what is new.

    Attributes:
        readings: the rows so far.
    """

    readings: Readings = field(default_factory=Readings.empty)
    _offset: int = 0

    def look(self, folder: Path, segment: Segment) -> None:
        """Reads the whole lines that are new.

        Raises:
            OSError: the file is gone or cannot be read.
        """
        with open_regular(folder / LIVE / segment.name) as file:
            file.seek(self._offset)
            content = file.read()
        end = content.rfind(b"\n") + 1
        if end:
            self._offset += end
            self.readings = Readings.joined([self.readings, parse(content[:end], segment.node)])


def parse(content: bytes, node: int) -> Readings:
    """The rows of whole lines; a line that is no sample is left out."""
    times: list[float] = []
    ranks: list[int] = []
    devices: list[int] = []
    values: dict[str, list[Any]] = {}
    for line in content.split(b"\n"):
        try:
            row = json.loads(line)
            moment, of_ranks, of_devices, columns = float(row["time"]), row["rank"], row["device"], row["values"]
            size = len(of_ranks)
            if not all(len(column) == size for column in (of_devices, *columns.values())):
                continue
            if not all(type(number) is int for number in (*of_ranks, *of_devices)):
                continue
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
        before = len(times)
        times.extend([moment] * size)
        ranks.extend(of_ranks)
        devices.extend(of_devices)
        for name, column in columns.items():
            known = values.setdefault(name, [])
            known.extend([None] * (before - len(known)))
            known.extend(column)
    for known in values.values():
        known.extend([None] * (len(times) - len(known)))
    return Readings.of(times, [node] * len(times), ranks, devices, values)
