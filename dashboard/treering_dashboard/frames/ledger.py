"""Answers of the ledger: a database of runs and checkpoints of all projects."""

import os

from treering.store.ledger.database import VARIABLE, Database, default_url
from treering.store.ledger.search.find import Answer, search
from treering_dashboard.frames.cached import project

MOST = 200
"""Runs or checkpoints that are shown of an answer."""


def has_ledger() -> bool:
    """Whether a database of the team is configured."""
    return bool(os.environ.get(VARIABLE))


def ask(query: str, sort: str) -> tuple[str, Answer | None]:
    """The place of the ledger, and its answer; None where the database does not exist yet.

    Args:
        query: see `treering.store.ledger.search.query`.
        sort: see `search`.

    Raises:
        UserError: the query or the sort cannot be read.
        StoreError: the database does not answer.
    """
    database = Database(default_url(project()))
    try:
        return database.place, search(database, query, sort=sort, limit=MOST) if database.exists else None
    finally:
        database.close()
