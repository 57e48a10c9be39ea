"""One process start of a run on disk: its header, its rings, its incidents and its end."""

import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from treering.errors import EvidenceError
from treering.runlog.incidents import INCIDENTS_FILE, Incident, read_incidents
from treering.runlog.records import AttemptEnd, AttemptHeader
from treering.runlog.ring import RINGS_FILE, Ring
from treering.runlog.ring_log import RingLog

HEADER_FILE = "header.json"
END_FILE = "end.json"

_RANK_FILE = re.compile(r"^rank-\d+\.jsonl$")


class AttemptDirectory:
    """One process start of a run.

    Args:
        path: `attempts/NNNN`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number = int(path.name)

    @property
    def header_file(self) -> Path:
        """The attempt's `header.json`."""
        return self.path / HEADER_FILE

    @property
    def rings_file(self) -> Path:
        """The attempt's `rings.jsonl`."""
        return self.path / RINGS_FILE

    @property
    def ring_log(self) -> RingLog[Ring]:
        """The reader of that file."""
        return RingLog(self.rings_file, Ring)

    @property
    def incidents_file(self) -> Path:
        """The attempt's `incidents.jsonl`; an attempt without an incident has no such file."""
        return self.path / INCIDENTS_FILE

    @property
    def end_file(self) -> Path:
        """The attempt's `end.json`; an attempt that runs or was killed has no such file."""
        return self.path / END_FILE

    @cached_property
    def _header(self) -> tuple[AttemptHeader, str]:
        return AttemptHeader.read(self.header_file)

    @property
    def header(self) -> AttemptHeader:
        """What the attempt was started with.

        Raises:
            EvidenceError: missing or changed.
        """
        return self._header[0]

    @property
    def header_digest(self) -> str:
        """`prev` of the first ring."""
        return self._header[1]

    @property
    def has_header(self) -> bool:
        """Whether the header is there and whole."""
        try:
            return bool(self._header)
        except EvidenceError:
            return False

    @property
    def started(self) -> bool:
        """Whether the header was written; an attempt that died before has nothing to say."""
        return self.header_file.exists()

    def rings(self) -> Iterator[Ring]:
        """All durable rings in order, the chain checked.

        Raises:
            EvidenceError: a ring was changed, removed or put in.
        """
        return self.ring_log.rings(self.header_digest)

    def headless_rings(self) -> Iterator[Ring]:
        """The rings that are there, the chain checked from the first of them on: what came before it is not known.

        Raises:
            EvidenceError: a ring after the first was changed, removed or put in, or the first is none.
        """
        return self.ring_log.rings()

    def first_step(self) -> int:
        """The step of the first ring that is there, 0 where there is none; no chain checked.

        Raises:
            EvidenceError: that ring was changed.
        """
        ring = self.ring_log.first()
        return 0 if ring is None else ring.step

    def last_step(self) -> int:
        """The last step with a durable ring, 0 where there is none; read from the end of the file, no chain checked.

        Raises:
            EvidenceError: the last ring was changed.
        """
        ring = self.ring_log.last()
        return 0 if ring is None else ring.step

    @property
    def end(self) -> AttemptEnd | None:
        """How the attempt ended, None while it runs or if it was killed."""
        return AttemptEnd.read(self.end_file)[0] if self.end_file.exists() else None

    def incidents(self) -> list[Incident]:
        """What befell the attempt from outside its numbers.

        Raises:
            EvidenceError: a line is no incident.
        """
        return read_incidents(self.path)

    def telemetry_files(self) -> list[Path]:
        """One JSON Lines file of sensor readings for each rank, in order of ranks."""
        found = [path for path in (self.path / "telemetry").glob("rank-*.jsonl") if _RANK_FILE.match(path.name)]
        return sorted(found, key=lambda path: int(path.stem.removeprefix("rank-")))
