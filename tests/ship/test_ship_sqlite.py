"""What arrives in MLflow over its embedded database: read back by MLflow's own client."""

import json
import math
import sqlite3
from contextlib import closing

import mlflow
import pytest

from treering.config.canonical import short
from treering.errors import EvidenceError
from treering.runlog.records import Evaluation
from treering.ship.follow import ship_once
from treering.ship.shipper import RunShipper
from treering.store.registry import Registry


@pytest.fixture
def client(uri):
    return mlflow.MlflowClient(uri)


def mlflow_runs(client, branch="current"):
    (experiment,) = [e for e in client.search_experiments() if e.name == "tiny"]
    return client.search_runs([experiment.experiment_id], f"tags.`treering.branch` = '{branch}'")


def history(client, run, key):
    return [
        (metric.step, metric.value)
        for metric in sorted(client.get_metric_history(run.info.run_id, key), key=lambda m: m.step)
    ]


@pytest.mark.slow
def test_a_finished_run_is_complete(project, write_run, client):
    writer = write_run().start().lay(20).save().lay(5).save().evaluate(20).end()
    (report,) = ship_once(project)
    assert (report.rings, report.models, report.evaluations, report.state) == (25, 2, 1, "finished")
    (run,) = mlflow_runs(client)
    assert run.info.run_name == f"tiny-{writer.resolved.run_id[:8]}"
    assert (run.info.status, run.info.start_time, run.info.end_time) == (
        "FINISHED",
        1_700_001_000_000,
        1_700_001_900_000,
    )
    params = run.data.params
    assert params["recipe.model.hidden_size"] == "32"
    assert params["recipe.optimizer.peak_learning_rate"] == "0.001"
    assert params["recipe.schedule.rampup"] == "null"
    assert params["blend.components.code.corpus"] == "code"
    assert params["blend.components.code.weight"] == "0.25"
    assert params["overrides"] == "[]"
    assert params["attempts.0001.parallel.micro_batch_size"] == "4"
    assert params["attempts.0001.layout.data"] == "2"
    assert params["attempts.0001.kernels.optimizer.used"] == "torch"
    assert params["attempts.0001.kernels.optimizer.reason"] == "no GPU"
    tags = run.data.tags
    assert tags["treering.run"] == writer.resolved.recipe.digest
    assert tags["treering.digest.blend"] == writer.resolved.blend.digest
    assert tags["treering.layout"] == "1x1x2"
    assert tags["treering.state"] == "finished"
    assert tags["mlflow.source.git.commit"] == "c" * 40
    assert tags["treering.shipped"] == f"1 25 {writer.rings[-1].digest}"
    assert history(client, run, "train/loss") == [(ring.step, ring.loss) for ring in writer.rings]
    assert history(client, run, "data/consumed_tokens")[-1] == (25, 25 * 8 * 64)
    assert history(client, run, "validation/loss/code") == [(10, 3.8), (20, 3.8)]
    assert "speed/mfu" not in run.data.metrics, "an unknown device gets no utilisation"


def test_corpora_are_dataset_inputs(project, write_run, client):
    write_run().start().lay(2)
    ship_once(project)
    ship_once(project)
    (run,) = mlflow_runs(client)
    inputs = {item.dataset.name: item for item in client.get_run(run.info.run_id).inputs.dataset_inputs}
    assert set(inputs) == {"books", "code"}
    digest = json.loads(inputs["books"].dataset.source)["tags"]["digest"]
    assert inputs["books"].dataset.digest == short(digest, 36)
    tags = {tag.key: tag.value for tag in inputs["books"].tags}
    assert (tags["mlflow.data.context"], tags["treering.weight"], tags["treering.digest"]) == (
        "training",
        "0.75",
        digest,
    )
    assert json.loads(inputs["books"].dataset.profile) == {"num_tokens": 5000, "num_documents": 50}


