"""Telemetry of earlier versions: `rank-N.jsonl`, one line a reading of a rank, read from the end.

A line holds `time`, `rank`, `values` by metric, and where something changed `reasons` and `dropped`.
"""

import json
import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final

from treering.files import open_regular
from treering.runlog.telemetry.events import Events
from treering.runlog.telemetry.readings import NONE, Readings

_RANK_FILE = re.compile(r"^rank-(\d+)\.jsonl$")
_LEAST_BYTES: Final = 4 << 10


def old_files(folder: Path) -> list[Path]:
    """The files in an attempt's `telemetry/`, in order of ranks."""
    found = [(int(match[1]), path) for path in folder.glob("rank-*.jsonl") if (match := _RANK_FILE.match(path.name))]
    return [path for _rank, path in sorted(found)]


def bytes_of_each(files: Collection[Path], each_bytes: int, all_bytes: int) -> int:
    """Newest bytes to read of each file: every rank is read, of many ranks less of each.

    Args:
        files: of all ranks.
        each_bytes: of a file at most.
        all_bytes: of all files together.
    """
    return max(_LEAST_BYTES, min(each_bytes, all_bytes // max(1, len(files))))


def read_old(files: Collection[Path], columns: Collection[str] | None, each_bytes: int, all_bytes: int) -> Readings:
    """The newest rows of all files.

    Args:
        files: of all ranks.
        columns: metrics to read; None: all.
        each_bytes: newest bytes to read of each file at most.
        all_bytes: of all files together.
    """
    size = bytes_of_each(files, each_bytes, all_bytes)
    return Readings.joined(_read(path, columns, size) for path in files)


def read_old_events(files: Collection[Path], each_bytes: int, all_bytes: int) -> Events:
    """Reasons of missing readings, and how many were lost, as the newest rows of all files say."""
    found = Events()
    size = bytes_of_each(files, each_bytes, all_bytes)
    for path in files:
        lost = 0
        for row in _rows(path, size):
            if isinstance(row.get("reasons"), dict):
                found.reasons |= {str(name): str(reason) for name, reason in row["reasons"].items()}
            if isinstance(row.get("dropped"), int):
                lost = row["dropped"]
        found.lost += lost
    return found


def _read(path: Path, columns: Collection[str] | None, size: int) -> Readings:
    """The newest rows of a file; the rank stands for its node, whose only device it has."""
    times: list[float] = []
    ranks: list[int] = []
    devices: list[int] = []
    values: dict[str, list[Any]] = {}
    for row in _rows(path, size):
        for name, value in row["values"].items():
            if columns is None or name in columns:
                known = values.setdefault(name, [])
                known.extend([None] * (len(times) - len(known)))
                known.append(value)
        times.append(row["time"])
        ranks.append(row["rank"] if isinstance(row.get("rank"), int) else NONE)
        devices.append(0 if "device/power" in row["values"] else NONE)
    for known in values.values():
        known.extend([None] * (len(times) - len(known)))
    return Readings.of(times, ranks, ranks, devices, values)


def _rows(path: Path, max_bytes: int) -> Iterator[dict[str, Any]]:
    """The complete rows in the last bytes; one without a time or without values is left out, and so is a torn one."""
    try:
        with open_regular(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - max_bytes))
            lines = file.read().split(b"\n")
    except OSError:
        return
    for line in lines[1 if size > max_bytes else 0 : -1]:
        try:
            row = json.loads(line)
            row["time"] = float(row["time"])
            row["values"].items()
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
        yield row
