"""The rows of a ledger, as plain values."""

import os
import time

from sqlalchemy import select

from treering.store.ledger.models import Base


def all_rows(database, *, passes=False):
    """Every row of every table, by table, ordered; without the columns of a pass, which no two ledgers share."""
    skipped = {
        "ledger_run": {"shipped_at", "position"},
        "ledger_source": {"seen_at"},
        "ledger_unread": {"at"},
    }
    found = {}
    with database.reading() as connection:
        for table in Base.metadata.sorted_tables:
            hidden = set() if passes else skipped.get(table.name, set())
            rows = [dict(row) for row in connection.execute(select(table)).mappings()]
            cut = [{name: value for name, value in row.items() if name not in hidden} for row in rows]
            found[table.name] = sorted(cut, key=repr)
    return found


def rows(database, model):
    """The rows of one table, ordered by their key."""
    table = model.__table__
    with database.reading() as connection:
        found = connection.execute(select(table).order_by(*table.primary_key.columns)).mappings()
        return [dict(row) for row in found]


def settle(folder):
    """The files were written an hour ago."""
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (time.time() - 3600,) * 2)
