"""What trials prove of written runs: how steps come out under each condition is planted, nothing is trained."""

import dataclasses
import platform
import shutil
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import run_writer

from treering.config.operation import KernelConfig
from treering.errors import TrainingError
from treering.project import Project
from treering.reproduce.causes import find_causes
from treering.reproduce.difference import compare_runs
from treering.reproduce.make import held
from treering.runlog.document import write_document
from treering.runlog.extract import extract_run
from treering.runlog.lock import is_held
from treering.runlog.records import Kernel
from treering.runlog.reproductions import ReproductionFolder

LAYOUT = run_writer.LAYOUT.model_copy(update={"data": 1})
KERNELS = KernelConfig(attention="sdpa_math")
PARTED = 15
"""The first step at which the second run has another loss."""


@pytest.fixture
def runs(tmp_path):
    """Gives two runs of 20 steps, with checkpoints, that part in numbers at step 15."""

    def write(restarted=None, *, kernels=False, layout=False, seed=1, deterministic=False, packages=False):
        found = []
        for name in ("first", "second"):
            with run_writer.run_writers(Project(tmp_path / name)) as writer:
                writers = writer(seed if name == "second" else 1)
                header = {}
                if name == "second" and kernels:
                    config = writers.resolved.attempt.model_copy(update={"kernels": KERNELS})
                    used = Kernel(operation="attention", requested="sdpa_math", used="sdpa_math")
                    header |= {"config": config, "kernels": (used,)}
                if name == "second" and layout:
                    header |= {"layout": LAYOUT}
                if name == "second" and deterministic:
                    header |= {"config": writers.resolved.attempt.model_copy(update={"deterministic": True})}
                if packages:
                    header |= {"environment": environment("2.1" if name == "second" else "2.0")}
                loss = {"loss": other_loss} if name == "second" else {}
                writers.start(**header).lay(10, **loss).save()
                if name == restarted:
                    writers.lay(PARTED - 1 - writers.step, **loss).save()
                    checkpoint = writers.run.checkpoints()[-1]
                    writers.end("interrupted").start(checkpoint, **header)
                writers.lay(20 - writers.step, **loss).end()
                found.append(writers.run)
        return found, Project(tmp_path)

    return write


def environment(torch):
    python = {"version": platform.python_version()}
    return {"digest": run_writer.sha(torch), "python": python, "packages": {"torch": torch},
            "numeric_packages": {"torch": torch}, "devices": [], "variables": {}}  # fmt: skip


def other_loss(step):
    return 3.0 if step >= PARTED else 4.0 - 0.001 * step


@pytest.fixture
def trials(monkeypatch):
    """Plants how the steps of a trial come out: a function of its stretch and conditions gives the loss of a step."""

    def plant(loss):
        def train_again(stretch, conditions, **_):
            values = loss(stretch, conditions)
            rings = [ring for ring in stretch.run.path_rings() if stretch.first <= ring.step <= stretch.last]
            changed = tuple(dataclasses.replace(ring, loss=values(ring.step)) for ring in rings)
            return SimpleNamespace(rings=changed, header=stretch.header(stretch.last), changed=())

        monkeypatch.setattr("treering.reproduce.search.train_again", train_again)

    return plant


def search(found, project):
    return find_causes(compare_runs(*found), *found, project=project)


def first_loss(step):
    return 4.0 - 0.001 * step


def test_runs_that_part_before_the_checkpoint_unseen_are_trained_from_the_start(runs, trials):
    found, project = runs(kernels=True)
    trials(lambda stretch, now: other_loss if stretch.base is None and now.kernels == KERNELS else first_loss)
    causes = search(found, project)
    assert causes.steps == (1, 17)
    assert [(each.kind, each.outcome) for each in causes.candidates] == [("kernels", "cause")]


def test_trials_go_back_to_the_checkpoint_that_the_second_run_began_with_not_to_the_start(tmp_path, trials):
    with run_writer.run_writers(Project(tmp_path / "first")) as writer:
        first = writer().start().lay(5).save().lay(5).save().lay(10).end().run
    with run_writer.run_writers(Project(tmp_path / "second")) as writer:
        again = writer()
        shutil.rmtree(again.run.path)
        extract_run(first, first.checkpoints()[0], again.run.path)
        again.attempt = 1
        config = again.resolved.attempt.model_copy(update={"kernels": KERNELS})
        again.start(again.run.checkpoints()[0], config=config, changed=("kernels",)).lay(15, loss=other_loss).end()
    trials(lambda stretch, now: other_loss if stretch.first == 6 and now.kernels == KERNELS else first_loss)
    causes = search((first, again.run), Project(tmp_path))
    assert causes.steps == (6, 17)
    assert [(each.kind, each.outcome) for each in causes.candidates] == [("kernels", "cause")]


def test_without_trials_from_the_start_nothing_is_claimed(runs, trials, monkeypatch):
    found, project = runs(kernels=True)
    monkeypatch.setattr("treering.reproduce.search._LONG_S", 5.0)
    trials(lambda *_: first_loss)
    causes = search(found, project)
    (kernels,) = causes.candidates
    assert (causes.steps, kernels.outcome, causes.causes) == ((11, 17), "untested", ())
    assert "but the runs may have parted before step 11, in what no number shows, and all steps before took 8 s" in (
        kernels.evidence
    )


def odd_loss(step):
    return 2.0 if step >= PARTED else first_loss(step)


