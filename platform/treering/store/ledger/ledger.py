"""Writes the ledger: each run in one transaction, all of it or nothing, and the same again changes nothing."""

import json
import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

from sqlalchemy import Connection, Table, delete, insert, select, tuple_, update

from treering.config.canonical import canonical_json
from treering.errors import NotFoundError
from treering.store.ledger.database import Database
from treering.store.ledger.models import (
    Base,
    CheckpointRow,
    CorpusRow,
    LicenceRow,
    NoteRow,
    ReadRow,
    RunRow,
    SourceRow,
    TagRow,
    UnreadRow,
)
from treering.store.ledger.records import (
    FROM_LEDGER,
    FROM_RUN,
    OF_RUN,
    CorpusRecord,
    Extent,
    Row,
    RunRecord,
    Source,
    storable,
)

Written = Literal["written", "unchanged", "older"]

_CORPORA_LOCK = 1
_SOURCES_LOCK = 2


@dataclass(frozen=True, slots=True)
class LedgerRun:
    """A run that the ledger knows.

    Attributes:
        key: its key.
        id: its id in short.
        project: name of its project.
        experiment: name of its experiment.
        host: machine of the folder that was shipped last.
        folder: that folder.
    """

    key: str
    id: str
    project: str
    experiment: str
    host: str
    folder: str


