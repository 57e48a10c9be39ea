"""Freezes a ledger of this version for the tests of later ones: `python tests/support/freeze_ledger.py`.

Run it when a revision is made and before the next one is; it writes two files below `tests/ledger/revisions`.
"""

import subprocess
import tempfile
from pathlib import Path

import sqlalchemy
from postgresql_server import binaries, create_database, postgresql_server

from treering.store.ledger.database import Database
from treering.store.ledger.schema import REVISIONS, VERSION_TABLE, upgrade

FOLDER = Path(__file__).parents[1] / "ledger" / "revisions"


def value_of(column, number):
    """A value for a column: two rows differ in their keys."""
    if isinstance(column.type, sqlalchemy.Boolean):
        return True
    if isinstance(column.type, sqlalchemy.Float | sqlalchemy.REAL):
        return number + 0.5
    if isinstance(column.type, sqlalchemy.Integer):
        return number
    return {"key": f"key-{number}", "run": f"key-{number}", "corpus": f"key-{number}"}.get(
        column.name, f"key-{number}" if column.foreign_keys or column.primary_key else f"{column.name} {number}"
    )


def fill(connection):
    """Two rows in every table, from what the database itself says of its tables."""
    found = sqlalchemy.MetaData()
    found.reflect(connection)
    for table in found.sorted_tables:
        if table.name != VERSION_TABLE:
            rows = [{column.name: value_of(column, number) for column in table.columns} for number in (1, 2)]
            connection.execute(sqlalchemy.insert(table), rows)


def make(url, revision):
    database = Database(url)
    with database._writing() as connection:
        upgrade(connection, revision)
        fill(connection)
    return database


def main(revision=REVISIONS[-1]):
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        database = make(f"sqlite:///{folder}/ledger.db", revision)
        raw = database._engine.raw_connection()
        (FOLDER / f"{revision}.sqlite.sql").write_text("\n".join(raw.iterdump()) + "\n")
        raw.close()
        with postgresql_server("ledger", "secret") as server:
            url = create_database(f"postgresql://ledger:secret@{server.address}", "frozen")
            make(url, revision).close()
            folders = [binaries(), *Path("/usr/lib/postgresql").glob("*/bin")]
            dump = next(each / "pg_dump" for each in folders if (each / "pg_dump").exists())
            command = [dump, "--inserts", "--no-owner", "--no-privileges", url]
            dump = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    kept = [
        line for line in dump.splitlines() if line and not line.startswith(("--", "\\", "SET ", "SELECT pg_catalog."))
    ]
    (FOLDER / f"{revision}.postgresql.sql").write_text("\n".join(kept) + "\n")


if __name__ == "__main__":
    main()
