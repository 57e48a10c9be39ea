"""The one reader of an attempt's telemetry: parts, live files and the form of earlier versions, as one table.

Live files are read before the parts are listed, and dropped where the newest part says that it has them: a reading that
moves from one to the other meanwhile is seen once.
"""

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from treering.runlog.telemetry.events import Events, read_events
from treering.runlog.telemetry.live import LiveFile, Segment, segments
from treering.runlog.telemetry.old_form import bytes_of_each, old_files, read_old, read_old_events
from treering.runlog.telemetry.readings import Readings
from treering.runlog.telemetry.totals import COLUMNS, ROLLED_UP_FILE, Totals

if TYPE_CHECKING:
    from treering.runlog.telemetry.minutes import Minute
    from treering.runlog.telemetry.parts import PartName

OLD_BYTES: Final = 4 << 20
"""Newest bytes that are read of each file of an earlier version at most: some five hours of a reading a second."""
OLD_ALL_BYTES: Final = 32 << 20
_MOST_LOOKS: Final = 8
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Telemetry:
    """What was read, and what was not.

    Attributes:
        readings: the rows.
        damaged: parts that cannot be read.
        left_out: rows that are not read, since there are more than asked for or they were deleted; the roll-up has
            them.
        cut: whether a file of an earlier version is longer than what is read of it.
    """

    readings: Readings
    damaged: int = 0
    left_out: int = 0
    cut: bool = False


