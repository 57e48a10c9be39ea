"""`treering migrate`: makes the ledger's tables, or brings them up to date."""

from treering.cli.options import JsonOption, project
from treering.cli.output import console, print_json


def migrate(json: JsonOption = False) -> None:
    """Bring the tables of the ledger up to date with this version of Treering.

    The ledger is the database of TREERING_DATABASE_URL, by default treering.db in this folder. Its tables are made
    where they are missing. Nothing is half done: a migration that is killed leaves the old tables.

    Examples:
        treering migrate
    """
    from treering.store.ledger.database import Database, default_url
    from treering.store.ledger.schema import REVISIONS

    database = Database(default_url(project()))
    done = database.migrate()
    if json:
        print_json({"ledger": database.place, "schema": REVISIONS[-1], "done": done})
        return
    words = {"made": "tables made", "migrated": "migrated", "current": "up to date"}[done]
    console.print(f"{database.place}: {words}, schema {REVISIONS[-1]}")
