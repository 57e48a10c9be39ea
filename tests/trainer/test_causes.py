"""Planted causes, each alone: the verdict names the right cause and the right first step, or says identical."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import versioned_project
from trained import run_of

from treering.project import Project
from treering.reproduce.causes import find_causes
from treering.reproduce.difference import compare_runs
from treering.reproduce.trial import Conditions, Stretch, train_again
from treering.reproduce.verdict import judge
from treering.runlog.directory import RunDirectory

pytestmark = [pytest.mark.trainer, pytest.mark.slow]

OTHER_PYTHON = Path(sys.executable).with_name("another-python")


def verdict(first, second, project, **search):
    difference = compare_runs(first, second, project=project)
    return judge(difference, find_causes(difference, first, second, project=project, **search))


def outcomes(found):
    return [(each.kind, each.outcome) for each in found.search.candidates]


@pytest.fixture
def train(zygote, project, tmp_path):
    """Trains some steps as `treering train` would, with what is planted."""

    def trained(name, *options, steps=6, expect=75, **faults):
        zygote.train(
            project, tmp_path / name, "--no-publish", f"--stop-after={steps}", *options, expect=expect, **faults
        )
        return run_of(tmp_path / name)

    return trained


@pytest.fixture(scope="session")
def changed_optimizer(zygote, tmp_path_factory):
    """A tree of the product with another constant in the optimizer's module."""
    root = tmp_path_factory.mktemp("changed") / "tree"
    shutil.copytree(zygote.sources, root)
    change_optimizer(root)
    return root


def change_optimizer(root):
    path = root / "trainer/treering_trainer/core/optim.py"
    text = path.read_text()
    assert "eps=config.epsilon," in text
    path.write_text(text.replace("eps=config.epsilon,", "eps=config.epsilon * 100,"))


@pytest.mark.usefixtures("trials")
@pytest.mark.parametrize("sizes", ["tensor=1 data=1", "tensor=2 data=1", "pipeline=2 data=1", "data=2"])
def test_nothing_planted_is_identical_in_every_layout(train, project, tmp_path, sizes):
    run = train("first", *(f"--set=parallel.{size}" for size in sizes.split()), steps=3)
    again = train_again(Stretch(run, None, 3), project=project.root, folder=tmp_path / "again", as_recorded=True)
    assert (again.changed, again.header.layout) == ((), run.attempts()[0].header.layout)
    found = verdict(run, RunDirectory(tmp_path / "again" / run.id), project)
    assert (found.state, found.steps, found.first_step, found.search) == ("identical", 3, None, None)
    assert found.sentence.startswith("Identical to the last bit over 3 steps")


@pytest.mark.usefixtures("trials")
def test_a_run_that_was_killed_twice_is_identical(zygote, project, tmp_path):
    for step in (5, 10):
        zygote.train(project, tmp_path / "first", "--no-publish", expect=-9, kill_after_ring={"step": step})
    zygote.train(project, tmp_path / "first", "--no-publish")
    run = run_of(tmp_path / "first")
    train_again(Stretch(run, None, 15), project=project.root, folder=tmp_path / "again", as_recorded=True)
    found = verdict(run, RunDirectory(tmp_path / "again" / run.id), project)
    assert (len(run.attempts()), found.state, found.steps) == (3, "identical", 15)


def test_a_changed_constant_in_a_numeric_module(train, reference, project, trials, changed_optimizer):
    planted = {"code_root": changed_optimizer, "run_optimizer_of": {"root": str(changed_optimizer)}}
    second = train("second", **planted)
    trials.faults = planted
    untested = verdict(reference, second, project, trials=False)
    assert (untested.first_step, outcomes(untested), untested.search.trials) == (1, [("code", "untested")], 0)
    assert "No cause is proven; candidates in order: code: " in untested.sentence
    assert "needs a trial with the recorded code" in untested.sentence
    found = verdict(reference, second, project, recorded=Conditions(sources=trials.zygote.sources))
    assert (found.state, found.first_step, outcomes(found)) == ("numbers", 1, [("code", "cause")])
    assert (found.search.trials, found.search.steps) == (2, (1, 3))
    assert "optim.py" in found.sentence
    assert "with the recorded code alone steps 1 to 3 are equal to the last bit" in found.sentence


@pytest.fixture
def clone(zygote, project, tmp_path):
    """A clone of the product with the project in it."""
    root = shutil.copytree(zygote.sources, tmp_path / "clone")
    versioned_project.git(root, "init", "-q")
    versioned_project.git(root, "add", "trainer", "platform")
    versioned_project.git(root, "commit", "-qm", "sources")
    shutil.copytree(project.root, root / "work", ignore=shutil.ignore_patterns("published"))
    return root


