"""Whether the places that runs are shipped to answer: MLflow, the ledger, the store of copies. Nothing is written."""

import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Final

from treering.collect.doctor import Check
from treering.data.stored import DATA_VARIABLE
from treering.errors import TreeringError, UserError
from treering.redact import redact

_PATIENCE_S: Final = 5
_WITHOUT: Final = {"store": "no copies are made", "data": "corpora are looked for in the project alone"}


def check_stores() -> Iterator[Check]:
    """Looks at each place that a variable of the environment names; the others are files of the project."""
    looks: tuple[tuple[str, str, Callable[[str, str], None]], ...] = (
        ("MLflow", "MLFLOW_TRACKING_URI", _ask_mlflow),
        ("ledger", "TREERING_DATABASE_URL", _ask_database),
        ("store", "TREERING_STORE_URL", _ask_store),
        ("data", DATA_VARIABLE, _ask_store),
    )
    for name, variable, ask in looks:
        address = os.environ.get(variable)
        if not address:
            yield Check(name, "ready", f"{variable} is unset, {_WITHOUT.get(name, 'a file of the project is used')}")
            continue
        try:
            ask(address, variable)
        except ImportError as error:
            role = {"ledger": "ledger", "data": "s3"}.get(name, "registry")
            yield Check(name, "fault", f"{variable} is set, and {error}", f"pip install 'treering[{role}]'")
        except TreeringError as error:
            yield Check(name, "fault", str(error))
        else:
            yield Check(name, "ready", f"{redact(address)} answers")


def _ask_mlflow(address: str, variable: str) -> None:
    """Asks the server for its health, or the database for a connection.

    Raises:
        UserError: it does not answer, or refuses.
    """
    if not address.startswith(("http://", "https://")):
        _ask_database(address, variable)
        return
    url = f"{address.rstrip('/')}/health"
    try:
        with urllib.request.urlopen(_with_password(url), timeout=_PATIENCE_S):  # noqa: S310 - http and https alone
            return
    except urllib.error.HTTPError as error:
        reason = f"answers {error.code} {error.reason}"
        helps = "correct user and password in it" if error.code in {401, 403} else "expected a server of MLflow"
    except (OSError, ValueError) as error:
        reason, helps = (
            f"does not answer ({getattr(error, 'reason', error)})",
            "start the server, or correct the address",
        )
    raise UserError(f"{redact(address)} {reason}; {helps}: {variable}")


def _with_password(url: str) -> urllib.request.Request:
    """A request with user and password of the address, or of MLflow's variables, which urllib does not send itself."""
    from base64 import b64encode  # noqa: PLC0415 - only a server needs it
    from urllib.parse import unquote, urlsplit  # noqa: PLC0415

    parts = urlsplit(url)
    user = unquote(parts.username or "") or os.environ.get("MLFLOW_TRACKING_USERNAME", "")
    password = unquote(parts.password or "") or os.environ.get("MLFLOW_TRACKING_PASSWORD", "")
    request = urllib.request.Request(parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl())  # noqa: S310
    if user:
        request.add_header("Authorization", f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}")
    return request


def _ask_database(address: str, variable: str) -> None:
    """Connects to a database server; the file of SQLite is made when it is first written.

    Raises:
        UserError: the address is wrong, or the server refuses.
        StoreError: the server does not answer.
    """
    import sqlalchemy  # noqa: PLC0415 - a training node may lack it
    import sqlalchemy.exc  # noqa: PLC0415

    from treering.store.refusals import refuse  # noqa: PLC0415

    try:
        url = sqlalchemy.make_url(address)
        if url.drivername == "postgresql" and variable == "TREERING_DATABASE_URL":
            url = url.set(drivername="postgresql+psycopg")
        timeout = {"connect_timeout": _PATIENCE_S} if url.get_backend_name() != "sqlite" else {}
        engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool, connect_args=timeout)
        if timeout:
            engine.connect().close()
    except sqlalchemy.exc.DBAPIError as error:
        refuse(url, redact(address), variable, error)
    except (sqlalchemy.exc.SQLAlchemyError, ValueError) as error:
        reason = redact(str(error)).splitlines()[0]
        raise UserError(f"{redact(address)}: {reason}; expected the URL of a database in {variable}") from None


def _ask_store(address: str, _variable: str) -> None:
    """Lists the store.

    Raises:
        UserError: the URL names no store.
        StoreError: the store does not answer, or refuses.
    """
    from treering.objects import ObjectStore  # noqa: PLC0415 - a training node may lack fsspec

    ObjectStore(address).folders()
