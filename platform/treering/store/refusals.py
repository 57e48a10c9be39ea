"""What the error of a database server means, with what helps; for MLflow's database and for the ledger."""

import re
from typing import NoReturn

import sqlalchemy
import sqlalchemy.exc

from treering.errors import StoreError, UserError
from treering.redact import redact


def refuse(url: sqlalchemy.URL, what: str, variable: str, error: sqlalchemy.exc.DBAPIError) -> NoReturn:
    """Raises what a database server's error means.

    Args:
        url: of the server.
        what: what the database is, with its address.
        variable: of the environment, which names the address.
        error: the server's.

    Raises:
        UserError: the server refuses the user, the password, or the database.
        StoreError: the server does not answer.
    """
    text = redact(" ".join(str(error.orig).split()))[:400]
    said = f"{what}: {text}"
    if re.search(r"authentication failed|no password supplied|[Aa]ccess denied for user|role \S+ does not exist", text):
        raise UserError(
            f"{said}; expected a user and password that the server takes: correct them in {variable}"
        ) from None
    if re.search(r"database \S+ does not exist|Unknown database", text):
        raise UserError(
            f"{said}; expected an existing database: create it (`createdb {url.database}`), or correct its name"
        ) from None
    raise StoreError(
        f"{said}; expected a server that answers at {url.host or 'the local socket'}"
        f"{f':{url.port}' if url.port else ''}: start it, or correct host and port in {variable}; nothing is "
        "lost, `treering ship` goes on once it answers"
    ) from None
