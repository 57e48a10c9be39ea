"""Which revision of the tables a ledger has, and its migration: one at a time, whole or not at all."""

from pathlib import Path
from typing import Final, Literal

import sqlalchemy
from sqlalchemy import Connection, column, select, table

from treering.errors import StoreError
from treering.store.alembic_lock import ALEMBIC

VERSION_TABLE: Final = "ledger_version"
REVISIONS: Final = ("0001", "0002", "0003")
"""The revisions in order; the last one is this version's."""

_MIGRATING_LOCK: Final = 0x6C65646765720000
"""PostgreSQL's advisory lock under which the tables are made: `ledger` in ASCII."""

Migrated = Literal["made", "migrated", "current"]


def revision_of(connection: Connection) -> str | None:
    """The revision of the tables, None where there are none."""
    if not sqlalchemy.inspect(connection).has_table(VERSION_TABLE):
        return None
    found: str | None = connection.execute(select(column("version_num")).select_from(table(VERSION_TABLE))).scalar()
    return found


def check_revision(revision: str | None, place: str) -> None:
    """Compares a revision with this version's.

    Args:
        revision: of a ledger that has tables.
        place: the ledger in words, for the error.

    Raises:
        StoreError: the ledger is of another version.
    """
    if revision == REVISIONS[-1]:
        return
    if revision in REVISIONS:
        raise StoreError(
            f"{place}: found schema {revision}, expected {REVISIONS[-1]}: made by an older Treering; back the database "
            "up, then run `treering migrate`"
        )
    raise StoreError(
        f"{place}: found schema {revision}, expected {REVISIONS[-1]}: made by a newer Treering; install that version "
        "here, or name another database in TREERING_DATABASE_URL"
    )


def migrate(connection: Connection, place: str) -> Migrated:
    """Makes the tables, or brings them up to date, inside the connection's transaction.

    Another process that migrates at the same time is waited for.

    Args:
        connection: in a transaction that may write.
        place: the ledger in words, for the error.

    Raises:
        StoreError: the ledger was made by a newer version.
    """
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SET LOCAL lock_timeout = 0")  # another migration takes the time that it takes
        connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATING_LOCK})")
    before = revision_of(connection)
    if before == REVISIONS[-1]:
        return "current"
    if before is not None and before not in REVISIONS:
        check_revision(before, place)
    upgrade(connection, REVISIONS[-1])
    return "made" if before is None else "migrated"


def upgrade(connection: Connection, revision: str) -> None:
    """Runs the migrations up to a revision inside the connection's transaction."""
    from alembic import command  # noqa: PLC0415 - only a migration needs Alembic
    from alembic.config import Config  # noqa: PLC0415

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    with ALEMBIC:
        command.upgrade(config, revision)