class TelemetryFolder:
    """The telemetry of an attempt; keeps what it has read of live files, so that the next look reads what is new.

    Args:
        path: `attempts/NNNN/telemetry`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._live: dict[Segment, LiveFile] = {}

    def read(
        self,
        columns: Collection[str] | None = None,
        *,
        since: float = -np.inf,
        until: float = np.inf,
        newest_s: float = np.inf,
        most_rows: int | None = None,
        old_bytes: int = OLD_BYTES,
    ) -> Telemetry:
        """The readings between two moments.

        Args:
            columns: metrics to read; None: all.
            since: Unix seconds; later readings only.
            until: Unix seconds; readings up to it only.
            newest_s: seconds before the newest reading; earlier ones are not read.
            most_rows: about how many of the newest rows to read.
            old_bytes: newest bytes of each file of an earlier version.
        """
        return self._stable(
            lambda: self._read(columns, since, until, newest_s, most_rows=most_rows, old_bytes=old_bytes)
        )

    def minutes(self, metrics: Collection[str] | None = None) -> "list[Minute]":
        """The roll-up of all readings, by metric and time."""
        from treering.runlog.telemetry.minutes import joined, minutes_of, read_minutes  # noqa: PLC0415 - loads Arrow
        from treering.runlog.telemetry.parts import DamagedPartError  # noqa: PLC0415

        def read() -> "list[Minute]":
            live, names = self._look()
            found = minutes_of(Readings.joined(live).only(metrics))
            for name in names:
                try:
                    found += read_minutes(self.path, name, metrics)
                except (DamagedPartError, FileNotFoundError):
                    found += minutes_of(self._part(name, metrics) or Readings.empty())
            for name in self._deleted(names):
                with suppress(DamagedPartError, FileNotFoundError):
                    found += read_minutes(self.path, name, metrics)
            old = old_files(self.path)
            found += minutes_of(read_old(old, metrics, OLD_BYTES, OLD_ALL_BYTES)) if old else []
            return joined(found)

        return self._stable(read)

    def energy(self) -> tuple[Totals, int]:
        """The energy of every device, and how many parts could not be read."""

        def read() -> tuple[Totals, int]:
            live, names = self._look()
            totals, damaged = Totals(), 0
            if names or self._deleted(names):
                from treering.runlog.telemetry.ingest import totals_of  # noqa: PLC0415 - loads Arrow

                totals, damaged = totals_of(self.path, names)
            old = old_files(self.path)
            if old:
                totals.add(read_old(old, COLUMNS, OLD_BYTES, OLD_ALL_BYTES))
            totals.add(Readings.joined(live))
            return totals, damaged

        return self._stable(read)

    def events(self) -> Events:
        """What changed: devices, reasons of missing readings, lost readings, XID errors."""
        old = old_files(self.path)
        found = read_events(self.path)
        if old:
            earlier = read_old_events(old, OLD_BYTES, OLD_ALL_BYTES)
            found.reasons = earlier.reasons | found.reasons
            found.lost += earlier.lost
        return found

    def exists(self) -> bool:
        """Whether any reading was ever written."""
        files = bool(segments(self.path) or old_files(self.path))
        return files or any((self.path / name).is_dir() for name in ("parts", "minutes"))

    def _read(
        self,
        columns: Collection[str] | None,
        since: float,
        until: float,
        newest_s: float,
        *,
        most_rows: int | None,
        old_bytes: int,
    ) -> Telemetry:
        files, names = self._look()
        old = old_files(self.path)
        pieces = [read_old(old, columns, old_bytes, OLD_ALL_BYTES)] if old else []
        ends = [float(each.times.max()) for each in (*pieces, *files) if len(each)]
        since = max(since, max([*ends, *(name.until / 1000 for name in names)], default=0.0) - newest_s)
        live = Readings.joined(each.only(columns).between(since, until) for each in files)
        damaged, left_out, rows = 0, 0, len(live)
        for name in self._deleted(names):
            left_out += name.rows if name.until / 1000 > since and name.since / 1000 <= until else 0
        parts: list[Readings] = []
        for name in reversed(names):
            if name.until / 1000 <= since or name.since / 1000 > until:
                continue
            if most_rows is not None and rows >= most_rows:
                left_out += name.rows
                continue
            found = self._part(name, columns)
            damaged += found is None
            if found is not None:
                parts.append(found.between(since, until))
                rows += len(found)
        readings = Readings.joined([*(each.between(since, until) for each in pieces), *reversed(parts), live])
        most_bytes = bytes_of_each(old, old_bytes, OLD_ALL_BYTES)
        cut = any(file.stat().st_size > most_bytes for file in old)
        return Telemetry(readings, damaged, left_out, cut)

    def _look(self) -> "tuple[list[Readings], list[PartName]]":
        """The readings of each live file that is in no part, and the parts.

        Raises:
            FileNotFoundError: a part has gone into a merged one meanwhile.
        """
        self._live = {segment: self._live.get(segment, LiveFile()) for segment in segments(self.path)}
        for segment, file in list(self._live.items()):
            try:
                file.look(self.path, segment)
            except OSError:
                del self._live[segment]
        taken: set[Segment] = set()
        names: list[PartName] = []
        if (self.path / "parts").is_dir():
            from treering.runlog.telemetry.parts import DamagedPartError, part_names, sources  # noqa: PLC0415

            names = part_names(self.path)
            if names:
                with suppress(DamagedPartError):
                    taken = sources(self.path, names[-1])
        return [file.readings for segment, file in self._live.items() if segment not in taken], names

    def _deleted(self, names: "Collection[PartName]") -> "list[PartName]":
        """The parts whose readings were deleted, without those that are there."""
        if not (self.path / ROLLED_UP_FILE).exists():
            return []
        from treering.runlog.telemetry.rolled_up import rolled_up  # noqa: PLC0415 - loads Arrow

        return [name for name in rolled_up(self.path) if name not in names]

    def _part(self, name: "PartName", columns: Collection[str] | None) -> Readings | None:
        """A part, None where it is damaged.

        Raises:
            FileNotFoundError: it has gone into a merged one meanwhile.
        """
        from treering.runlog.telemetry.parts import DamagedPartError, read_part  # noqa: PLC0415

        try:
            return read_part(self.path, name, columns)
        except DamagedPartError:
            return None

    @staticmethod
    def _stable(read: Callable[[], T]) -> T:
        """What a function reads; again where parts were merged meanwhile."""
        for _look in range(_MOST_LOOKS):
            with suppress(FileNotFoundError):
                return read()
        return read()
