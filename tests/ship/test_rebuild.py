"""MLflow after any history of passes equals what a rebuild gives; what differs is named, and made again."""

import json
import math
import random

import mlflow
import pytest
from shipped_runs import history, mlflow_runs

from treering.ship.follow import ship_once
from treering.ship.mlflow_target import MlflowTarget
from treering.ship.shipper import MlflowShipper
from treering.store.registry import Registry
from treering.store.values import Point


@pytest.fixture
def target(uri):
    return MlflowTarget(uri)


def test_a_run_that_arrived_is_equal(project, write_run, target):
    run = (
        write_run().start(devices=["NVIDIA A100-SXM4-80GB"]).lay(20).save().befall("checkpoint_failed", text="full").run
    )
    assert target.difference(run).text == "found no MLflow run, expected one"
    ship_once(project)
    assert target.difference(run) is None


def test_what_is_behind_is_compared_as_far_as_it_goes(project, write_run, target):
    writer = write_run().hold().start().lay(5)
    ship_once(project)
    writer.lay(3)
    found = target.difference(writer.run)
    assert (found.text, found.behind) == ("found rings up to step 5, expected 8", True)
    (run,) = mlflow_runs(mlflow.MlflowClient(target.place))
    Registry(target.place).log(run.info.run_id, [Point("train/loss", 9.0, 4, 1)])
    found = target.difference(writer.run)
    assert found.text == "metric train/loss at step 4: found 9.0, expected no value with that time"
    assert not found.behind


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            lambda client, run: client.set_tag(run.info.run_id, "treering.layout", "8x8x8"),
            "tag treering.layout: found '8x8x8', expected '1x1x2'",
        ),
        (
            lambda client, run: client.set_tag(run.info.run_id, "treering.num_spikes", "3"),
            "tag treering.num_spikes: found '3', expected no such tag",
        ),
        (
            lambda client, run: client.log_param(run.info.run_id, "more", 1),
            None,
        ),
        (
            lambda client, run: client.delete_logged_model(run.outputs.model_outputs[0].model_id),
            "model tiny-NAME-step-00000020: missing",
        ),
        (
            lambda client, run: client.update_run(run.info.run_id, status="FAILED"),
            "status: found 'FAILED', expected 'FINISHED'",
        ),
        (
            lambda client, run: client.log_metric(run.info.run_id, "train/loss", 7.0, step=99, timestamp=1),
            "metric train/loss at step 99: found 7.0, expected no value with that time",
        ),
    ],
)
def test_the_first_difference_is_named_and_made_good(write_run, target, client, change, text):
    writer = write_run().start().lay(20).save().evaluate(20).end()
    target.shipper(writer.run).ship()
    (run,) = mlflow_runs(client)
    change(client, client.get_run(run.info.run_id))
    found = target.difference(writer.run)
    assert (found and found.text) == (text and text.replace("NAME", writer.resolved.run_id[:8]))
    if text is None:
        return
    assert run.info.run_id in target.rebuild(writer.run)
    assert target.difference(writer.run) is None
    (new,) = mlflow_runs(client)
    (old,) = mlflow_runs(client, "replaced")
    assert (old.info.run_id, old.data.tags["mlflow.parentRunId"]) == (run.info.run_id, new.info.run_id)
    assert old.info.run_name == f"tiny-{writer.resolved.run_id[:8]} (replaced by a rebuild)"
    assert len(history(client, new, "train/loss")) == 20


def test_a_lost_point_is_named(project, write_run, target, uri):
    writer = write_run().start().lay(20).end()
    ship_once(project)
    import sqlite3

    with sqlite3.connect(uri.removeprefix("sqlite:///")) as database:
        database.execute("DELETE FROM metrics WHERE key = 'train/grad_norm' AND step = 7")
    found = target.difference(writer.run)
    assert found.text == "metric train/grad_norm at step 7: found nothing, expected 0.502"


def test_a_database_that_is_missing_is_not_made_by_a_comparison(project, write_run):
    run = write_run().start().lay(2).run
    path = project.root / "mlflow.db"
    assert MlflowTarget(f"sqlite:///{path}").difference(run).behind
    assert not path.exists()


