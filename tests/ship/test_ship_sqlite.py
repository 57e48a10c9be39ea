"""What arrives in MLflow over its embedded database: read back by MLflow's own client."""

import json

import pytest
from shipped_runs import history, mlflow_runs

from treering.config.canonical import short
from treering.errors import EvidenceError
from treering.runlog.journal import Noted, Tagged
from treering.ship.follow import ship_once
from treering.ship.shipper import MlflowShipper
from treering.store.registry import Registry


@pytest.mark.slow
def test_a_finished_run_is_complete(project, write_run, client):
    writer = write_run().start().lay(20).save().lay(5).save().evaluate(20).end()
    (report,) = ship_once(project)
    assert (report.sent, report.state) == ({"ring": 25, "checkpoint": 2, "evaluation": 1}, "finished")
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
    assert again.sent == {"ring": 0, "checkpoint": 0, "evaluation": 0}
    writer.evaluate(10, 0.5)
    (third,) = ship_once(project)
    assert third.sent["evaluation"] == 1
    (run,) = mlflow_runs(client)
    assert len(client.get_run(run.info.run_id).outputs.model_outputs) == 1
    assert history(client, run, "train/loss") == [(ring.step, ring.loss) for ring in writer.rings]
    assert client.get_run(run.info.run_id).data.metrics["eval/cloze/0-shot/accuracy"] == 0.5


def test_a_living_run_grows_and_a_dead_one_is_not_running_for_ever(write_run, client, uri):
    writer = write_run().hold().start().lay(3)
    shipper = MlflowShipper(writer.run, Registry(uri))
    assert (shipper.ship().sent["ring"], mlflow_runs(client)[0].info.status) == (3, "RUNNING")
    writer.lay(2)
    with writer.run.attempts()[0].rings_file.open("a") as file:
        file.write('{"step":6,"torn')
    assert (shipper.ship().sent["ring"], shipper.ship().sent["ring"]) == (2, 0)
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
    shipper = MlflowShipper(writer.run, registry)
    shipper.ship()
    old = mlflow_runs(client)[0].info.run_id
    writer.start(parent=writer.run.checkpoints()[0]).lay(10).save().end()
    report = (shipper if in_memory else MlflowShipper(writer.run, registry)).ship()
    assert report.note == "an abandoned branch moved aside"
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
    assert MlflowShipper(writer.run, registry).ship().sent["ring"] == 0


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
    assert report.sent["ring"] == 2
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


def test_notes_and_tags_of_people_arrive(project, write_run, client):
    writer = write_run().start().lay(2).end()
    assert ship_once(project)[0].note == ""
    writer.run.journal.append(Noted(at=1.7e9, by="anna", text="a spike at 1187"))
    writer.run.journal.append(Tagged(at=1.7e9, by="anna", added=("keep", "baseline"), removed=()))
    (report,) = ship_once(project)
    assert (report.note, report.news) == ("notes and tags of people", True)
    (run,) = mlflow_runs(client)
    assert run.data.tags["treering.tags"] == "keep, baseline"
    assert run.data.tags["mlflow.note.content"].endswith("- 2023-11-14 22:13 anna: a spike at 1187\n")
    assert ship_once(project)[0].news is False


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