def test_checkpoints_are_logged_models_with_their_scores(project, write_run, client):
    writer = write_run().start().lay(10).save().lay(10).save().evaluate(10, 0.25).evaluate(20, 0.75).end()
    ship_once(project)
    (run,) = mlflow_runs(client)
    models = client.search_logged_models([run.info.experiment_id], f"source_run_id = '{run.info.run_id}'")
    by_step = {int(model.params["step"]): model for model in models}
    assert sorted(by_step) == [10, 20]
    model = by_step[20]
    assert model.name == f"tiny-{writer.resolved.run_id[:8]}-step-00000020"
    assert model.status == "READY"
    assert model.model_type == "checkpoint"
    assert model.params["consumed_tokens"] == str(20 * 8 * 64)
    assert model.tags["treering.checkpoint"] == writer.run.checkpoints()[1].digest
    scores = {metric.key: metric for metric in client.get_logged_model(model.model_id).metrics}
    score = scores["eval/cloze/0-shot/accuracy"]
    assert (score.value, score.step, score.dataset_name) == (0.75, 20, "cloze")
    assert score.dataset_digest == short(next(iter(writer.run.evaluations()[0].tasks.values())), 36)
    assert scores["eval/perplexity/books"].value == 20.0855
    assert scores["eval/validation_loss"].value == 3.1
    assert history(client, run, "eval/cloze/0-shot/accuracy") == [(10, 0.25), (20, 0.75)]
    outputs = client.get_run(run.info.run_id).outputs.model_outputs
    assert sorted((output.step, output.model_id) for output in outputs) == [
        (10, by_step[10].model_id),
        (20, model.model_id),
    ]


def test_shipping_twice_changes_nothing_and_new_scores_replace_old_ones(project, write_run, client):
    writer = write_run().start().lay(10).save().evaluate(10, 0.25).end()
    ship_once(project)
    (again,) = ship_once(project)
    assert (again.rings, again.models, again.evaluations) == (0, 0, 0)
    writer.evaluate(10, 0.5)
    (third,) = ship_once(project)
    assert third.evaluations == 1
    (run,) = mlflow_runs(client)
    assert len(client.get_run(run.info.run_id).outputs.model_outputs) == 1
    assert history(client, run, "train/loss") == [(ring.step, ring.loss) for ring in writer.rings]
    assert client.get_run(run.info.run_id).data.metrics["eval/cloze/0-shot/accuracy"] == 0.5


def test_a_living_run_grows_and_a_dead_one_is_not_running_for_ever(write_run, client, uri):
    writer = write_run().hold().start().lay(3)
    shipper = RunShipper(writer.run, Registry(uri))
    assert (shipper.ship().rings, mlflow_runs(client)[0].info.status) == (3, "RUNNING")
    writer.lay(2)
    with writer.run.attempts()[0].rings_file.open("a") as file:
        file.write('{"step":6,"torn')
    assert (shipper.ship().rings, shipper.ship().rings) == (2, 0)
    writer.die()
    shipper.ship()
    (run,) = mlflow_runs(client)
    assert (run.info.status, run.data.tags["treering.state"]) == ("KILLED", "broken")
    assert run.info.end_time >= 1_700_001_005_000


@pytest.mark.parametrize(
    ("status", "expected"), [("failed", "FAILED"), ("interrupted", "KILLED"), ("finished", "FINISHED")]
)
def test_status_of_an_ended_run(project, write_run, client, status, expected):
    write_run().start().lay(1).end(status)
    ship_once(project)
    assert [run.info.status for run in mlflow_runs(client)] == [expected]


def test_a_resumed_run_is_running_again(project, write_run, client):
    writer = write_run().hold().start().lay(10).save().die()
    ship_once(project)
    assert mlflow_runs(client)[0].info.status == "KILLED"
    writer.hold().start(parent=writer.run.checkpoints()[0]).lay(1)
    ship_once(project)
    (run,) = mlflow_runs(client)
    assert run.info.status == "RUNNING"
    assert (run.data.tags["treering.attempts"], run.data.tags["treering.path"]) == ("2", "0001:10 0002:")
    assert run.data.params["attempts.0002.origin"] == "resume"
    assert [step for step, _ in history(client, run, "train/loss")] == list(range(1, 12))
    assert mlflow_runs(client, "abandoned") == [], "nothing beyond the point of return was shipped"