def test_diff_runs_trains_each_run_with_its_recorded_code(clone, reference, trials, treering, monkeypatch):
    """The second run's tree is its commit with its diff; the first run's code is the code that is here."""
    change_optimizer(clone)
    monkeypatch.chdir(clone / "work")
    planted = {"code_root": clone, "run_optimizer_of": {"root": str(clone)}}
    runs = clone / "work" / "second"
    trials.zygote.train(Project(Path.cwd()), runs, "--no-publish", "--stop-after=6", expect=75, **planted)
    versioned_project.git(clone, "checkout", "-q", "trainer")
    code, out, err = treering("diff-runs", str(reference.path), str(run_of(runs).path), "--causes", "--json")
    assert code == 6, err
    found = json.loads(out)["causes"]
    (candidate,) = found["causes"]
    assert (found["trials"], candidate["kind"], candidate["outcome"]) == (2, "code", "cause")
    assert "build_optimizer" in candidate["text"]
    assert "causes: up to 2 trials, each trains steps 1 to 3 again from nothing" in err
    assert not any((clone / ".git").glob("worktrees/*"))


def test_a_changed_default_of_the_optimizer(train, reference, project, trials, changed_optimizer):
    second = train("second", "--set=optimizer.epsilon=1e-6", code_root=changed_optimizer)
    trials.faults = {"code_root": changed_optimizer}
    found = verdict(reference, second, project)
    assert (found.first_step, outcomes(found)) == (1, [("config", "cause"), ("code", "not_cause")])
    assert "Cause: config: optimizer.epsilon 1e-08 to 1e-06 (with the recorded config" in found.sentence


def test_another_version_of_torch(train, project, trials, changed_optimizer):
    run = train("first", record_package={"name": "torch", "version": "2.12.1"})
    trials.faults = {"run_optimizer_of": {"root": str(changed_optimizer)}}  # what the present torch does otherwise
    second = train("second", **trials.faults)
    trials.elsewhere = {"record_package": {"name": "torch", "version": "2.12.1"}}
    untested = verdict(run, second, project)
    assert (untested.first_step, outcomes(untested), untested.search.trials) == (1, [("environment", "untested")], 1)
    assert "environment: torch 2.12.1 to 2.13.0" in untested.sentence
    assert "needs a Python with torch 2.12.1: `--environment`" in untested.sentence
    found = verdict(run, second, project, recorded=Conditions(python=OTHER_PYTHON))
    assert (outcomes(found), found.search.trials) == ([("environment", "cause")], 2)


@pytest.mark.usefixtures("trials")
def test_another_layout(train, reference, project):
    found = verdict(reference, train("second", "--set=parallel.data=1"), project)
    assert (found.state, outcomes(found)) == ("numbers", [("layout", "cause")])
    assert "layout: 1x1x2 to 1x1x1 (TP x PP x DP)" in found.sentence
    assert found.first_step == 2


@pytest.mark.usefixtures("trials")
def test_another_kernel(train, reference, project):
    found = verdict(reference, train("second", "--set=kernels.attention=sdpa_math"), project)
    assert (found.state, found.first_step, outcomes(found)) == ("numbers", 1, [("kernels", "cause")])
    assert "kernel: attention sdpa_flash to sdpa_math" in found.sentence


@pytest.mark.usefixtures("trials")
def test_two_causes_at_once(train, reference, project):
    second = train("second", "--set=kernels.attention=sdpa_math", "--set=parallel.data=1")
    found = verdict(reference, second, project)
    assert outcomes(found) == [("kernels", "part"), ("layout", "part")]
    assert found.search.trials == 6
    assert "Cause: kernel: attention sdpa_flash to sdpa_math, " in found.sentence
    assert "together with layout: 1x1x2 to 1x1x1" in found.sentence


@pytest.mark.usefixtures("trials")
@pytest.mark.parametrize("whose", ["first", "second"])
def test_a_random_state_that_was_lost_at_a_restart(train, project, whose):
    dropout = ("--set=model.dropout=0.1", "--set=parallel.data=1")
    lost = train("lost", *dropout, steps=6, expect=-9, kill_after_ring={"step": 5})
    lost = train("lost", *dropout, lose_random_state={})
    whole = train("whole", *dropout)
    pair = (lost, whole) if whose == "first" else (whole, lost)
    found = verdict(*pair, project)
    assert (found.state, found.first_step, outcomes(found)) == ("numbers", 5, [("restart", "cause")])
    assert f"Cause: restart of the {whose} run after step 4: a state was lost" in found.sentence


@pytest.mark.usefixtures("trials")
@pytest.mark.parametrize(("whose", "kind"), [("first", "unrecorded"), ("second", "nondeterminism")])
def test_a_step_that_no_record_explains(train, reference, project, whose, kind):
    odd = train("odd", steps=8, secret_rate={"step": 6})
    pair = (odd, reference) if whose == "first" else (reference, odd)
    found = verdict(*pair, project)
    assert (found.first_step, found.search.steps) == (7, (5, 8) if whose == "first" else (1, 8))
    assert [each.kind for each in found.search.candidates] == [kind]
