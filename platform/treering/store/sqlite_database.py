"""MLflow's SQLite database: made whole or not at all, and checked before anyone opens it.

MLflow makes its tables step by step, and a process that is killed meanwhile leaves a file that no later MLflow opens.
So the database is made beside its place and renamed. A half-made file is set aside, and one of an older MLflow is
migrated on a copy. Everything that Treering stored comes back from the run logs.

- No file, or an empty one: a new database; journals (`-wal`, `-journal`) of a removed one are set aside first.
- Half made or damaged: set aside as `mlflow.db.set-aside-…`, a new one is made, and the runs are shipped again.
- Made by an older MLflow: a copy is migrated; the old file stays as `mlflow.db.before-…`.
- Made by a newer MLflow, or no SQLite file: left alone: exit 4, with the remedy.
- Locked or not whole, and another process has it open: waited for up to a minute, then exit 4 with its process id.

Nothing that is set aside is ever deleted, and two first ships at once make one database.
"""

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import sqlalchemy
import sqlalchemy.exc
from mlflow.store.db import utils as mlflow_database
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

from treering.errors import StoreError
from treering.files import replace_durably
from treering.redact import redact
from treering.store.alembic_lock import ALEMBIC
from treering.store.mlflow_schema import schema_revisions

_PATIENCE_S: Final = 60.0
"""How long another program may have a database open that is not whole."""
_HEADER: Final = b"SQLite format 3\0"
_MAKING: Final = ".making-"


