"""Several targets at once: one that is down delays no other, and its error is raised in the end."""

import threading

import pytest
from shipped_runs import history, mlflow_runs

from treering.errors import StoreError, UserError
from treering.ship import follow as following
from treering.ship import target as targets_of
from treering.ship.mlflow_target import MlflowTarget


class Unreachable(MlflowTarget):
    """An MLflow whose server does not answer."""

    name = "unreachable"

    def __init__(self):
        super().__init__("http://127.0.0.1:9")


@pytest.fixture
def two(uri, monkeypatch):
    monkeypatch.setattr(following, "targets", lambda _: [Unreachable(), MlflowTarget(uri)])


@pytest.mark.slow
@pytest.mark.usefixtures("two")
def test_a_target_that_is_down_delays_no_other(project, write_run, client):
    writer = write_run().hold().start().lay(3)
    reported = threading.Event()
    errors = []

    def follow():
        try:
            following.follow(project, interval_s=0.05, grace_s=0.1, patience_s=0.1, report=lambda _: reported.set())
        except StoreError as error:
            errors.append(error)

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    assert reported.wait(60)
    reported.clear()
    writer.lay(2)
    assert reported.wait(60), "the second pass waited for the target that is down"
    (run,) = mlflow_runs(client)
    assert [step for step, _ in history(client, run, "train/loss")] == [1, 2, 3, 4, 5]
    writer.end().die()
    follower.join(120)
    assert not follower.is_alive()
    assert mlflow_runs(client)[0].info.status == "FINISHED"
    assert "registry http://127.0.0.1:9" in str(errors[0])


@pytest.mark.slow
@pytest.mark.usefixtures("two")
def test_one_pass_serves_the_others_before_it_raises(project, write_run, client):
    write_run().start().lay(3).end()
    reports = []
    with pytest.raises(StoreError, match=r"registry http://127.0.0.1:9"):
        following.ship_once(project, report=reports.append)
    assert [(report.target, report.sent["ring"]) for report in reports] == [("mlflow", 3)]
    assert mlflow_runs(client)[0].info.status == "FINISHED"


def test_a_target_is_made_by_its_variable(project, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://name:secret@mlflow.example")
    (target,) = targets_of.targets(project)
    assert (target.name, "secret" in target.place) == ("mlflow", False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    (target,) = targets_of.targets(project)
    assert target.place == f"sqlite:///{project.root / 'mlflow.db'}"


def test_a_variable_without_its_package_is_an_error(project, monkeypatch):
    monkeypatch.setattr(targets_of, "_TARGETS", (("some.module", "no_such_package", "SOME_VARIABLE", False),))
    with pytest.raises(UserError, match="nothing to ship to: MLflow is missing"):
        targets_of.targets(project)
    assert not targets_of.any_target()
    monkeypatch.setenv("SOME_VARIABLE", "x")
    with pytest.raises(UserError, match="SOME_VARIABLE is set, but the package no_such_package is missing"):
        targets_of.targets(project)
