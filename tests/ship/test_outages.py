"""A real MLflow server that is down, slow, answers 500 or loses its answers; a PostgreSQL whose tables are locked."""

import sys
import threading
import time
from pathlib import Path

import mlflow
import psycopg
import pytest
from postgresql_server import create_database, postgresql_server

from treering.ship import target as target_list
from treering.ship.follow import follow, ship_once
from treering.ship.mlflow_target import MlflowTarget

pytestmark = pytest.mark.slow

BENCHMARKS = Path(__file__).parents[2] / "experiments" / "benchmarks"


@pytest.fixture
def troubled(server, monkeypatch):
    """The server behind a proxy that makes trouble; MLflow's address is the proxy's."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    import troubled_server

    with troubled_server.TroubledServer(server.port, slow_s=0.3) as proxy:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", proxy.url)
        yield proxy
    sys.modules.pop("troubled_server", None)


@pytest.fixture(autouse=True)
def with_ledger(_without_ledger, monkeypatch):
    ledger = ("treering.ship.ledger", "alembic", "TREERING_DATABASE_URL", True)
    monkeypatch.setattr(target_list, "_TARGETS", (*target_list._TARGETS, ledger))


def wait_for(condition, seconds=300):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def following(project, reports):
    thread = threading.Thread(
        target=follow,
        args=(project,),
        kwargs={"interval_s": 0.05, "grace_s": 0.3, "retry_s": 0.2, "report": reports.append},
        daemon=True,
    )
    thread.start()
    return thread


def test_everything_arrives_after_any_trouble_and_the_ledger_does_not_wait(project, write_run, troubled, server):
    writer = write_run().hold().start().lay(5)
    reports = []
    follower = following(project, reports)
    wait_for(lambda: {report.target for report in reports} >= {"mlflow", "ledger"})
    for trouble in ("error", "down", "lost", "slow"):
        troubled.trouble = trouble
        seen = len(reports)
        writer.lay(10).save()
        wait_for(lambda seen=seen: "ledger" in {report.target for report in reports[seen:]})
        wait_for(lambda trouble=trouble: troubled.requests.get(trouble, 0) > 0)
    troubled.trouble = "none"
    writer.lay(5).end().die()
    follower.join(60)
    assert not follower.is_alive()
    target = MlflowTarget(server.uri)
    assert target.difference(writer.run) is None
    assert [report.note for report in reports if report.note] == []


def test_locked_tables_delay_mlflow_alone(project, write_run, monkeypatch):
    with postgresql_server("mlflow", "secret") as database:
        uri = create_database(f"postgresql://mlflow:secret@{database.address}", "locked")
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        writer = write_run().hold().start().lay(5).save()
        ship_once(project)
        reports = []
        with psycopg.connect(uri) as lock:
            lock.execute("LOCK TABLE metrics, latest_metrics IN ACCESS EXCLUSIVE MODE")
            follower = following(project, reports)
            writer.lay(20).save()
            wait_for(lambda: "ledger" in {report.target for report in reports})
            seen = len(reports)
            writer.lay(20).save()
            wait_for(lambda: "ledger" in {report.target for report in reports[seen:]})
            assert "mlflow" not in {report.target for report in reports}
            assert follower.is_alive()
        writer.end().die()
        follower.join(60)
        assert not follower.is_alive()
        assert MlflowTarget(uri).difference(writer.run) is None
        client = mlflow.MlflowClient(uri)
        (experiment,) = [each for each in client.search_experiments() if each.name == "tiny"]
        (run,) = client.search_runs([experiment.experiment_id])
        assert run.data.metrics["data/consumed_tokens"] == 45 * 8 * 64