def prepare_file(path: Path) -> str | None:
    """Makes sure that a file is a whole database of this MLflow.

    Several processes may do this at the same time; the first one makes the database.

    Returns:
        What was done, in words, where more was done than to make a missing database.

    Raises:
        StoreError: the database cannot be made or read, or belongs to a newer MLflow.
    """
    try:
        if _is_whole(path):
            return None
        path.parent.mkdir(parents=True, exist_ok=True)
        with _alone(path):
            return _prepare(path)
    except (OSError, sqlite3.OperationalError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise StoreError(
            f"{path}: MLflow's database cannot be made or read: {reason}; expected a folder that can be written, with "
            "free space; then run the same command again"
        ) from None


def artifact_location(path: Path) -> str:
    """Folder of MLflow's artifacts beside an embedded database, as a URI; MLflow's default is the working directory."""
    return (path.parent / "mlartifacts").as_uri()


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Waits until no other process makes or migrates the database."""
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)  # a lock of the folder leaves no file behind
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class _Found:
    """What a database file holds.

    Attributes:
        revision: of MLflow's schema, None where none is recorded.
        runs: whether it holds a run.
    """

    revision: str | None
    runs: bool


def _prepare(path: Path) -> str | None:
    for left in path.parent.glob(f".{path.name}{_MAKING}*"):
        left.unlink()  # of a process that was killed; by the lock no other process is at work
    if not path.exists() or path.stat().st_size == 0:
        path.unlink(missing_ok=True)
        # Journals of a database that somebody removed: SQLite would replay them into the new one.
        _move(path, _aside(path, f"set-aside-{time.strftime('%Y%m%d-%H%M%S')}"))
        _make(path)
        return None
    with path.open("rb") as file:
        if file.read(len(_HEADER)) != _HEADER:
            raise StoreError(
                f"{path}: is not an SQLite database, expected MLflow's; move the file away: `treering ship` makes a "
                "new one from the run logs"
            )
    try:
        _wait_for_others(path)
        found = _look(path)
    except sqlite3.OperationalError:  # locked, or cannot be opened: another process may be at work
        raise
    except sqlite3.DatabaseError as error:
        return _replace(path, f"it is damaged ({error})")
    known, head = schema_revisions()
    if found.revision == head:
        return None
    if found.revision is not None and found.revision not in known:
        raise StoreError(
            f"{path}: made by a newer MLflow (schema {found.revision}, this MLflow has {head}); install that MLflow, "
            "or move the file away: `treering ship` makes a new one from the run logs"
        )
    if not found.runs:
        return _replace(path, "it was half made when its process ended")
    if found.revision is None:
        return _replace(path, "it records no version of MLflow's schema")
    return _migrate(path, found.revision)


def _is_whole(path: Path) -> bool:
    """Whether a file is MLflow's database of this version; its folder may be read-only.

    `_prepare` examines any other file again, and its error names what is wrong.
    """
    try:
        with path.open("rb") as file:
            if file.read(len(_HEADER)) != _HEADER:
                return False
        return _look(path).revision == schema_revisions()[1]
    except (OSError, sqlite3.DatabaseError):
        return False


def _look(path: Path) -> _Found:
    with closing(sqlite3.connect(path, timeout=10.0)) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        revision = runs = None
        if "alembic_version" in tables:
            revision = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        if "runs" in tables:
            runs = connection.execute("SELECT 1 FROM runs LIMIT 1").fetchone()
    return _Found(revision[0] if revision else None, runs is not None)


def _make(path: Path) -> None:
    """Makes an empty database under another name, whole, and renames it.

    Raises:
        StoreError: MLflow cannot make it.
    """
    temporary = _temporary(path)
    try:
        with ALEMBIC:
            store = SqlAlchemyStore(f"sqlite:///{temporary}", artifact_location(path))  # type: ignore[no-untyped-call]
        store.engine.dispose()
        _publish(temporary, path)
    except sqlalchemy.exc.SQLAlchemyError as error:
        _discard(temporary)
        raise StoreError(f"{path}: MLflow cannot make its database: {redact(str(error)).splitlines()[0]}") from error
    except BaseException:
        _discard(temporary)
        raise


def _migrate(path: Path, revision: str) -> str:
    """Migrates a copy, keeps the old file, and renames the copy."""
    temporary, kept = _temporary(path), _aside(path, f"before-{time.strftime('%Y%m%d-%H%M%S')}")
    with closing(sqlite3.connect(path)) as old, closing(sqlite3.connect(temporary)) as new:
        old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        old.backup(new)
    engine = sqlalchemy.create_engine(f"sqlite:///{temporary}")
    try:
        mlflow_database._upgrade_db(engine)  # type: ignore[no-untyped-call]  # noqa: SLF001 - `mlflow db upgrade`
    except Exception as error:  # noqa: BLE001 - a migration may fail with any error of SQLAlchemy or Alembic
        engine.dispose()
        _discard(temporary)
        return _replace(path, f"it could not be migrated from schema {revision} ({redact(str(error)).splitlines()[0]})")
    engine.dispose()
    _move(path, kept)
    _publish(temporary, path)
    return f"{path}: migrated to this version of MLflow; {kept.name} is the database as it was"


def _replace(path: Path, why: str) -> str:
    """Sets a database aside, with its journals, and makes an empty one."""
    kept = _aside(path, f"set-aside-{time.strftime('%Y%m%d-%H%M%S')}")
    _move(path, kept)
    _make(path)
    return (
        f"{path}: {why}; it was set aside as {kept.name}, and a new database was made; every run is shipped again from "
        "its run log"
    )


def _wait_for_others(path: Path) -> None:
    """Waits while another program has a database open that is not whole: it may be making or migrating it.

    Raises:
        StoreError: it goes on for too long.
    """
    until = time.monotonic() + _PATIENCE_S
    while not _is_whole(path) and (others := _others(path)):
        if time.monotonic() > until:
            raise StoreError(
                f"{path}: is locked or not whole, and {', '.join(f'process {each}' for each in others)} has it open; "
                "end that process, then run the same command again"
            )
        time.sleep(0.2)


def _others(path: Path) -> list[int]:
    """The other processes of this machine that have a file open, as far as this user may see them."""
    found = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if str(link.readlink()) == str(path):
                found.add(int(link.parts[2]))
    return sorted(found - {os.getpid()})


def _move(path: Path, kept: Path) -> None:
    """Renames a database with its journals; what is missing is skipped."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(kept.with_name(kept.name + suffix))


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}{_MAKING}{os.getpid()}")


def _aside(path: Path, word: str) -> Path:
    """A free name beside a file."""
    names = (f"{path.name}.{word}{f'-{number}' if number else ''}" for number in range(1000))
    taken = {each.name for each in path.parent.iterdir()}
    return path.with_name(next(name for name in names if not any(each.startswith(name) for each in taken)))


def _publish(temporary: Path, path: Path) -> None:
    """Renames a whole database to its place; both survive a power cut."""
    with closing(sqlite3.connect(temporary)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # nothing of it is in another file any more
    replace_durably(temporary, path)
    _discard(temporary)


def _discard(temporary: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        with suppress(FileNotFoundError):
            temporary.with_name(temporary.name + suffix).unlink()