class Ledger:
    """One ledger.

    Args:
        database: where it is.
    """

    def __init__(self, database: Database) -> None:
        self.database = database

    def position(self, key: str) -> str | None:
        """How a run's files looked when they were shipped last, None for a run that never was.

        Raises:
            StoreError: the database does not answer.
        """
        self.database.make()
        with self.database.reading() as connection:
            found: str | None = connection.execute(select(RunRow.position).where(RunRow.key == key)).scalar()
            return found

    def write(self, record: RunRecord, source: Source, *, force: bool = False) -> Written:
        """Makes the rows of a run those of a record, in one transaction.

        Args:
            record: the run as its folder has it.
            source: the folder's project and machine.
            force: whether a record of an older copy of the folder is written too.

        Returns:
            `older` where the ledger has a later state of the same run: nothing was written.

        Raises:
            StoreError: the database does not answer.
        """
        columns = {
            **record.run,
            "project": source.project,
            "host": source.host,
            "extent": canonical_json(asdict(record.extent)),
            "projection": canonical_json(record.projection),
        }
        with self.database.writing(int(record.key, 16) >> 1) as connection:
            stored = connection.execute(select(RunRow.__table__).where(RunRow.key == record.key)).mappings().first()
            if stored is not None:
                extent = Extent(**json.loads(stored["extent"]))
                if not force and record.extent.is_behind(extent):
                    return "older"
                copied = record.extent == extent and record.run["folder"] != stored["folder"]
                if not force and copied:  # a copy elsewhere takes nothing over: it does not see who trains
                    return "unchanged"
                if not force and record.extent == extent:
                    columns |= {name: stored[name] for name in ("project", "host")}
                if not force and all(stored[name] == value for name, value in columns.items()):
                    if stored["position"] != record.position:
                        connection.execute(
                            update(RunRow).where(RunRow.key == record.key).values(position=record.position)
                        )
                    return "unchanged"
            columns |= {"position": record.position, "shipped_at": time.time()}
            before = {} if stored is None else json.loads(stored["projection"])
            if stored is None:
                connection.execute(insert(RunRow).values(columns))
            else:
                connection.execute(update(RunRow).where(RunRow.key == record.key).values(columns))
            after = record.projection
            changed = [
                model for model in OF_RUN if before.get(model.__tablename__) != after[model.__tablename__] or force
            ]
            _replace_rows(connection, record, changed)
        return "written"

    def difference(self, record: RunRecord) -> tuple[str, bool] | None:
        """The first difference between the rows of a run and a record, and whether the run is only behind.

        Raises:
            StoreError: the database does not answer.
        """
        with self.database.reading() as connection:
            stored = connection.execute(select(RunRow.__table__).where(RunRow.key == record.key)).mappings().first()
            if stored is None:
                return f"found no run {record.key}, expected one", True
            behind = Extent(**json.loads(stored["extent"])).is_behind(record.extent)
            for name, value in record.run.items():
                if stored[name] != value and name != "folder":
                    return f"ledger_run: {name} is {stored[name]!r}, expected {value!r}", behind
            for model in OF_RUN:
                found = _stored(connection, model, record.key)
                expected = {_key(model, row): dict(row) for row in record.rows.get(model, ())}
                for key in sorted({*found, *expected}, key=repr):
                    if found.get(key) != expected.get(key):
                        text = f"{model.__tablename__}: found {found.get(key)}, expected {expected.get(key)}"
                        return text, behind
        return None

    def add_corpora(self, corpora: Iterable[CorpusRecord]) -> None:
        """Adds corpora; a corpus that is there already stays, since its digest names its content.

        Raises:
            StoreError: the database does not answer.
        """
        with self.database.writing(_CORPORA_LOCK) as connection:
            known = set(connection.execute(select(CorpusRow.key)).scalars())
            for corpus in corpora:
                if corpus.digest in known:
                    continue
                known.add(corpus.digest)
                values = {**storable(asdict(corpus))}
                licences = values.pop("licences")
                connection.execute(insert(CorpusRow).values(key=values.pop("digest"), **values))
                rows = [
                    storable({"corpus": corpus.digest, "licence": licence, "documents": documents, "tokens": tokens})
                    for licence, (documents, tokens) in licences.items()
                ]
                if rows:
                    connection.execute(insert(LicenceRow), rows)

    def known_corpora(self) -> set[str]:
        """Digests of the corpora whose licences are known.

        Raises:
            StoreError: the database does not answer.
        """
        with self.database.reading() as connection:
            return set(connection.execute(select(CorpusRow.key)).scalars())

    def without_licences(self, corpora: Collection[str]) -> set[str]:
        """Those of some corpora, by digest, that checkpoints in the ledger read, and whose licences are not known.

        Raises:
            StoreError: the database does not answer.
        """
        self.database.make()
        unknown = set(corpora) - self.known_corpora()
        with self.database.reading() as connection:
            read = select(ReadRow.corpus).where(ReadRow.corpus.in_(unknown)).distinct()
            return set(connection.execute(read).scalars()) if unknown else set()

    def saw(self, source: Source, looked: Mapping[str, str | None], here: Collection[str]) -> set[str]:
        """Notes that a shipper looked at a project's folder now, and which runs' folders it could not read.

        Args:
            source: the folder.
            looked: why a run could not be read, None where it could, by the name of its folder. What was noted of other
                runs stays.
            here: names of the folders that the project has; what was noted of others goes.

        Returns:
            The names of the runs that are noted now.

        Raises:
            StoreError: the database does not answer.
        """
        now = time.time()
        noted = select(UnreadRow.name).where(UnreadRow.source == source.key)
        with self.database.writing(_SOURCES_LOCK) as connection:
            values = {**asdict(source), "seen_at": now}
            if not connection.execute(update(SourceRow).where(SourceRow.key == source.key).values(values)).rowcount:
                connection.execute(insert(SourceRow).values(key=source.key, **values))
            kept = {name for name in connection.execute(noted).scalars() if name in here and name not in looked}
            connection.execute(delete(UnreadRow).where(UnreadRow.source == source.key, UnreadRow.name.not_in(kept)))
            rows = [
                storable({"source": source.key, "name": name, "problem": problem, "at": now})
                for name, problem in looked.items()
                if problem is not None and name in here
            ]
            if rows:
                connection.execute(insert(UnreadRow), rows)
        return kept | {str(row["name"]) for row in rows}

    def find_run(self, prefix: str) -> LedgerRun:
        """The one run whose id begins with a prefix.

        Raises:
            NotFoundError: none or several fit.
            StoreError: the database does not answer.
        """
        columns = select(RunRow.key, RunRow.id, RunRow.project, RunRow.experiment, RunRow.host, RunRow.folder)
        wanted = prefix.removeprefix("sha256:")[:16]
        with self.database.reading() as connection:
            found = [
                LedgerRun(*row)
                for row in connection.execute(columns.where(RunRow.id.startswith(wanted, autoescape=True)))
            ]
        if len(found) == 1 and wanted:
            return found[0]
        if not found:
            raise NotFoundError(
                f"{self.database.place}: no run starts with {prefix!r}; `treering ship` adds those of a project"
            )
        names = ", ".join(f"{run.id} of project {run.project} on {run.host}" for run in found[:5])
        raise NotFoundError(f"{self.database.place}: {prefix!r} fits several runs ({names}); give more characters")

    def annotate(
        self, run: str, *, by: str, host: str, text: str = "", added: Sequence[str] = (), removed: Sequence[str] = ()
    ) -> None:
        """Adds a note and tags that only the ledger has, of a person who cannot reach the run's folder.

        Args:
            run: key of the run.
            by: the person's login name.
            host: the person's machine.
            text: the note, empty for none.
            added: tags to add.
            removed: tags to take away.

        Raises:
            StoreError: the database does not answer.
        """
        common = {"run": run, "at": time.time(), "by": by, "host": host, "origin": FROM_LEDGER}
        tags = [{"tag": tag, "given": given} for given, each in ((True, added), (False, removed)) for tag in each]
        with self.database.writing(int(run, 16) >> 1) as connection:
            if text:
                note = storable({"key": _new_key(), "text": text, "folded": text.casefold(), **common})
                connection.execute(insert(NoteRow).values(note))
            for tag in tags:
                connection.execute(insert(TagRow).values(storable({"key": _new_key(), **tag, **common})))


