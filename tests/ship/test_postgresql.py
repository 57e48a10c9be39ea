"""A real PostgreSQL as MLflow's database: first ships at once, kills in between, and refusals with their remedy."""

import os
import random
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
import sqlalchemy
from first_ship import num_rings, start

from treering.errors import StoreError, UserError
from treering.ship.follow import ship_once
from treering.store.database import prepare_database

PLAIN, ESCAPED = "SENT@INEL/pass:word", "SENT%40INEL%2Fpass%3Aword"
KILLS = int(os.environ.get("TREERING_SHIP_KILLS", "1"))


def binaries():
    """The folder of PostgreSQL's programs, None where it is not installed."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return folders[0] if folders else None


@pytest.fixture(scope="module")
def postgresql(tmp_path_factory):
    """The address of a server whose user `mlflow` has a password that a URI must escape."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'psycopg[binary]'")
    programs = binaries()
    if programs is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    folder = tmp_path_factory.mktemp("postgresql")
    data, password = folder / "data", folder / "password"
    data.mkdir(mode=0o700)
    password.write_text(PLAIN)
    # PostgreSQL refuses to run as root, and its own user must reach its folder.
    user = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
    if user:
        for each in (folder, data, password):
            shutil.chown(each, "postgres", "postgres")
        for parent in folder.parents[:3]:  # one more under xdist
            parent.chmod(parent.stat().st_mode | 0o011)
    begin = [programs / "initdb", "-D", data, "-U", "mlflow", "-A", "scram-sha-256", "--pwfile", password, "--no-sync"]
    subprocess.run(begin, check=True, capture_output=True, timeout=120, **user)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        programs / "postgres", "-D", data, "-p", str(port), "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off",
        "-c", f"unix_socket_directories={folder}",
    ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, **user)
    try:
        deadline = time.monotonic() + 60
        while "ready to accept connections" not in (folder / "log").read_text():
            assert server.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.1)
        yield f"127.0.0.1:{port}"
    finally:
        server.send_signal(signal.SIGQUIT)
        server.wait(timeout=30)


@pytest.fixture
def database(postgresql, monkeypatch, request):
    """Makes empty databases; MLflow is pointed to the newest."""
    address = f"postgresql://mlflow:{ESCAPED}@{postgresql}"
    admin = sqlalchemy.create_engine(f"{address}/postgres", isolation_level="AUTOCOMMIT")
    made = []

    def make():
        made.append(f"{request.node.name}_{len(made)}"[-60:])
        with admin.connect() as connection:
            connection.execute(sqlalchemy.text(f"CREATE DATABASE {made[-1]}"))
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"{address}/{made[-1]}")
        return f"{address}/{made[-1]}"

    yield make
    admin.dispose()


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
