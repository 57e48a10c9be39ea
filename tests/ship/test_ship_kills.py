"""The shipper is killed with -9 at random moments while a run goes on: MLflow then equals a rebuild."""

import os
import random
import time

import first_ship
import mlflow
import pytest
from kills import kill_at_random, num_kills
from shipped_runs import mlflow_runs

from treering.ship.follow import ship_once
from treering.ship.mlflow_target import MlflowTarget
from treering.store.registry import Registry

KILLS = num_kills(8)


@pytest.mark.slow
def test_mlflow_equals_a_rebuild_after_any_kill(project, write_run, uri, monkeypatch, empty_database):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setattr("treering.ship.decimation.WHOLE", 200)
    monkeypatch.setattr("treering.ship.decimation.BUCKETS", 50)
    draw = random.Random(7)
    writer = write_run().hold().start().lay(300).save()
    began = time.monotonic()
    os.waitpid(first_ship.start(project), 0)
    whole_s = time.monotonic() - began
    killed = 0
    for number in range(KILLS):
        writer.lay(draw.randint(20, 60), loss=lambda step, number=number: number + 1 / step)
        if number % 3 == 1:
            writer.save().evaluate(writer.step, draw.random())
        if number % 4 == 3:
            checkpoints = writer.run.checkpoints()
            writer.die().hold().start(parent=checkpoints[draw.randrange(len(checkpoints))])
        killed += kill_at_random(first_ship.start(project), whole_s, draw)
    assert killed > 0
    writer.end().die()
    ship_once(project)
    target = MlflowTarget(uri)
    assert target.difference(writer.run) is None
    # The same by MLflow's own client: another database that nobody was killed at holds the same.
    fresh = project.root / "fresh.db"
    fresh.write_bytes(empty_database.read_bytes())
    MlflowTarget(f"sqlite:///{fresh}").shipper(writer.run).ship()
    one, other = (mlflow.MlflowClient(f"sqlite:///{path}") for path in (project.root / "mlflow.db", fresh))
    (run,), (expected,) = mlflow_runs(one), mlflow_runs(other)
    assert set(run.data.metrics) == set(expected.data.metrics)
    for key in run.data.metrics:
        if key.startswith("eval/"):
            continue  # of a branch that was abandoned, or scored again
        assert points(one, run, key) == points(other, expected, key), key
    assert run.data.params == expected.data.params
    assert run.info.status == expected.info.status


def points(client, run, key):
    return sorted(
        (each.step, each.timestamp, repr(each.value)) for each in client.get_metric_history(run.info.run_id, key)
    )


@pytest.mark.slow
def test_a_rebuild_that_is_killed_is_finished_by_the_next_pass(project, write_run, uri, client):
    writer = write_run().start().lay(400).save().evaluate(400).end()
    target = MlflowTarget(uri)
    draw = random.Random(3)
    target.shipper(writer.run).ship()
    for _ in range(num_kills(3)):
        (run,) = mlflow_runs(client)
        client.log_metric(run.info.run_id, "train/loss", 5.0, step=500, timestamp=draw.randrange(10**6))
        child = os.fork()
        if child == 0:
            try:
                MlflowTarget(uri).rebuild(writer.run)
            finally:
                os._exit(0)
        kill_at_random(child, 1.0, draw)
        ship_once(project)
        if target.difference(writer.run) is not None:  # killed before it put the run aside
            target.rebuild(writer.run)
        assert target.difference(writer.run) is None
        assert len(mlflow_runs(client)) == 1
    assert len(mlflow_runs(client, "replaced")) == num_kills(3)
    assert Registry(uri).has_experiment("tiny")
