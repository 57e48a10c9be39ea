"""Random queries over random ledgers: both databases answer as plain Python does over the same objects."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ledger_world import answer, fill, terms, worlds

from treering.store.ledger.database import Database
from treering.store.ledger.search.find import search


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory):
    return Database(f"sqlite:///{tmp_path_factory.mktemp('fuzz')}/ledger.db")


def check(database, world, asked):
    query = " ".join(term[-1] for term in asked)
    with database.writing() as connection:
        fill(connection, world)
    found = search(database, query)
    expected, undecided = answer(world, asked)
    assert {row.checkpoint["key"] for row in found.found} == expected, query
    assert (found.count, found.undecided) == (len(expected), undecided), query
    return [row.checkpoint["key"] for row in found.found]


QUERIES = st.lists(terms(), max_size=3)


@given(world=worlds(), asked=QUERIES)
@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_sqlite_answers_as_python_does(sqlite, world, asked):
    check(sqlite, world, asked)


@pytest.mark.slow
@given(world=worlds(), asked=QUERIES)
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_postgresql_answers_as_sqlite_and_python_do(sqlite, server, world, asked):
    assert check(server, world, asked) == check(sqlite, world, asked)


@pytest.fixture(scope="module")
def server(postgresql):
    from postgresql_server import create_database

    return Database(create_database(postgresql.url, "fuzz"))