@pytest.mark.parametrize("in_memory", [True, False])
def test_after_a_rewind_only_the_path_is_shown_and_the_branch_is_kept(write_run, client, uri, in_memory):
    writer = write_run().start().lay(10).save().lay(5, loss=lambda step: 100.0 + step).die()
    registry = Registry(uri)
    shipper = RunShipper(writer.run, registry)
    shipper.ship()
    old = mlflow_runs(client)[0].info.run_id
    writer.start(parent=writer.run.checkpoints()[0]).lay(10).save().end()
    report = (shipper if in_memory else RunShipper(writer.run, registry)).ship()
    assert report.abandoned
    (run,) = mlflow_runs(client)
    assert run.info.run_id != old
    assert history(client, run, "train/loss") == [(step, 4.0 - 0.001 * step) for step in range(1, 21)]
    (branch,) = mlflow_runs(client, "abandoned")
    assert branch.info.run_id == old
    assert branch.info.run_name == f"tiny-{writer.resolved.run_id[:8]} (abandoned after step 10)"
    assert branch.info.status == "KILLED"
    assert branch.data.tags["mlflow.parentRunId"] == run.info.run_id
    assert history(client, branch, "train/loss")[-1] == (15, 115.0)
    models = client.search_logged_models([run.info.experiment_id])
    assert sorted((model.params["step"], model.source_run_id) for model in models) == [
        ("10", run.info.run_id),
        ("20", run.info.run_id),
    ]
    assert RunShipper(writer.run, registry).ship().rings == 0


def test_starting_over_puts_everything_aside(project, write_run, client):
    writer = write_run().start().lay(5).save().die()
    ship_once(project)
    writer.start(code={"digest": "sha256:" + "1" * 64}).lay(2)
    writer.start().lay(3)
    ship_once(project)
    (run,) = mlflow_runs(client)
    assert history(client, run, "train/loss") == [(step, 4.0 - 0.001 * step) for step in range(1, 4)]
    assert [branch.info.run_name[-26:] for branch in mlflow_runs(client, "abandoned")] == ["(abandoned from the start)"]
    assert client.search_logged_models([run.info.experiment_id]) == [], "the checkpoint is not on the path"


def test_an_attempt_without_rings_leaves_no_branch(project, write_run, client):
    writer = write_run().start().die()
    ship_once(project)
    writer.start().lay(2)
    ship_once(project)
    (run,) = mlflow_runs(client)
    assert len(history(client, run, "train/loss")) == 2
    assert mlflow_runs(client, "abandoned") == []


def test_a_run_may_start_again_under_another_description(project, write_run, client):
    """MLflow refuses to change a param, and a refusal would keep the run from being shipped for ever."""
    writer = write_run(description="first words").start().die()
    ship_once(project)
    changed = writer.resolved.model_copy(update={"description": "second words", "overrides": ("seed=1",)})
    changed.write(writer.run.path / "resolved.json")
    writer.start().lay(2)
    (report,) = ship_once(project)
    assert report.rings == 2
    (run,) = mlflow_runs(client)
    assert run.data.params["description"] == "first words"


def test_a_crash_while_putting_aside_is_made_good(project, write_run, client):
    writer = write_run().start().lay(5).die()
    ship_once(project)
    (old,) = mlflow_runs(client)
    client.set_tag(old.info.run_id, "treering.branch", "abandoned")
    writer.start().lay(1)
    ship_once(project)
    (run,) = mlflow_runs(client)
    assert client.get_run(old.info.run_id).data.tags["mlflow.parentRunId"] == run.info.run_id


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
    shipper = RunShipper(writer.run, Registry(uri))
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
    RunShipper(writer.run, Registry(uri)).ship()
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


@pytest.mark.slow
def test_long_values_are_stored_whole(project, write_run, client):
    text = "".join(chr(97 + i % 26) for i in range(13_000))
    write_run(description=text).start().lay(1)
    ship_once(project)
    params = mlflow_runs(client)[0].data.params
    assert params["description"] + params["description.part-2"] + params["description.part-3"] == text


def test_runs_of_one_experiment_are_apart(project, write_run, client):
    write_run(1).start().lay(2)
    write_run(2).start().lay(3)
    ship_once(project)
    assert sorted(len(history(client, run, "train/loss")) for run in mlflow_runs(client)) == [2, 3]


@pytest.mark.usefixtures("uri")
def test_a_changed_ring_stops_shipping_before_it(project, write_run):
    writer = write_run().start().lay(3)
    file = writer.run.attempts()[0].rings_file
    file.write_text(file.read_text().replace('"loss":3.998', '"loss":2.998'))
    with pytest.raises(EvidenceError, match=r"line 2: ring of step 2: digest .* is written"):
        ship_once(project)


@pytest.mark.usefixtures("uri")
def test_nothing_is_made_beside_the_database(project, write_run, monkeypatch, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("cwd")
    monkeypatch.chdir(elsewhere)
    write_run().start().lay(1).save()
    ship_once(project)
    assert list(elsewhere.iterdir()) == []
    assert {path.name for path in project.root.iterdir()} == {"mlflow.db", "runs"}
