"""What shippers give to the ledger: the rows of one run, of one corpus, and where they come from."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from treering.config.canonical import digest_json, short
from treering.store.ledger.models import (
    AttemptRow,
    Base,
    CheckpointRow,
    NoteRow,
    PromotionRow,
    ReadRow,
    ScoreRow,
    TagRow,
)

OF_RUN: Final[tuple[type[Base], ...]] = (
    AttemptRow,
    CheckpointRow,
    ReadRow,
    ScoreRow,
    NoteRow,
    TagRow,
    PromotionRow,
)
"""The tables whose rows belong to a run; a table follows those that it refers to."""

FROM_RUN: Final = "run"
FROM_LEDGER: Final = "ledger"
"""Origins of notes and tags: the run's journal, or people without access to it."""

_NO_CHARACTER: Final = re.compile("[\0\ud800-\udfff]")
_LARGEST: Final = 2**63 - 1
_NEEDED: Final = frozenset({"at", "started_at", "updated_at"})

Row = Mapping[str, Any]
Rows = Mapping[type[Base], Sequence[Row]]


@dataclass(frozen=True, slots=True)
class Source:
    """A project's folder on a machine.

    Attributes:
        project: name of the project.
        host: name of the machine.
        folder: the folder.
    """

    project: str
    host: str
    folder: str

    @property
    def key(self) -> str:
        """Its key."""
        return short(digest_json([self.project, self.host, self.folder]), 16)


@dataclass(frozen=True, slots=True)
class Extent:
    """How far a run's folder has come; every number only grows.

    Attributes:
        attempt: number of the newest attempt.
        step: the attempt's last step.
        journal: bytes of the run's journal.
        evaluations: bytes of the journal of evaluations.
    """

    attempt: int
    step: int
    journal: int
    evaluations: int

    def is_behind(self, other: "Extent") -> bool:
        """Whether this folder is an earlier state of the same run."""
        if self.attempt < other.attempt:
            return True
        pairs = [(self.journal, other.journal), (self.evaluations, other.evaluations)]
        if self.attempt == other.attempt:
            pairs.append((self.step, other.step))
        return all(mine <= its for mine, its in pairs) and any(mine < its for mine, its in pairs)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run with all its rows.

    Attributes:
        run: columns of the run, as `RunRow` has them, without those that the ledger adds.
        extent: of the folder that it was read from.
        position: how the folder's files looked.
        rows: the run's rows by table; origins of notes and tags are `FROM_RUN`.
    """

    run: Row
    extent: Extent
    position: str
    rows: Rows

    @classmethod
    def of(cls, run: Row, extent: Extent, position: str, rows: Rows) -> Self:
        """A record in which every value is one that both databases can store, see `storable`."""
        clean = {table: [storable(row) for row in found] for table, found in rows.items()}
        return cls(storable(run), extent, position, clean)

    @property
    def key(self) -> str:
        """The run's key."""
        return str(self.run["key"])

    @property
    def projection(self) -> dict[str, str]:
        """Digest of the rows of each table."""
        return {table.__tablename__: digest_json([dict(row) for row in self.rows.get(table, ())]) for table in OF_RUN}


@dataclass(frozen=True, slots=True)
class CorpusRecord:
    """A corpus and its licences.

    Attributes:
        digest: of the corpus.
        name: of the corpus.
        licence: by the manifest.
        documents: number of them.
        tokens: number of them.
        licences: documents and tokens by licence of the documents.
    """

    digest: str
    name: str
    licence: str
    documents: int
    tokens: int
    licences: Mapping[str, tuple[int, int]]


def storable(row: Row) -> Row:
    """A row without what a database cannot store, since a run's folder may hold anything.

    Characters that are none become U+FFFD, larger integers the largest one, numbers that are not finite None; of a time
    that a row must have, 0.
    """
    return {name: _storable(name, value) for name, value in row.items()}


def _storable(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return _NO_CHARACTER.sub("\ufffd", value)
    if isinstance(value, int):
        return value if isinstance(value, bool) else max(-_LARGEST, min(value, _LARGEST))
    if isinstance(value, float) and not math.isfinite(value):
        return 0.0 if name in _NEEDED else None
    return value


def run_key(digest: str, first_header: str) -> str:
    """Key of a run: one training of a recipe, whose first attempt has a header of its own."""
    return short(digest_json([digest, first_header]), 16)
