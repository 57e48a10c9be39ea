"""The ledger as a target of shipping: each run's rows, in one transaction a pass.

A pass that finds the folder as the last one left it reads nothing of it. Otherwise all rows of the run are made again
from the folder, and the tables that differ are written. So a pass that is killed leaves nothing half done, and one that
is made twice changes nothing.
"""

import socket
import time
from typing import Final

from treering.errors import EvidenceError
from treering.project import Project
from treering.runlog.directory import RunDirectory
from treering.runlog.folders import RunFolder
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering.ship.rows.corpora import count_corpora, digests_here
from treering.ship.rows.own import OwnRun
from treering.ship.rows.recorded import OtherRun
from treering.ship.target import Difference, ShipReport
from treering.store.ledger.database import Database, default_url
from treering.store.ledger.ledger import Ledger
from treering.store.ledger.models import CheckpointRow, ScoreRow
from treering.store.ledger.records import RunRecord, Source

_HEARTBEAT_S: Final = 60.0


def reader_of(run: RunFolder) -> OwnRun | OtherRun:
    """Reads a run's rows from its folder."""
    return OtherRun(run) if isinstance(run, RecordedRunDirectory) else OwnRun(RunDirectory(run.path))


class LedgerTarget:
    """The ledger of a project.

    Args:
        project: whose runs are shipped.
        url: of the database.

    Raises:
        UserError: the URL names a database that the ledger cannot be in.
    """

    name = "ledger"

    def __init__(self, project: Project, url: str) -> None:
        self.project = project
        self.ledger = Ledger(Database(url))
        self.source = Source(project.name, socket.gethostname(), str(project.root.resolve()))
        self._known: set[str] | None = None
        self._has_added = False
        self._looked: dict[str, str | None] = {}
        self._noted: set[str] = set()
        self._seen_at = -_HEARTBEAT_S

    @property
    def place(self) -> str:
        """The database's URL without its password."""
        return self.ledger.database.place

    def shipper(self, run: RunFolder) -> "LedgerShipper | None":
        """Makes the shipper of a run; a mirror has none, since the run's own folder is shipped."""
        return None if run.mirror_file.exists() else LedgerShipper(self, run)

    def difference(self, run: RunFolder) -> Difference | None:
        """The first difference between the run's rows and those that its folder gives.

        Raises:
            StoreError: the database does not answer.
            EvidenceError: a record of the run does not hold.
        """
        if run.mirror_file.exists():
            return None
        reader = reader_of(run)
        record = reader.record(run.state(), "")
        if record is None:
            return None
        self.ledger.database.make()
        found = self.ledger.difference(record)
        return None if found is None else Difference(*found)

    def rebuild(self, run: RunFolder) -> str:
        """Writes the run's rows again, even if the ledger has those of a later state of the run.

        Raises:
            StoreError: the database does not answer.
            EvidenceError: a record of the run does not hold.
        """
        LedgerShipper(self, run, force=True).ship()
        return ""

    def add_corpora(self, wanted: set[str]) -> int:
        """Counts the licences of corpora that the ledger does not know yet, and that are here; returns how many.

        Raises:
            StoreError: the database does not answer.
        """
        if self._known is None or wanted - self._known:
            self._known = self.ledger.known_corpora()
        counted = list(count_corpora(self.project, wanted - self._known))
        if counted:
            self.ledger.add_corpora(counted)
            self._known |= {each.digest for each in counted}
        return len(counted)

    def add_late_corpora(self) -> int:
        """Once: counts the licences of corpora that came here after the runs that read them had been shipped.

        Raises:
            StoreError: the database does not answer.
        """
        if self._has_added:
            return 0
        count = self.add_corpora(self.ledger.without_licences(digests_here(self.project)))
        self._has_added = True
        return count

    def saw(self, run: str, problem: str | None) -> None:
        """Notes that this shipper lives, at most once a minute, and what it could not read, at once.

        Args:
            run: name of the run's folder.
            problem: why it could not be read, None where it could.

        Raises:
            StoreError: the database does not answer.
        """
        is_known = self._looked.get(run) == problem and (problem is not None or run not in self._noted)
        self._looked[run] = problem
        if is_known and time.monotonic() - self._seen_at < _HEARTBEAT_S:
            return
        here = {path.name for path in self.project.runs.iterdir()}
        self._noted = self.ledger.saw(self.source, self._looked, here)
        self._seen_at = time.monotonic()


class LedgerShipper:
    """Ships one run to the ledger.

    Args:
        target: the ledger.
        run: the run.
        force: whether the rows of an older copy replace those of a later state of the run.
    """

    def __init__(self, target: LedgerTarget, run: RunFolder, *, force: bool = False) -> None:
        self._target = target
        self._run = run
        self._force = force
        self._reader = reader_of(run)
        self._key: str | None = None
        self._position: str | None = None

    def ship(self) -> ShipReport:
        """One pass.

        Raises:
            StoreError: the database does not answer; nothing of this pass was written.
            EvidenceError: a record of the run does not hold; the ledger keeps what it had, and names the problem.
        """
        try:
            report = self._ship()
        except EvidenceError as error:
            self._target.saw(self._run.path.name, str(error))
            raise
        self._target.saw(self._run.path.name, None)
        return report

    def _ship(self) -> ShipReport:
        name, ledger = self._run.path.name, self._target.ledger
        state = self._run.state()
        position = self._reader.position(state)
        if self._key is None:
            self._key = self._reader.key()
            if self._key is None:
                return ShipReport(LedgerTarget.name, name, state)
            if not self._force:
                self._position = ledger.position(self._key)
        corpora = self._target.add_late_corpora()
        if position is not None and position == self._position:
            return ShipReport(LedgerTarget.name, name, state, self._key, {"corpus row": corpora})
        corpora += self._target.add_corpora(
            {part.digest for blend in self._reader.blends() for part in blend.components if part.digest is not None}
        )
        record = self._reader.record(state, position or "")
        if record is None:
            return ShipReport(LedgerTarget.name, name, state)
        self._key = record.key
        done = ledger.write(record, self._target.source, force=self._force)
        self._position = position
        sent = {"corpus row": corpora} | (_counts(record) if done == "written" else {})
        note = "the ledger has a later state of this run: this folder is an older copy" if done == "older" else ""
        return ShipReport(LedgerTarget.name, name, state, record.key, sent, note)


def _counts(record: RunRecord) -> dict[str, int]:
    return {
        "checkpoint": len(record.rows[CheckpointRow]),
        "score": len(record.rows[ScoreRow]),
        "run row": 1,
    }


def target(project: Project) -> LedgerTarget:
    """The ledger that `TREERING_DATABASE_URL` names, or the project's own.

    Raises:
        UserError: the URL names a database that the ledger cannot be in.
    """
    return LedgerTarget(project, default_url(project))