@pytest.fixture
def few(monkeypatch):
    """As if a path were long after 16 rings."""
    monkeypatch.setattr("treering.ship.decimation.WHOLE", 16)
    monkeypatch.setattr("treering.ship.decimation.BUCKETS", 4)


@pytest.mark.usefixtures("few")
def test_a_long_run_is_sent_in_whole_buckets(write_run, target, client):
    spikes = {18: 50.0, 20: -50.0, 27: math.nan}
    writer = write_run().hold().start().lay(26, loss=lambda step: spikes.get(step, 1.0 + step % 7))
    shipper = MlflowShipper(writer.run, Registry(target.place))
    shipper.ship()
    (run,) = mlflow_runs(client)
    losses = [step for step, _ in history(client, run, "train/loss")]
    assert losses == [*range(1, 17), 18, 20, 21, 24], "the third bucket of four is not complete"
    assert run.data.tags["treering.shipped"].startswith("1 24 ")
    assert "The run log has every ring" in run.data.tags["treering.decimated"]
    assert target.difference(writer.run) is None
    writer.lay(1, loss=lambda _: math.nan).end().die()
    shipper.ship()
    (run,) = mlflow_runs(client)
    assert run.data.tags["treering.shipped"].startswith("1 27 "), "what an ended attempt has left is sent"
    assert [step for step, _ in history(client, run, "train/loss")][-3:] == [25, 26, 27]
    assert json.loads(run.data.tags["treering.non_finite"]) == [{"metric": "train/loss", "step": 27, "value": "NaN"}]
    assert target.difference(writer.run) is None


@pytest.mark.usefixtures("few")
def test_a_rewound_run_is_behind(project, write_run, target):
    writer = write_run().start().lay(10).save().lay(3).die()
    ship_once(project)
    writer.start(parent=writer.run.checkpoints()[0]).lay(5)
    found = target.difference(writer.run)
    assert (found.text, found.behind) == ("found rings up to step 13, expected 15", True)


def test_a_run_that_starts_over_is_behind(project, write_run, target):
    writer = write_run().start().lay(3).die()
    ship_once(project)
    writer.start().lay(2)
    found = target.difference(writer.run)
    assert (found.text, found.behind) == ("found rings up to step 3, expected 2", True)


@pytest.mark.usefixtures("few")
def test_an_attempt_that_seemed_dead_and_goes_on_is_sent_again(write_run, target, client):
    writer = write_run().start().lay(21)  # nobody holds the lock, as on a file system without locks
    shipper = MlflowShipper(writer.run, Registry(target.place))
    shipper.ship()
    writer.lay(20)
    assert shipper.ship().note == "an attempt that had seemed to be dead went on: sent again"
    (run,) = mlflow_runs(client)
    assert run.data.tags["treering.shipped"].split()[1] == "40", "no bucket is cut a second time"
    writer.lay(20)
    assert shipper.ship().note == ""
    assert len(mlflow_runs(client, "replaced")) == 1
    writer.end()
    shipper.ship()
    assert target.difference(writer.run) is None


@pytest.mark.slow
@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("seed", range(4))
def test_any_history_of_passes_equals_a_rebuild(write_run, target, seed):
    """Rings, checkpoints, scores, restarts and rewinds, shipped at random moments by shippers old and new."""
    draw = random.Random(seed)
    writer = write_run().hold().start()
    shipper = MlflowShipper(writer.run, Registry(target.place))
    for _ in range(40):
        act = draw.choice(["lay", "lay", "lay", "save", "evaluate", "restart", "incident", "ship", "ship", "new"])
        if act == "lay":
            base = draw.random()
            writer.lay(draw.randint(1, 30), loss=lambda step, base=base: base * 10 + math.sin(step))
        elif act == "save" and writer.step:
            writer.save()
        elif act == "evaluate" and writer.run.checkpoints():
            writer.evaluate(draw.choice(writer.run.checkpoints()).step, draw.random())
        elif act == "restart" and writer.run.checkpoints():
            writer.die().hold().start(parent=draw.choice(writer.run.checkpoints()))
        elif act == "incident":
            writer.befall("contact_lost", text="a switch")
        elif act == "new":
            shipper = MlflowShipper(writer.run, Registry(target.place))
        elif act == "ship":
            shipper.ship()
            assert target.difference(writer.run) is None
    writer.end().die()
    shipper.ship()
    assert target.difference(writer.run) is None
