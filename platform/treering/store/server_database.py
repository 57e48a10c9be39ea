"""MLflow's database on a server.

The server is asked once, with a short timeout, before MLflow asks it ten times in a hundred seconds. PostgreSQL undoes
what a killed process has begun; one process at a time makes the tables there.
"""

from typing import Final

import sqlalchemy
import sqlalchemy.exc
from alembic.migration import MigrationContext
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from treering.errors import StoreError
from treering.redact import redact
from treering.store.alembic_lock import ALEMBIC
from treering.store.mlflow_schema import schema_revisions
from treering.store.refusals import refuse

_NO_TIMEOUT: Final = {"asyncpg", "pyodbc", "pymssql"}
"""Drivers that have no argument `connect_timeout`."""
_MAKING_LOCK: Final = 0x7472656572696E67
"""PostgreSQL's advisory lock under which MLflow's tables are made: `treering` in ASCII."""


def prepare_server(url: sqlalchemy.URL, uri: str) -> None:
    """Asks a database server whether MLflow can work there, and makes MLflow's tables if there are none.

    Raises:
        UserError: the server refuses the user, the password, or the database.
        StoreError: the server does not answer, or its tables are of another MLflow.
    """
    timeout = {} if "connect_timeout" in url.query or url.get_driver_name() in _NO_TIMEOUT else {"connect_timeout": 10}
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool, connect_args=timeout)
    try:
        with engine.connect() as connection:
            if not _has_tables(connection) and connection.dialect.name == "postgresql":
                # Two processes that make the same tables at once would both fail.
                connection.execute(sqlalchemy.text(f"SELECT pg_advisory_lock({_MAKING_LOCK})"))
            if not _has_tables(connection):
                with ALEMBIC:
                    MlflowClient(tracking_uri=uri).get_experiment("0")
                return
            revision = MigrationContext.configure(connection).get_current_revision()
    except sqlalchemy.exc.DBAPIError as error:
        refuse(url, f"tracking URI {redact(uri)}", "MLFLOW_TRACKING_URI", error)
    except (MlflowException, sqlalchemy.exc.SQLAlchemyError) as error:
        raise StoreError(
            f"tracking URI {redact(uri)}: MLflow cannot make its tables: {redact(str(error)).splitlines()[0]}; drop "
            "the tables of an earlier try if there are any, then run the same command again"
        ) from None
    finally:
        engine.dispose()
    known, head = schema_revisions()
    if revision == head:
        return
    if revision in known:
        raise StoreError(
            f"tracking URI {redact(uri)}: made by an older MLflow (schema {revision}, this MLflow has {head}); back "
            'the database up, then migrate it: `mlflow db upgrade "$MLFLOW_TRACKING_URI"`'
        )
    raise StoreError(
        f"tracking URI {redact(uri)}: made by a newer MLflow (schema {revision}, this MLflow has {head}); install that "
        "MLflow here, or name another database"
    )


def _has_tables(connection: sqlalchemy.Connection) -> bool:
    return {"experiments", "runs", "alembic_version"} <= set(sqlalchemy.inspect(connection).get_table_names())
