"""Runs of other trainers in MLflow: metrics, settings, notes, checkpoints, scores, and branches as for own runs."""

import math

import numpy as np
import pytest
from shipped_runs import history

from treering.record.start import start
from treering.runlog.find import find_recorded_runs
from treering.ship.follow import ship_once
from treering.ship.mlflow_target import MlflowTarget
from treering.store.values import stored_key


@pytest.fixture
def target(uri):
    return MlflowTarget(uri)


def begin(project, **more):
    return start("other", config={"lr": 0.5, "model": {"layers": 2}}, folder=project.runs, **more)


def runs(client, branch="current"):
    (experiment,) = [each for each in client.search_experiments() if each.name == "other"]
    return client.search_runs([experiment.experiment_id], f"tags.`treering.branch` = '{branch}'")


def checkpoint(run, folder):
    folder.mkdir(parents=True)
    (folder / "weights.bin").write_bytes(bytes(64))
    run.checkpoint(folder)


def test_everything_arrives(project, tmp_path, target, client):
    run = begin(project, tags=("baseline",), notes="the first one")
    for step in range(1, 6):
        run.step(loss=math.inf if step == 4 else 1 / step, tokens=np.zeros((2, 9), np.int64), **{"acc@1": step / 10})
    checkpoint(run, tmp_path / "ckpt" / "step-5")
    run.score(5, "hellaswag", {"acc": 0.81, "acc_stderr": 0.004})
    ship_once(project)
    (stored,) = runs(client)
    assert (stored.info.status, stored.info.run_name) == ("RUNNING", f"other-{run.id[:8]}")
    run.tag("kept")
    run.finish()
    (report,) = ship_once(project)
    assert report.sent == {"ring": 0, "checkpoint": 0, "evaluation": 0}
    (stored,) = runs(client)
    assert stored.info.status == "FINISHED"
    losses = dict(history(client, stored, "loss"))
    assert math.isnan(losses.pop(4))
    assert losses == {1: 1.0, 2: 0.5, 3: 1 / 3, 5: 0.2}
    assert history(client, stored, stored_key("acc@1"))[-1] == (5, 0.5)
    assert history(client, stored, "eval/hellaswag/acc") == [(5, 0.81)]
    params, tags = stored.data.params, stored.data.tags
    assert (params["config.lr"], params["config.model.layers"], params["experiment"]) == ("0.5", "2", "other")
    assert params["attempts.0001.world_size"] == "1"
    assert (tags["treering.tags"], tags["treering.state"]) == ("baseline, kept", "finished")
    assert tags["mlflow.note.content"].endswith(": the first one\n")
    assert tags["treering.num_non_finite"] == "1"
    (model,) = client.search_logged_models([stored.info.experiment_id])
    assert (model.params["bytes"], model.tags["treering.path"]) == ("64", str(tmp_path / "ckpt" / "step-5"))
    (found,) = find_recorded_runs(project.runs)
    assert target.difference(found) is None


def test_steps_that_are_trained_again_leave_a_branch(project, tmp_path, target, client):
    run = begin(project)
    for step in range(1, 6):
        run.step(loss=1 / step)
    checkpoint(run, tmp_path / "ckpt" / "step-5")
    run.step(loss=9.0)
    run.interrupt("a test")
    ship_once(project)
    run = begin(project)
    assert run.resumed_step == 5
    run.step(loss=0.1)
    run.finish()
    (report,) = ship_once(project)
    assert (report.note, report.sent["ring"]) == ("an abandoned branch moved aside", 6)
    (stored,) = runs(client)
    assert history(client, stored, "loss")[-1] == (6, 0.1)
    assert stored.data.tags["treering.path"] == "0001:5 0002:"
    (branch,) = runs(client, "abandoned")
    assert (branch.info.run_name, branch.data.tags["mlflow.parentRunId"]) == (
        f"other-{run.id[:8]} (abandoned after step 5)",
        stored.info.run_id,
    )
    assert target.difference(find_recorded_runs(project.runs)[0]) is None


@pytest.mark.parametrize(
    ("key", "begins"),
    [
        ("train/loss", "train/loss"),
        ("acc@1", "acc_1-"),
        ("/absolute", "absolute-"),
        ("a//b", "a/b-"),
        ("../up", "up-"),
        ("", "_-"),
        ("x" * 300, "x" * 241 + "-"),
        ("verlust/größe", "verlust/größe"),
    ],
)
def test_names_that_mlflow_refuses_are_changed(key, begins, client):
    changed = stored_key(key)
    assert changed.startswith(begins)
    experiment = client.create_experiment("names")
    client.log_metric(client.create_run(experiment).info.run_id, changed, 1.0)


def test_a_checkpoint_of_an_experiment_with_any_name_arrives(project, tmp_path, target, client):
    run = start("llama-3.1/8b: 'first'", folder=project.runs)
    run.step(loss=1.0)
    checkpoint(run, tmp_path / "ckpt")
    run.finish()
    (report,) = ship_once(project)
    assert report.sent["checkpoint"] == 1
    (found,) = find_recorded_runs(project.runs)
    assert target.difference(found) is None
    experiment = client.get_experiment_by_name("llama-3.1/8b: 'first'")
    (model,) = client.search_logged_models([experiment.experiment_id])
    assert model.name == f"llama-3_1_8b_ _first_-{run.id[:8]}-step-00000001-attempt-0001"


def test_changed_names_stay_apart():
    assert stored_key("acc@1") != stored_key("acc#1")
