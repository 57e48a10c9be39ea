"""Opens the ledger's database: SQLite in the project's folder, or PostgreSQL by `TREERING_DATABASE_URL`.

Every failure of the database comes out as `StoreError` or `UserError`. A database that is locked is waited for at most
`PATIENCE_S` seconds, a statement three times as long, and a server that hangs a little longer.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import sqlalchemy
import sqlalchemy.exc
from sqlalchemy import Connection, Engine, event

from treering.errors import StoreError, UserError
from treering.project import Project
from treering.redact import redact
from treering.store.ledger.schema import Migrated, check_revision, migrate, revision_of
from treering.store.refusals import refuse

VARIABLE: Final = "TREERING_DATABASE_URL"
PATIENCE_S: Final = 20
_WRITES: Final = "treering_writes"


def default_url(project: Project) -> str:
    """`TREERING_DATABASE_URL`, or the project's own `treering.db`."""
    return os.environ.get(VARIABLE) or f"sqlite:///{project.root.resolve() / 'treering.db'}"


class Database:
    """The ledger's database, opened on demand; not for several threads at once.

    Args:
        url: `sqlite:///FILE` or `postgresql://USER@HOST/DATABASE`.

    Raises:
        UserError: the URL names another kind of database, or cannot be parsed.
    """

    def __init__(self, url: str) -> None:
        self.place = f"ledger {redact(url)}"
        self._url = _parsed(url, self.place)
        self._engine = _engine(self._url)
        server = self._url.get_backend_name() == "postgresql"
        self._reader = self._engine.execution_options(isolation_level="REPEATABLE READ") if server else self._engine
        self._checked = False

    @property
    def exists(self) -> bool:
        """Whether the file of an SQLite database is there; True for a server."""
        file = _file(self._url)
        return file is None or file.exists()

    def close(self) -> None:
        """Closes every connection."""
        self._engine.dispose()

    def migrate(self) -> Migrated:
        """Makes the tables, or brings them up to date.

        Raises:
            StoreError: the database does not answer, or was made by a newer version.
            UserError: the server refuses the user, the password or the database.
        """
        with self._answers(), self._writing() as connection:
            done = migrate(connection, self.place)
        self._checked = True
        return done

    def make(self) -> None:
        """Makes the tables of an empty database; one that has tables is only checked.

        Raises:
            StoreError: the database does not answer, or has the tables of another version.
            UserError: the server refuses the user, the password or the database.
        """
        if self._checked:
            return
        with self._answers(), self._engine.connect() as connection:
            revision = revision_of(connection)
        if revision is None:
            self.migrate()
            return
        check_revision(revision, self.place)
        self._checked = True

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One unchanging view of the ledger.

        Raises:
            StoreError: the database does not answer, is missing, or has the tables of another version.
            UserError: the server refuses the user, the password or the database.
        """
        if not self.exists:
            raise StoreError(f"{self.place}: missing; `treering ship` makes it from the run logs")
        with self._answers(), self._reader.connect() as connection:
            if not self._checked:
                revision = revision_of(connection)
                if revision is None:
                    raise StoreError(f"{self.place}: has no tables yet; `treering ship` makes them")
                check_revision(revision, self.place)
                self._checked = True
            yield connection

    @contextmanager
    def writing(self, lock: int = 0) -> Iterator[Connection]:
        """A transaction that writes: all of it or nothing.

        Args:
            lock: two transactions with the same number follow each other; SQLite writes one at a time anyway.

        Raises:
            StoreError: the database does not answer, or has the tables of another version.
            UserError: the server refuses the user, the password or the database.
        """
        self.make()
        with self._answers(), self._writing() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(sqlalchemy.select(sqlalchemy.func.pg_advisory_xact_lock(lock)))
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self._engine.connect().execution_options(**{_WRITES: True}) as connection, connection.begin():
            yield connection

    @contextmanager
    def _answers(self) -> Iterator[None]:
        """Turns the errors of the database into ours.

        Raises:
            StoreError: the database does not answer.
            UserError: the server refuses the user, the password or the database.
        """
        try:
            yield
        except sqlalchemy.exc.DBAPIError as error:
            self._engine.dispose()  # the next try connects again
            if self._reader is not self._engine and (error.connection_invalidated or error.statement is None):
                refuse(self._url, self.place, VARIABLE, error)
            raise StoreError(
                f"{self.place}: {redact(' '.join(str(error.orig).split()))[:400]}; expected a database that answers "
                f"within {PATIENCE_S} s and can be written; nothing is lost, `treering ship` goes on once it answers"
            ) from None
        except (sqlalchemy.exc.SQLAlchemyError, OSError) as error:
            raise StoreError(f"{self.place}: {redact(str(error)).splitlines()[0][:400]}") from None


def _parsed(url: str, place: str) -> sqlalchemy.URL:
    """The URL of a database that the ledger can be in.

    Raises:
        UserError: it cannot be parsed, or names another kind of database.
    """
    expected = f"expected {VARIABLE} like sqlite:////folder/treering.db or postgresql://USER:PASSWORD@HOST:5432/NAME"
    try:
        parsed = sqlalchemy.make_url(url)
    except (sqlalchemy.exc.ArgumentError, ValueError):
        raise UserError(
            f"{place}: cannot be parsed, {expected}; in a password write `@`, `:` and `/` as %40, %3A and %2F"
        ) from None
    if parsed.drivername in {"postgresql", "postgresql+psycopg"}:
        parsed = parsed.set(drivername="postgresql+psycopg")
        try:
            import psycopg  # noqa: F401, PLC0415 - whether it is there
        except ImportError:
            raise UserError(
                f"{place}: the driver psycopg is not installed; `pip install 'treering[ledger]'` installs it"
            ) from None
        return parsed
    if parsed.drivername in {"sqlite", "sqlite+pysqlite"} and parsed.database not in (None, "", ":memory:"):
        return parsed
    raise UserError(f"{place}: found {parsed.drivername!r} without a file or of another kind, {expected}")


def _file(url: sqlalchemy.URL) -> Path | None:
    return Path(str(url.database)) if url.get_backend_name() == "sqlite" else None


def _engine(url: sqlalchemy.URL) -> Engine:
    if url.get_backend_name() == "sqlite":
        engine = sqlalchemy.create_engine(url, connect_args={"timeout": PATIENCE_S})
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    patience = {} if "connect_timeout" in url.query else {"connect_timeout": PATIENCE_S // 2}
    limits = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 30_000}
    engine = sqlalchemy.create_engine(url, connect_args={**limits, **patience})
    event.listen(engine, "do_connect", _connect_postgresql)
    event.listen(engine, "connect", _prepare_postgresql)
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None  # `_begin_sqlite` begins every transaction, those that change tables as well
    connection.execute("PRAGMA foreign_keys = ON")


def _begin_sqlite(connection: Connection) -> None:
    """Begins a transaction that writes with the lock: two of them wait for each other instead of failing."""
    writes = connection.get_execution_options().get(_WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _connect_postgresql(_dialect: Any, _record: Any, words: list[Any], named: dict[str, Any]) -> Any:
    from treering.store.ledger.patient_connection import PatientConnection  # noqa: PLC0415 - SQLite needs no psycopg

    return PatientConnection.connect(*words, **named)


def _prepare_postgresql(connection: Any, _record: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SET lock_timeout = '{PATIENCE_S}s'")
        cursor.execute(f"SET statement_timeout = '{3 * PATIENCE_S}s'")
        cursor.execute(f"SET idle_in_transaction_session_timeout = '{3 * PATIENCE_S}s'")
    connection.commit()
