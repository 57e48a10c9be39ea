"""The tables: every frozen revision migrates to those of the models, one process at a time, whole or not at all."""

import json
import sqlite3
import threading
from pathlib import Path

import pytest
import sqlalchemy
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from ledger_rows import all_rows

import treering.store.ledger
from treering.errors import StoreError, UserError
from treering.store.ledger import schema
from treering.store.ledger.database import Database
from treering.store.ledger.models import Base

FROZEN = Path(__file__).parent / "revisions"
MIGRATIONS = Path(treering.store.ledger.__file__).parent / "migrations"


def differences(database):
    with database.reading() as connection:
        options = {"version_table": schema.VERSION_TABLE, "compare_type": True, "target_metadata": Base.metadata}
        return compare_metadata(MigrationContext.configure(connection, opts=options), Base.metadata)


def restore(database, revision):
    """Fills an empty database with a frozen one."""
    engine = database._engine
    text = (FROZEN / f"{revision}.{engine.dialect.name}.sql").read_text()
    if engine.dialect.name == "sqlite":
        connection = sqlite3.connect(database._url.database)
        connection.executescript(text)
        connection.close()
        return
    with engine.begin() as connection:
        connection.exec_driver_sql(text)


def set_revision(database, revision):
    with database._engine.connect() as connection:
        connection.execute(sqlalchemy.text("UPDATE ledger_version SET version_num = :new"), {"new": revision})
        connection.commit()


def test_every_revision_is_frozen_and_in_order():
    scripts = ScriptDirectory.from_config(_config())
    assert [each.revision for each in scripts.walk_revisions()][::-1] == list(schema.REVISIONS)
    frozen = {f"{revision}.{name}.sql" for revision in schema.REVISIONS for name in ("sqlite", "postgresql")}
    assert {path.name for path in FROZEN.iterdir()} == frozen


def _config():
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "os")
    return config


def test_an_empty_database_gets_the_tables_of_the_models(database):
    assert database.migrate() == "made"
    assert differences(database) == []
    assert database.migrate() == "current"


@pytest.mark.parametrize("revision", schema.REVISIONS)
def test_a_frozen_database_migrates_and_keeps_its_rows(database, revision):
    restore(database, revision)
    assert database.migrate() == ("current" if revision == schema.REVISIONS[-1] else "migrated")
    assert differences(database) == []
    rows = all_rows(database, passes=True)
    assert {name: len(found) for name, found in rows.items()} == {
        name: 0 if (name, revision) == ("ledger_unread", "0001") else 2 for name in Base.metadata.tables
    }
    (run, _) = rows["ledger_run"]
    assert (run["key"], run["step"], run["started_at"], run["corpora"]) == ("key-1", 1, 1.5, True)
    assert {row["commit"] for row in rows["ledger_attempt"]} <= {None, "commit 1", "commit 2"}


def test_other_versions_are_left_alone_and_the_error_names_the_command(database):
    restore(database, "0001")
    before = "found schema 0001, expected 0003: made by an older Treering; .* run `treering migrate`"
    with pytest.raises(StoreError, match=before), database.reading():
        pass
    with pytest.raises(StoreError, match=before), database.writing():
        pass
    database.migrate()
    set_revision(database, "0099")
    for use in (Database.migrate, Database.make):
        with pytest.raises(StoreError, match="found schema 0099, expected 0003: made by a newer Treering; install"):
            use(Database(str(database._url.render_as_string(hide_password=False))))


def test_migrations_at_once_wait_for_each_other(url):
    restore(Database(url), "0001")
    done, begin = [], threading.Barrier(6)

    def migrate():
        database = Database(url)
        begin.wait()
        done.append(database.migrate())
        database.close()

    threads = [threading.Thread(target=migrate) for _ in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(done) == ["current"] * 5 + ["migrated"]
    assert differences(Database(url)) == []


def test_a_migration_that_fails_leaves_the_old_tables(database, monkeypatch):
    restore(database, "0001")
    before = _tables(database)

    def upgrade(connection, revision):
        original(connection, revision)
        assert "ledger_unread" in sqlalchemy.inspect(connection).get_table_names()
        raise OSError("the disk is full")

    original = schema.upgrade
    with monkeypatch.context() as patch:
        patch.setattr(schema, "upgrade", upgrade)
        with pytest.raises(StoreError, match="the disk is full"):
            database.migrate()
    assert _tables(database) == before
    assert Database(database._url.render_as_string(hide_password=False)).migrate() == "migrated"


def _tables(database):
    return sorted(sqlalchemy.inspect(database._engine).get_table_names())


def test_tables_of_others_are_left_alone(database):
    with database._engine.connect() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE runs (id TEXT)"))
        connection.commit()
    database.make()
    assert "runs" in _tables(database)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            "mysql://u:secret1@h/d",
            "found 'mysql' without a file or of another kind, expected TREERING_DATABASE_URL like",
        ),
        ("sqlite://", "found 'sqlite' without a file"),
        ("postgresql//x", "cannot be parsed, expected TREERING_DATABASE_URL like sqlite:////"),
    ],
)
def test_a_wrong_address_names_what_is_expected(wrong, message):
    with pytest.raises(UserError, match=message) as caught:
        Database(wrong)
    assert "secret1" not in str(caught.value)


def test_a_missing_database_names_the_command_that_makes_it(database, tmp_path):
    with pytest.raises(StoreError, match=r"(missing|has no tables yet); `treering ship` makes"), database.reading():
        pass
    with pytest.raises(StoreError, match="unable to open database file"):
        Database(f"sqlite:///{tmp_path}/no/such/folder/ledger.db").migrate()


@pytest.mark.slow
def test_refusals_of_a_server_name_the_remedy_and_no_password(postgresql):
    for changed, kind, message in (
        (postgresql.url.replace("p%40ss", "wrong"), UserError, "authentication failed.*TREERING_DATABASE_URL"),
        (
            f"{postgresql.url}/missing",
            UserError,
            r"does not exist; expected an existing database: create it \(`createdb",
        ),
        ("postgresql://u:p%40ss@127.0.0.1:9/d", StoreError, "refused.*answers at 127.0.0.1:9.*`treering ship` goes on"),
    ):
        with pytest.raises(kind, match=f"(?s){message}") as caught:
            Database(changed).make()
        assert "p@ss" not in str(caught.value)
        assert "p%40ss" not in str(caught.value)


def test_the_command_makes_the_tables(database, treering):
    assert treering("migrate")[:2] == (0, f"{database.place}: tables made, schema 0003\n")
    code, out, _ = treering("migrate", "--json")
    assert (code, json.loads(out)["done"]) == (0, "current")
    assert differences(database) == []
