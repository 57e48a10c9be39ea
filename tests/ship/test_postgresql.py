"""A real PostgreSQL as MLflow's database: first ships at once, kills in between, and refusals with their remedy."""

import os
import random
import signal
import time

import pytest
import sqlalchemy
from first_ship import num_rings, start
from kills import num_kills
from postgresql_server import create_database, postgresql_server

from treering.errors import StoreError, UserError
from treering.ship.follow import ship_once
from treering.store.database import prepare_database

PLAIN, ESCAPED = "SENT@INEL/pass:word", "SENT%40INEL%2Fpass%3Aword"
KILLS = num_kills(1)


@pytest.fixture(scope="module")
def postgresql():
    """The address of a server whose user `mlflow` has a password that a URI must escape."""
    with postgresql_server("mlflow", PLAIN) as server:
        yield server.address


@pytest.fixture
def database(postgresql, monkeypatch, request):
    """Makes empty databases; MLflow is pointed to the newest."""
    made = []

    def make():
        name = f"{request.node.name}_{len(made)}"[-60:]
        made.append(create_database(f"postgresql://mlflow:{ESCAPED}@{postgresql}", name))
        monkeypatch.setenv("MLFLOW_TRACKING_URI", made[-1])
        return made[-1]

    return make


@pytest.mark.slow
def test_first_ships_at_once_or_killed_succeed_and_other_versions_are_left_alone(project, write_run, database):
    write_run().start().lay(3).end()
    uri, began = database(), time.monotonic()
    ships = [start(project) for _ in range(2)]
    assert [os.waitpid(each, 0)[1] for each in ships] == [0, 0]
    assert num_rings() == [3]
    whole_s, choice = time.monotonic() - began, random.Random(1)
    for kill in range(KILLS):
        database()
        ship = start(project)
        time.sleep(whole_s / 2 * (kill + choice.random()) / KILLS)
        os.kill(ship, signal.SIGKILL)
        os.waitpid(ship, 0)
        (report,) = ship_once(project)
        assert report.state == "finished"
        assert num_rings() == [3]
    engine = sqlalchemy.create_engine(uri)
    for revision, message in (
        ("0584bdc529eb", "older MLflow .* back the database up, then migrate it: `mlflow db upgrade"),
        ("fedcba987654", "newer MLflow .* install that MLflow here, or name another database"),
    ):
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text("UPDATE alembic_version SET version_num = :new"), {"new": revision})
        with pytest.raises(StoreError, match=message):
            prepare_database(uri)
    engine.dispose()


def test_refusals_name_the_remedy_and_no_password(database):
    uri = database()
    for changed, kind, message in (
        (uri.replace(ESCAPED, "SENTINEL"), UserError, "password authentication failed .* expected a user and password"),
        (uri.replace(f":{ESCAPED}@", "@"), UserError, "no password supplied.* expected a user and password"),
        (f"{uri}_missing", UserError, r"does not exist; expected an existing database: create it \(`createdb test_"),
        (uri.replace("127.0.0.1", "nowhere.invalid"), StoreError, "nowhere.invalid.*expected a server that answers"),
        (f"postgresql://u:{ESCAPED}@127.0.0.1:9/d", StoreError, "refused.*a server that answers at 127.0.0.1:9"),
        (uri.replace(ESCAPED, PLAIN), UserError, "found more than one `@`, expected one"),
    ):
        with pytest.raises(kind, match=f"(?s){message}") as caught:
            prepare_database(changed)
        assert "INEL" not in str(caught.value), changed
        assert "pass:word" not in str(caught.value)
