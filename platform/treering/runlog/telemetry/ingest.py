"""Puts closed live files of all nodes into parts, with their roll-up and the energy of the devices.

One process an attempt does it, once a minute. A part is on disk under its name before its live files are removed; what
a killed process left between the two is removed by the next one.
"""

import fcntl
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from treering.files import write_durably
from treering.runlog.telemetry.live import LIVE, LiveFile, Segment, closed, segments
from treering.runlog.telemetry.minutes import MINUTES, Minute, encode_minutes, joined, minutes_of, read_minutes
from treering.runlog.telemetry.parts import (
    PART_ROWS,
    PARTS,
    DamagedPartError,
    PartName,
    encode,
    part_names,
    read_part,
    sources,
    superseded,
)
from treering.runlog.telemetry.readings import Readings
from treering.runlog.telemetry.totals import COLUMNS, TOTALS_FILE, Totals

_LOCK: Final = ".lock"
MERGED: Final = 2
"""New rows take in the part before if it is at most so many times as large: the number of small parts stays low."""
_BATCH_ROWS: Final = 1 << 18
"""Rows of live files that are read before a part is written, where many have piled up."""


def ingest(folder: Path, ended: Collection[int] = ()) -> int:
    """Makes parts of the closed live files.

    Args:
        folder: the attempt's `telemetry/`.
        ended: nodes that write no more: their newest file is taken as well.

    Returns:
        How many readings went into parts; 0 also where another process does it.

    Raises:
        OSError: the disk is full, or the folder cannot be written; the live files stay.
    """
    with _locked(folder) as alone:
        if not alone:
            return 0
        _tidy(folder)
        waiting = closed(segments(folder), ended)
        rows = 0
        for readings, taken in _batches(folder, waiting):
            if len(readings):
                _write(folder, readings.sorted(), taken)
                rows += len(readings)
            _remove(folder, taken)
        return rows


def totals_of(folder: Path, names: Sequence[PartName]) -> tuple[Totals, int]:
    """The energy of all devices in the parts, and how many parts could not be read."""
    totals, last = Totals.read(folder)
    damaged = 0
    for name in names:
        if name.last > last:
            try:
                readings = read_part(folder, name, COLUMNS)
            except DamagedPartError:
                damaged += 1
                continue
            totals.add(readings)  # rows that are in the totals already are not later than their newest
    return totals, damaged


def _batches(folder: Path, waiting: Sequence[Segment]) -> Iterator[tuple[Readings, list[Segment]]]:
    pieces: list[Readings] = []
    taken: list[Segment] = []
    for segment in waiting:
        file = LiveFile()
        try:
            file.look(folder, segment)
        except OSError:  # it stays, for the next time
            continue
        pieces.append(file.readings)
        taken.append(segment)
        if sum(map(len, pieces)) >= _BATCH_ROWS:
            yield Readings.joined(pieces), taken
            pieces, taken = [], []
    if taken:
        yield Readings.joined(pieces), taken


def _write(folder: Path, readings: Readings, taken: Sequence[Segment]) -> None:
    """Writes the roll-up, then the part, then the totals; small parts before go into it."""
    names = part_names(folder)
    totals, _damaged = totals_of(folder, names)
    totals.add(readings)
    last = names[-1].last + 1 if names else 0
    minutes: list[Minute] = minutes_of(readings)
    every, first, merged = [readings], last, []
    rows = len(readings)
    for name in reversed(names):
        if name.rows > MERGED * rows or rows + name.rows > PART_ROWS:
            break
        try:
            every.append(read_part(folder, name))
            minutes += _minutes(folder, name, every[-1])
        except DamagedPartError:
            break
        rows, first = rows + name.rows, name.first
        merged.append(name)
    whole = Readings.joined(reversed(every)).sorted() if merged else readings
    name = PartName.of(first, last, whole)
    for subfolder in (PARTS, MINUTES):
        (folder / subfolder).mkdir(exist_ok=True)
    write_durably(folder / MINUTES / str(name), encode_minutes(joined(minutes)))
    write_durably(folder / PARTS / str(name), encode(whole, taken))
    write_durably(folder / TOTALS_FILE, totals.to_text(last))
    _remove_parts(folder, merged)


def _minutes(folder: Path, name: PartName, readings: Readings) -> list[Minute]:
    try:
        return read_minutes(folder, name)
    except (DamagedPartError, FileNotFoundError):
        return minutes_of(readings)


def _tidy(folder: Path) -> None:
    """Removes what a killed process left: merged parts, and live files whose readings are in the newest part."""
    _remove_parts(folder, superseded(folder))
    names = part_names(folder)
    if names:
        with suppress(DamagedPartError, FileNotFoundError):
            _remove(folder, sources(folder, names[-1]))


def _remove(folder: Path, taken: Sequence[Segment] | set[Segment]) -> None:
    for segment in taken:
        with suppress(OSError):
            (folder / LIVE / segment.name).unlink()


def _remove_parts(folder: Path, names: Sequence[PartName]) -> None:
    for name in names:
        for subfolder in (PARTS, MINUTES):
            with suppress(OSError):
                (folder / subfolder / str(name)).unlink()


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Whether this process alone writes parts; a file system without locks lets every one."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        except OSError:
            pass
        yield True
    finally:
        os.close(descriptor)
