"""Evaluation beside the training: each new checkpoint is scored by itself, and what has no scores is named."""

import os
import shutil
import time

import pytest

from treering.runlog.directory import RunDirectory
from treering.runlog.find import find_runs
from treering_trainer.evaluate import follow
from treering_trainer.evaluate.follow import Follower
from treering_trainer.launch.beside import follow_log, unscored

pytestmark = [pytest.mark.trainer, pytest.mark.slow]


def test_the_checkpoints_of_a_training_are_scored_beside_it(zygote, scored_project, tmp_path):
    output = zygote.train(
        scored_project, tmp_path, "--set=evaluation.follow=true", "--no-publish", config="scored.yaml"
    )
    (run,) = find_runs(tmp_path)
    log, until = follow_log(run.attempt_folder(1)), time.monotonic() + 240
    while len(run.evaluation_files()) < 2:
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.05)
    assert [(record.step, record.device) for record in run.evaluations()] == [(5, "cpu"), (10, "cpu")]
    assert run.incidents() == []
    assert list(unscored(run, run.attempt_folder(1))) == []
    goes_on = f"goes on: no scores yet for step 5, 10; its log is {log}"
    assert goes_on in output or "goes on" not in output, "it scores at its own pace"


@pytest.fixture
def follower(scored_project, scored_run, tmp_path, monkeypatch):
    """Beside a training that has ended, whose checkpoints have no scores."""
    run = RunDirectory(shutil.copytree(scored_run, tmp_path / scored_run.name))
    shutil.rmtree(run.evaluations_folder, ignore_errors=True)
    monkeypatch.chdir(scored_project.root)
    ended = os.fork()
    if ended == 0:
        os._exit(0)
    os.waitpid(ended, 0)
    return Follower(scored_project.root / "scored.yaml", run.attempt_folder(1), ended, "cpu")


def test_a_checkpoint_that_cannot_be_scored_is_an_incident_and_the_others_are_scored(follower):
    path = next((follower.run.checkpoint_folder(10) / "state").glob("layer_02-*.pt"))
    path.write_bytes(b"no weights")
    follower.follow()
    assert [record.step for record in follower.run.evaluations()] == [5]
    ((attempt, incident),) = follower.run.incidents()
    assert (attempt, incident.kind, incident.step) == (1, "evaluation_failed", 10)
    assert incident.text.startswith("step 10 was not scored on cpu: ")
    assert path.name in incident.text
    said = list(unscored(follower.run, follower.attempt))
    assert said[0] == f"evaluation beside the training: {incident.text}"
    assert "no scores yet for step 10; its log is " in said[1]


def test_a_killed_evaluation_is_an_incident(follower, monkeypatch):
    shutil.rmtree(follower.run.checkpoint_folder(5))
    monkeypatch.setattr(follow, "evaluate", lambda _: os.kill(os.getpid(), 9))
    follower.follow()
    texts = [incident.text for _, incident in follower.run.incidents()]
    assert texts == [
        "step 10 was not scored on cpu: killed by signal 9",
        "no scores for step 5: removed before it could be scored; raise checkpoint.keep_last",
    ]
