"""How MLflow shows a run's health: stalls, spikes, values that are not finite, incidents, telemetry, utilisation."""

import json
import math
import sqlite3
from contextlib import closing

import pytest
from shipped_runs import history, mlflow_runs

from treering.runlog.records import Evaluation
from treering.ship.follow import ship_once
from treering.ship.shipper import MlflowShipper
from treering.store.registry import Registry


def test_a_stall_is_a_tag_until_it_ends(project, write_run, client):
    writer = write_run().hold().start().lay(5)
    ship_once(project)
    (run,) = mlflow_runs(client)
    assert (run.info.status, run.data.tags["treering.state"]) == ("RUNNING", "stalled")
    assert "after step 5, expected one within 30 s" in run.data.tags["treering.stall"]
    writer.end().die()
    ship_once(project)
    (run,) = mlflow_runs(client)
    assert (run.info.status, run.data.tags["treering.state"], run.data.tags["treering.stall"]) == (
        "FINISHED",
        "finished",
        "",
    )


def test_spikes_and_non_finite_values_are_marked(project, write_run, client):
    spiking = {40: 8.0, 45: math.inf, 46: math.nan}
    writer = write_run().start().lay(50, loss=lambda step: spiking.get(step, 4.0), applied=lambda step: step < 45)
    ship_once(project)
    (run,) = mlflow_runs(client)
    spikes = json.loads(run.data.tags["treering.spikes"])
    assert [(spike["step"], spike["metric"]) for spike in spikes] == [
        (40, "train/loss"),
        (45, "train/loss"),
        (46, "train/loss"),
    ]
    assert spikes[0]["z"] == pytest.approx(math.log(2) / 0.01)
    assert spikes[2]["value"] == "NaN"
    assert run.data.tags["treering.num_spikes"] == "3"
    assert history(client, run, "judge/spike") == [(40, pytest.approx(math.log(2) / 0.01)), (45, 1000.0), (46, 1000.0)]
    assert json.loads(run.data.tags["treering.alarms"]) == {"flat": 1, "non_finite": 2, "spike": 1}
    (flat,) = json.loads(run.data.tags["treering.alarm.flat"])
    assert (flat["rule"], flat["step"], flat["since"], flat["value"]) == ("flat", 16, 1, 4.0)
    assert history(client, run, "judge/flat") == [(16, 1.0)]
    assert json.loads(run.data.tags["treering.non_finite"]) == [
        {"step": 45, "metric": "train/loss", "value": "Infinity"},
        {"step": 46, "metric": "train/loss", "value": "NaN"},
    ]
    losses = dict(history(client, run, "train/loss"))
    assert math.isnan(losses[45]), "MLflow would store infinity as 1.8e308, and its chart would be flat"
    assert math.isnan(losses[46])
    assert run.data.tags["treering.num_non_finite"] == "2"
    assert len(losses) == 50
    writer.lay(1)
    ship_once(project)
    assert len(history(client, run, "judge/spike")) == 3


def test_scores_and_validation_losses_that_are_not_finite_are_nan_and_a_tag(project, write_run, client, uri):
    bad = {"loss": math.inf, "by_corpus": {"books": -math.inf, "code": 3.8}}
    writer = (
        write_run().start().lay(10, validation=lambda step: bad if step == 10 else None, grad_norm=lambda _: math.inf)
    )
    writer.save().evaluate(10)
    path = writer.run.path / "evaluations" / "step-00000010.json"
    record, _ = Evaluation.read(path)
    record.perplexity["books"]["perplexity"] = math.exp(700)  # what an evaluation writes where no float is enough
    record.write(path)
    ship_once(project)
    (run,) = mlflow_runs(client)
    with closing(sqlite3.connect(uri.removeprefix("sqlite:///"))) as database:
        stored = database.execute("SELECT key, step, value, is_nan FROM metrics").fetchall()
    assert max(abs(value) for _, _, value, _ in stored) < 1e12, "no chart is flattened"
    nan = {(key, step) for key, step, _, is_nan in stored if is_nan}
    assert {("train/grad_norm", step) for step in range(1, 11)} <= nan
    assert {
        ("validation/loss", 10),
        ("validation/loss/books", 10),
        ("eval/perplexity/books", 10),
    } <= nan
    assert ("validation/loss/code", 10) not in nan
    assert history(client, run, "validation/loss/code") == [(10, 3.8)]
    listed = {(each["metric"], each["value"]) for each in json.loads(run.data.tags["treering.non_finite"])}
    assert {("train/grad_norm", "Infinity"), ("validation/loss/books", "-Infinity")} <= listed
    assert run.data.tags["treering.num_non_finite"] == "12"
    scores = json.loads(run.data.tags["treering.non_finite.step-00000010"])
    assert [(each["metric"], each["value"]) for each in scores] == [("eval/perplexity/books", math.exp(700))]


def test_incidents_of_all_attempts_are_told(write_run, client, uri):
    writer = write_run().start().lay(10).save().befall("checkpoint_failed", text="rank 1: No space left on device")
    shipper = MlflowShipper(writer.run, Registry(uri))
    shipper.ship()
    writer.lay(5).befall("rank_killed", text="rank 3 (process 7) was killed by SIGKILL", rank=3, host="node-9").die()
    shipper.ship()
    (run,) = mlflow_runs(client)
    assert history(client, run, "run/incidents") == [(10, 1.0), (15, 2.0)]
    assert run.data.tags["treering.num_incidents"] == "2"
    killed = {
        "attempt": 1,
        "step": 15,
        "kind": "rank_killed",
        "text": "rank 3 (process 7) was killed by SIGKILL",
        "at": 1_700_001_015.5,
        "rank": 3,
        "host": "node-9",
    }
    assert json.loads(run.data.tags["treering.incidents"])[1] == killed
    writer.start(parent=writer.run.checkpoints()[0]).lay(10).end()
    shipper.ship()
    MlflowShipper(writer.run, Registry(uri)).ship()
    (run,) = mlflow_runs(client)
    assert [step for step, _ in history(client, run, "train/loss")] == list(range(1, 21))
    assert history(client, run, "run/incidents") == [(10, 1.0), (15, 2.0)], "what led to the restart stays in sight"
    assert json.loads(run.data.tags["treering.incidents"])[1] == killed


def test_a_run_without_incidents_has_no_word_of_them(project, write_run, client):
    write_run().start().lay(2).end()
    ship_once(project)
    (run,) = mlflow_runs(client)
    assert not [key for key in (*run.data.tags, *run.data.metrics) if "incident" in key]


def test_telemetry_between_two_steps_is_averaged(project, write_run, client):
    writer = write_run().start().lay(4)
    writer.telemetry(
        0, [(0.5, {"device/power": 300.0, "process/rss": 10}), (1.5, {"device/power": 320.0}), (9, {"device/power": 1})]
    )
    writer.telemetry(1, [(1.6, {"device/power": 340.0, "process/rss": 30, "device/temperature": None})])
    ship_once(project)
    (run,) = mlflow_runs(client)
    assert history(client, run, "device/power") == [(1, 300.0), (2, 330.0)]
    assert history(client, run, "process/rss") == [(1, 10.0), (2, 30.0)]
    assert "device/temperature" not in run.data.metrics


def test_known_devices_get_their_utilisation(project, write_run, client):
    write_run().start(devices=["NVIDIA A100-SXM4-80GB"]).lay(1)
    ship_once(project)
    metrics = mlflow_runs(client)[0].data.metrics
    assert (metrics["speed/mfu"], metrics["speed/hfu"]) == (pytest.approx(0.5), pytest.approx(0.5))
    assert "speed/pipeline_bubble" not in metrics
