"""MLflow's database is made whole or not at all; what a killed process or another version left is mended and said."""

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import mlflow
import pytest
import sqlalchemy
from alembic import command
from alembic.script import ScriptDirectory
from first_ship import num_rings, start
from mlflow.store.db import utils as mlflow_database
from mlflow.store.db.base_sql_model import Base  # noqa: F401 - makes MLflow register its tables
from mlflow.store.tracking.dbmodels.initial_models import Base as InitialBase

from treering.cli.commands import up
from treering.errors import StoreError, UserError
from treering.project import Project
from treering.ship.follow import ship_once
from treering.store.database import prepare_database
from treering.store.registry import Registry

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("TREERING_SHIP_KILLS", "3"))


@pytest.fixture
def tracked(monkeypatch):
    """Points MLflow to the database of a project, and returns its path."""

    def track(project):
        path = project.root / "mlflow.db"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{path}")
        return path

    return track


@pytest.fixture
def database(project, tracked):
    return tracked(project)


def schema(path, revision):
    """A database as MLflow's migrations leave it at a revision."""
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    InitialBase.metadata.create_all(engine)
    if revision:
        config = mlflow_database._get_alembic_config(f"sqlite:///{path}")
        with engine.begin() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, revision)
    engine.dispose()


def revisions():
    script = ScriptDirectory.from_config(mlflow_database._get_alembic_config("sqlite://"))
    return [each.revision for each in script.walk_revisions()]  # newest first


def test_two_first_ships_at_once_both_succeed(project, write_run, tracked):
    tracked(project).touch()  # an empty file is no database yet
    write_run().start().lay(3).end()
    ships = [start(project) for _ in range(2)]
    assert [os.waitpid(each, 0)[1] for each in ships] == [0, 0]
    assert num_rings() == [3]


def test_killed_at_any_moment_the_first_ship_succeeds_afterwards(tmp_path, project, write_run, tracked):
    write_run().start().lay(3).end()
    copies = [Project(tmp_path / f"copy-{number}") for number in range(KILLS + 1)]
    for each in copies:
        shutil.copytree(project.runs, each.runs)
    tracked(copies[-1])
    began = time.monotonic()
    assert os.waitpid(start(copies[-1]), 0)[1] == 0
    whole_s, choice = time.monotonic() - began, random.Random(0)
    for kill, each in enumerate(copies[:-1]):
        tracked(each)
        ship = start(each)
        time.sleep(whole_s * (kill + choice.random()) / KILLS)
        os.kill(ship, signal.SIGKILL)
        os.waitpid(ship, 0)
        (report,) = ship_once(each)
        assert report.state == "finished"
        assert num_rings() == [3]
        assert not list(each.root.glob(".mlflow.db.making-*"))