def _new_key() -> str:
    return f"ledger-{uuid.uuid4().hex}"


def _replace_rows(connection: Connection, record: RunRecord, tables: Sequence[type[Base]]) -> None:
    """Writes the rows of some tables that differ, and removes those that are gone."""
    wanted = {model: {_key(model, row): dict(row) for row in record.rows.get(model, ())} for model in tables}
    stored = {model: _stored(connection, model, record.key) for model in tables}
    for model in reversed(tables):
        gone = list(stored[model].keys() - wanted[model].keys())
        for start in range(0, len(gone), 500):
            connection.execute(delete(model).where(tuple_(*_keys(model)).in_(gone[start : start + 500])))
    for model in tables:
        new = [row for key, row in wanted[model].items() if key not in stored[model]]
        if new:
            connection.execute(insert(model), new)
        for key, row in wanted[model].items():
            if key in stored[model] and stored[model][key] != row:
                connection.execute(update(model).where(tuple_(*_keys(model)) == key).values(row))


def _stored(connection: Connection, model: type[Base], run: str) -> dict[tuple[Any, ...], Row]:
    """The rows of a table that a run's folder gave, by their keys."""
    table = _table(model)
    if "run" in table.c:
        query = select(table).where(table.c.run == run)
        if "origin" in table.c:
            query = query.where(table.c.origin == FROM_RUN)
    else:
        of_run = select(CheckpointRow.key).where(CheckpointRow.run == run)
        query = select(table).where(table.c.checkpoint.in_(of_run))
    return {_key(model, row): dict(row) for row in connection.execute(query).mappings()}


def _key(model: type[Base], row: Any) -> tuple[Any, ...]:
    return tuple(row[column.name] for column in _keys(model))


def _keys(model: type[Base]) -> list[Any]:
    return list(_table(model).primary_key.columns)


def _table(model: type[Base]) -> Table:
    return cast("Table", model.__table__)
