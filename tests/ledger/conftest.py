"""Every test of the ledger's contract runs on SQLite and on a real PostgreSQL."""

import itertools

import pytest
from postgresql_server import create_database, postgresql_server
from run_writer import run_writers

from treering.project import Project
from treering.store.ledger.database import Database
from treering.store.ledger.ledger import Ledger

_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgresql():
    """The server, whose password a URL must escape."""
    with postgresql_server("ledger", "p@ss/word") as server:
        server.url = f"postgresql://ledger:p%40ss%2Fword@{server.address}"
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def url(request, tmp_path):
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    return create_database(request.getfixturevalue("postgresql").url, f"ledger_{next(_numbers)}")


@pytest.fixture
def database(url, monkeypatch):
    """The empty database, which commands use too."""
    monkeypatch.setenv("TREERING_DATABASE_URL", url)
    database = Database(url)
    yield database
    database.close()


@pytest.fixture
def ledger(database):
    return Ledger(database)


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path / "here")


@pytest.fixture
def write_run(project):
    """Starts writing a run; at the end its lock is dropped."""
    with run_writers(project) as write:
        yield write
