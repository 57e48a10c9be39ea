"""Recorded steps trained again: as recorded, under another condition, and after an interruption."""

import pytest
from trained import path_numbers

from treering.config.operation import KernelConfig
from treering.errors import TrainingError, UserError
from treering.reproduce import trial
from treering.reproduce.trial import Conditions, Stretch, bases_on_path, newest_base, train_again
from treering.runlog.directory import RunDirectory

pytestmark = [pytest.mark.trainer, pytest.mark.slow]


def files(run):
    return sorted((path, path.stat().st_mtime_ns) for path in run.path.rglob("*"))


def read_and_done(rings):
    return [(ring.step, ring.batch_digest, ring.loss, ring.grad_norm) for ring in rings]


@pytest.mark.usefixtures("trials")
def test_steps_from_a_checkpoint_are_the_same_and_the_run_is_left_alone(reference, project):
    before = files(reference)
    assert sorted(bases_on_path(reference)) == [4, 8, 12]
    base = newest_base(reference, 10)
    again = train_again(Stretch(reference, base, 10), project=project.root)
    assert [ring.step for ring in again.rings] == [9, 10]
    assert again.changed == ()
    assert read_and_done(again.rings) == read_and_done(list(reference.path_rings())[8:10])
    assert files(reference) == before


@pytest.mark.usefixtures("trials")
def test_conditions_reach_the_trainer(reference, project):
    layout = reference.attempts()[0].header.layout.model_copy(update={"data": 1})
    kernels = KernelConfig(optimizer="torch", attention="sdpa_math")
    variables = {"OMP_NUM_THREADS": "1", "DS_PLANTED": "7"}
    conditions = Conditions(layout=layout, kernels=kernels, variables=variables, deterministic=True)
    again = train_again(Stretch(reference, None, 2), conditions, project=project.root)
    assert str(again.header.layout) == "1x1x1"
    assert (again.header.config.kernels, again.header.config.deterministic) == (kernels, True)
    assert again.header.environment["variables"]["DS_PLANTED"] == "7"
    assert "environment" in again.changed


@pytest.mark.parametrize("step", [9, 15], ids=["in the middle", "before the checkpoint of the last step"])
def test_an_interrupted_trial_goes_on_and_a_finished_one_trains_nothing(step, reference, project, tmp_path, trials):
    stretch = Stretch(reference, None, 15)
    trials.faults = {"kill_after_ring": {"step": step}}
    with pytest.raises(TrainingError, match=r"steps 1 to 15 could not be trained again, exit code -9"):
        train_again(stretch, project=project.root, folder=tmp_path, as_recorded=True)
    trials.faults = {}
    again = train_again(stretch, project=project.root, folder=tmp_path, as_recorded=True)
    made = RunDirectory(tmp_path / reference.id)
    assert path_numbers(made) == path_numbers(reference)
    assert [each.header.origin for each in made.attempts()] == ["start", "resume"]
    trials.started.clear()
    assert train_again(stretch, project=project.root, folder=tmp_path) == again
    assert trials.started == []


def test_a_step_that_no_attempt_has_done_is_refused(reference):
    with pytest.raises(UserError, match="no ring of step 16; expected a step that the run has done"):
        Stretch(reference, None, 16).header(16)


def test_another_tree_comes_first_on_the_path_of_modules(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/mine")
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    conditions = Conditions(sources=tmp_path, variables={"NCCL_ALGO": None})
    found = trial._environment(conditions)
    assert found["PYTHONPATH"] == f"{tmp_path}/platform:{tmp_path}/trainer:/mine"
    assert ("NCCL_ALGO" in found, found["MLFLOW_TRACKING_URI"]) == (False, "")
    (tmp_path / "treering").mkdir()
    (tmp_path / "treering_trainer").mkdir()
    assert trial._environment(conditions)["PYTHONPATH"] == f"{tmp_path}:/mine"