def test_a_restart_is_the_cause_where_the_steps_without_it_are_those_of_the_second_run(runs, trials):
    found, project = runs(restarted="first", layout=True)
    trials(lambda *_: other_loss)
    layout, restart = search(found, project).candidates
    assert (layout.outcome, restart.kind, restart.outcome) == ("not_cause", "restart", "cause")
    assert restart.evidence == "trained without the restart, steps 11 to 17 are those of the second run"


def test_a_restart_is_not_proven_where_the_steps_without_it_are_those_of_neither_run(runs, trials):
    found, project = runs(restarted="first", layout=True, seed=2)
    trials(lambda *_: odd_loss)
    config, layout, restart = search(found, project).candidates
    assert (config.outcome, layout.outcome, restart.kind, restart.outcome) == (
        "untested", "not_cause", "restart", "untested",
    )  # fmt: skip
    assert restart.evidence == "trained without the restart, steps 11 to 17 are those of neither run"


@pytest.mark.parametrize(("restarted", "outcome"), [(None, "cause"), ("second", "untested")])
def test_steps_without_a_fixed_order_are_proven_unless_the_second_run_was_restarted(runs, trials, restarted, outcome):
    found, project = runs(restarted=restarted, layout=True)
    trials(lambda *_: odd_loss)
    layout, found = search(found, project).candidates
    assert (layout.outcome, found.kind, found.outcome) == ("not_cause", "nondeterminism", outcome)


def test_a_part_that_could_not_be_left_out_is_not_proven(runs, trials):
    found, project = runs(kernels=True, layout=True)

    def loss(_, now):
        old_kernels, old_layout = now.kernels != KERNELS, now.layout != LAYOUT
        if old_kernels and not old_layout and len(asked) > 3:
            raise TrainingError("out of memory")
        asked.append(now)
        return first_loss if old_kernels and old_layout else other_loss

    asked = []
    trials(loss)
    outcomes = {each.kind: each.outcome for each in search(found, project).candidates}
    assert outcomes == {"kernels": "part", "layout": "untested"}


@pytest.mark.parametrize(("here", "outcome"), [("2.0", "untested"), ("2.1", "cause")])
def test_one_change_is_no_cause_where_the_trials_had_not_the_environment_of_the_second_run(runs, trials, here, outcome):
    """With torch 2.0, going back in the kernels gives the first run's conditions, whatever torch 2.1 did."""
    found, project = runs(kernels=True, packages=True)
    here_loss = {"2.0": odd_loss, "2.1": other_loss}[here]
    trials(lambda _, now: here_loss if now.kernels == KERNELS else first_loss)
    causes = search(found, project)
    outcomes = {each.kind: each for each in causes.candidates}
    assert (outcomes["environment"].outcome, outcomes["kernels"].outcome) == ("untested", outcome)
    doubt = "but these trials did not have the environment of the second run"
    assert (doubt in outcomes["kernels"].evidence, bool(causes.causes)) == (here == "2.0", here == "2.1")


def test_changes_are_neither_parts_nor_excluded_in_another_environment(runs, trials):
    found, project = runs(kernels=True, layout=True, packages=True)
    trials(lambda _, now: first_loss if now.kernels != KERNELS and now.layout != LAYOUT else odd_loss)
    causes = search(found, project)
    assert {each.outcome for each in causes.candidates} == {"untested"}
    assert sum("only with the recorded kernels and the recorded layout" in c.evidence for c in causes.candidates) == 2


def test_deterministic_mode_is_tested_where_the_records_differ_in_it(runs, trials):
    found, project = runs(deterministic=True)
    trials(lambda _, now: other_loss if now.deterministic else first_loss)
    (mode,) = search(found, project).candidates
    assert (mode.kind, mode.text, mode.outcome) == ("determinism", "deterministic mode: off to on", "cause")


@pytest.mark.parametrize(("made", "outcome"), [("2.0", "cause"), ("1.9", "untested")])
def test_an_environment_that_an_earlier_reproduction_made_is_used(runs, trials, made, outcome):
    found, project = runs(packages=True)
    python = make_before(found[0], made)
    trials(lambda _, now: first_loss if now.python == python else other_loss)
    packages = search(found, project).candidates[0]
    assert (packages.text, packages.outcome) == ("environment: torch 2.0 to 2.1", outcome)


def make_before(run, torch):
    """An environment of an earlier reproduction; its interpreter is this one."""
    folder = ReproductionFolder(run.path / "reproductions/0001").environment(1)
    python = folder / "bin/python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    write_document(folder / "made.json", {"packages": {"torch": torch}})
    return python


def test_an_environment_with_another_treering_is_not_used_for_the_packages_alone(runs, trials, monkeypatch):
    """Where Treering is installed, such an environment holds the recorded one, whose code is not the code here."""
    found, project = runs(packages=True)
    python = make_before(found[0], "2.0")
    monkeypatch.setattr("treering.reproduce.causes.is_installed", lambda _: True)
    trials(lambda _, now: first_loss if now.python == python else other_loss)
    packages = search(found, project).candidates[0]
    assert (packages.kind, packages.outcome) == ("environment", "untested")


@pytest.mark.parametrize("made_now", [False, True])
def test_an_environment_is_held_while_trials_use_it(runs, trials, made_now):
    """Or `treering gc` could delete it under them; one that another process makes is not used."""
    found, project = runs(packages=True)
    python = make_before(found[0], "2.0")
    folder = ReproductionFolder(found[0].path / "reproductions/0001")
    used = []

    def loss(_, now):
        used.append(is_held(folder.lock) if now.python == python else None)
        return first_loss if now.python == python else other_loss

    trials(loss)
    with held(folder) if made_now else nullcontext():
        search(found, project)
    assert used == ([None] if made_now else [None, True])
    assert not is_held(folder.lock)