@pytest.mark.parametrize("done", ["initial tables", "half the migrations", "all but one migration"])
def test_a_half_made_database_is_set_aside_and_said(project, database, write_run, caplog, done):
    write_run().start().lay(3).end()
    known = revisions()
    schema(database, {"half the migrations": known[len(known) // 2], "all but one migration": known[1]}.get(done))
    ship_once(project)
    assert num_rings() == [3]
    (kept,) = project.root.glob("mlflow.db.set-aside-*")
    assert f"it was half made when its process ended; it was set aside as {kept.name}" in caplog.text
    assert prepare_database(f"sqlite:///{database}") is None, "once is enough"


def test_an_older_database_is_migrated_and_kept_as_it_was(project, database, write_run):
    write_run().start().lay(2).end()
    older = revisions()[1]
    schema(database, older)
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(
            "INSERT INTO experiments (experiment_id, name, lifecycle_stage) VALUES (7, 'theirs', 'active')"
        )
        connection.execute(
            "INSERT INTO runs (run_uuid, name, user_id, source_type, status, start_time, lifecycle_stage,"
            " experiment_id) VALUES ('abc', 'old', 'they', 'LOCAL', 'FINISHED', 1, 'active', 7)"
        )
    note = prepare_database(f"sqlite:///{database}")
    (kept,) = project.root.glob("mlflow.db.before-*")
    assert note == f"{database}: migrated to this version of MLflow; {kept.name} is the database as it was"
    assert mlflow.MlflowClient(f"sqlite:///{database}").get_run("abc").info.run_name == "old"
    with closing(sqlite3.connect(kept)) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == (older,)
    ship_once(project)
    assert num_rings() == [2]


def test_a_database_of_a_newer_mlflow_is_left_alone(database, empty_database):
    shutil.copy(empty_database, database)
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = 'fedcba987654'")
    before = database.read_bytes()
    with pytest.raises(StoreError, match=r"newer MLflow \(schema fedcba987654, .* install that MLflow, or move"):
        Registry(f"sqlite:///{database}")
    assert database.read_bytes() == before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not a database, and longer than a header", "is not an SQLite database, expected MLflow's; move the file"),
        ("folder", "cannot be made or read: Is a directory; expected a folder that can be written"),
    ],
)
def test_what_is_no_database_is_left_alone_and_named(database, content, message):
    if content == "folder":
        database.mkdir()
        (database / "file").touch()
    else:
        database.write_bytes(content)
    with pytest.raises(StoreError, match=f"mlflow.db: .*{message}"):
        Registry(f"sqlite:///{database}")


def test_journals_of_a_removed_database_are_not_replayed_into_the_new_one(project, database, write_run):
    write_run().start().lay(3).end()
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE theirs (x)")
        connection.commit()
        wal = database.with_name("mlflow.db-wal").read_bytes()
    database.unlink()
    database.with_name("mlflow.db-wal").write_bytes(wal)
    ship_once(project)
    assert num_rings() == [3]
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master WHERE name = 'theirs'").fetchall() == []
    (kept,) = project.root.glob("mlflow.db.set-aside-*-wal")
    assert kept.read_bytes() == wal


def test_a_database_that_another_program_makes_is_waited_for(database, empty_database, monkeypatch):
    schema(database, revisions()[-1])
    script = "import sys; file = open(sys.argv[1], 'rb'); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", script, str(database)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as maker:
        maker.stdout.readline()
        monkeypatch.setattr("treering.store.sqlite_database._PATIENCE_S", 0.3)
        with pytest.raises(
            StoreError, match=f"is locked or not whole, and process {maker.pid} has it open; end that process"
        ):
            prepare_database(f"sqlite:///{database}")
        shutil.copyfile(empty_database, database)
        assert prepare_database(f"sqlite:///{database}") is None, "now it is whole, whoever has it open"
        maker.stdin.close()
    assert not list(database.parent.glob("mlflow.db.set-aside-*"))


def test_a_whole_database_is_used_where_nothing_can_be_written(database, empty_database):
    shutil.copyfile(empty_database, database)
    assert prepare_database(f"sqlite:///{database}") is None
    assert [each.name for each in database.parent.iterdir() if "lock" in each.name] == [], "no lock is taken"


def test_a_damaged_database_is_replaced(database, empty_database, caplog):
    content = bytearray(empty_database.read_bytes())
    content[100:8192] = b"\xff" * (8192 - 100)
    database.write_bytes(content)
    Registry(f"sqlite:///{database}")
    assert "it is damaged (" in caplog.text
    assert prepare_database(f"sqlite:///{database}") is None


def test_a_folder_that_cannot_be_written_is_named():
    with pytest.raises(StoreError, match=r"/proc/self/nothing/mlflow\.db: .*cannot be made or read"):
        Registry("sqlite:////proc/self/nothing/mlflow.db")


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("postgresql+psycopg2://u:hidden@h/d", r"driver psycopg2 is not installed; `pip install 'psycopg2-binary'`"),
        ("postgresql+asyncpg://u:hidden@h/d", "driver asyncpg is not installed; `pip install 'asyncpg'`"),
        ("mysql+pymysql://u:hidden@h/d", "driver pymysql is not installed; `pip install 'pymysql'`"),
        ("mysql://u:hidden@h/d", "driver MySQLdb is not installed; `pip install 'mysqlclient'`"),
        ("mssql+pyodbc://u:hidden@h/d", "driver pyodbc is not installed; `pip install 'pyodbc'`"),
        ("postgres://u:hidden@h/d", "found the database 'postgres', .* expected postgresql://…"),
        ("posgresql://u:hidden@h/d", "found the database 'posgresql', .* one of postgresql, mysql, sqlite, mssql"),
        ("postgresql+psycopg9://u:hidden@h/d", "found driver 'psycopg9', .* postgresql:// without a driver"),
        ("postgresql://u:hidden@h:port/d", "cannot be parsed, expected DIALECT://USER@HOST:PORT/DATABASE"),
        ("oracle://u:hidden@h/d", "oracle"),
    ],
)
def test_a_database_that_cannot_be_opened_here_is_an_error_with_the_remedy(uri, message):
    with pytest.raises(UserError, match=message) as caught:
        Registry(uri)
    assert "hidden" not in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("uri", ["http://mlflow:SENTINEL@127.0.0.1:9", "http://127.0.0.1:9/?token=SENTINEL"])
def test_a_server_that_does_not_answer_is_named_without_its_password(uri, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(StoreError, match=r"registry http://.*127\.0\.0\.1:9") as caught:
        Registry(uri).experiment("tiny")
    assert "SENTINEL" not in str(caught.value)


def test_the_server_of_treering_up_gets_its_database_by_the_environment(project, monkeypatch):
    """Every user of a machine can read the command lines of all processes."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://u:SENTINEL@127.0.0.1:9/runs")
    assert "SENTINEL" not in " ".join(up._mlflow_command(project, 5000))
