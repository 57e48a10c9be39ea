"""One process start of a run on disk: its header, its rings, its incidents and its end."""

from collections.abc import Iterator
from pathlib import Path

from treering.errors import EvidenceError
from treering.runlog.folders import AttemptFolder
from treering.runlog.incidents import INCIDENTS_FILE, Incident, read_incidents
from treering.runlog.records import AttemptHeader
from treering.runlog.ring import Ring
from treering.runlog.ring_log import RingLog


class AttemptDirectory(AttemptFolder[AttemptHeader]):
    """One process start of a run.

    Args:
        path: `attempts/NNNN`.
    """

    header_kind = AttemptHeader

    @property
    def ring_log(self) -> RingLog[Ring]:
        """The reader of that file."""
        return RingLog(self.rings_file, Ring)

    @property
    def incidents_file(self) -> Path:
        """The attempt's `incidents.jsonl`; an attempt without an incident has no such file."""
        return self.path / INCIDENTS_FILE

    @property
    def has_header(self) -> bool:
        """Whether the header is there and whole."""
        try:
            return bool(self._header)
        except EvidenceError:
            return False

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

    def incidents(self) -> list[Incident]:
        """The incidents of the attempt, such as a lost rank or a failed save.

        Raises:
            EvidenceError: a line is not an incident.
        """
        return read_incidents(self.path)
