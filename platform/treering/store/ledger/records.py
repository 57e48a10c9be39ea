"""What shippers give to the ledger: the rows of one run, of one corpus, and where they come from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

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


def run_key(digest: str, first_header: str) -> str:
    """Key of a run: one training of a recipe, whose first attempt has a header of its own."""
    return short(digest_json([digest, first_header]), 16)
