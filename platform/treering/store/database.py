"""MLflow's database: which one a tracking URI names, with its driver; ready before MLflow opens it.

`treering.store.sqlite_database` makes and checks the embedded one, `treering.store.server_database` asks a server.
"""

import importlib.util
from pathlib import Path
from typing import Final

import sqlalchemy
import sqlalchemy.exc
from mlflow.store.db.db_types import DATABASE_ENGINES

from treering.errors import UserError
from treering.redact import redact
from treering.store.server_database import prepare_server
from treering.store.sqlite_database import prepare_file

_DRIVERS: Final = {
    "psycopg": "psycopg[binary]",
    "psycopg2": "psycopg2-binary",
    "asyncpg": "asyncpg",
    "MySQLdb": "mysqlclient",
    "pymysql": "pymysql",
    "mysql": "mysql-connector-python",
    "pyodbc": "pyodbc",
    "pymssql": "pymssql",
}
"""Distributions that hold the drivers of the databases that MLflow knows."""
_MISNAMED: Final = {"postgres": "postgresql", "mariadb": "mysql", "sqlite3": "sqlite", "mysqldb": "mysql"}


def prepare_database(uri: str) -> str | None:
    """Makes sure that MLflow can open a tracking URI: its driver is there, and an SQLite database is whole.

    Several processes may do this at the same time; the first one makes the database.

    Args:
        uri: a tracking URI; one of a server is left alone.

    Returns:
        What was done, in words, where more was done than to make a missing database.

    Raises:
        UserError: no database of that kind or driver can be opened here.
        StoreError: the database cannot be made or read, or belongs to a newer MLflow.
    """
    scheme = uri.partition("://")[0]
    if scheme in {"http", "https", "file", "databricks", uri} or scheme.startswith("databricks"):
        return None
    url = _driver(uri)
    if url.get_backend_name() != "sqlite":
        prepare_server(url, uri)
        return None
    if url.database in (None, "", ":memory:") or url.query.get("uri"):
        return None
    return prepare_file(Path(str(url.database)).absolute())


def _driver(uri: str) -> sqlalchemy.URL:
    """The parsed URI of a database whose driver is installed.

    Raises:
        UserError: it cannot be parsed, or names a database or driver that is unknown or not installed.
    """
    kinds = ", ".join(DATABASE_ENGINES)
    try:
        url = sqlalchemy.make_url(uri)
        url.get_dialect().import_dbapi()
    except ModuleNotFoundError as error:
        name = (error.name or str(error)).partition(".")[0]
        raise UserError(
            f"tracking URI {redact(uri)}: the driver {name} is not installed; "
            f"`pip install '{_DRIVERS.get(name, name)}'` installs it"
        ) from None
    except sqlalchemy.exc.NoSuchModuleError:
        backend, _, driver = uri.partition("://")[0].partition("+")
        right = _MISNAMED.get(backend.lower())
        meant = f"{right}{'+' + driver if driver else ''}://…" if right else f"one of {kinds}, as postgresql://…"
        what = f"driver {driver!r}" if driver and importlib.util.find_spec(f"sqlalchemy.dialects.{backend}") else None
        raise UserError(
            f"tracking URI {redact(uri)}: found {what or f'the database {backend!r}'}, which SQLAlchemy does not know, "
            f"expected {f'{backend}:// without a driver, or another driver' if what else meant}"
        ) from None
    except (sqlalchemy.exc.ArgumentError, ValueError):
        raise UserError(
            f"tracking URI {redact(uri)}: cannot be parsed, expected DIALECT://USER@HOST:PORT/DATABASE, and "
            "after USER a colon and the password, whose `@`, `:` and `/` are written as %40, %3A and %2F"
        ) from None
    if url.get_backend_name() != "sqlite" and uri.partition("?")[0].count("@") > 1:
        raise UserError(
            f"tracking URI {redact(uri)}: found more than one `@`, expected one, before the host; write those of a "
            "password as %40"
        )
    return url
