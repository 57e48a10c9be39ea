"""Real trainings that are killed and resumed: what each restart changed is named, and an honest one is proven."""

import json
import shutil
import signal

import pytest
from trained import run_of
from typer.testing import CliRunner

from treering.cli import app
from treering.ending import EXIT_DIFFERS, EXIT_RESTART
from treering.reproduce.restarts.report import audit_restarts
from treering.runlog.directory import RunDirectory

pytestmark = [pytest.mark.trainer, pytest.mark.slow]

DROPOUT = "--set=model.dropout=0.1"


@pytest.fixture(scope="module")
def killed(zygote, project, tmp_path_factory):
    """A run with dropout, killed after step 7; its checkpoint is that of step 4."""
    runs = tmp_path_factory.mktemp("killed")
    zygote.train(project, runs, DROPOUT, expect=-signal.SIGKILL, kill_after_ring={"step": 7})
    return runs


@pytest.fixture
def resumed(zygote, project, killed, tmp_path):
    """Resumes a copy of the killed run, up to step 7 or another; returns the run."""

    def resume(*options, last=7, **faults):
        runs = tmp_path / "runs"
        if not runs.exists():
            shutil.copytree(killed, runs)
        zygote.train(project, runs, DROPOUT, f"--stop-after={last}", *options, expect=EXIT_RESTART, **faults)
        return run_of(runs)

    return resume


def proofs(border):
    return {aspect.name: aspect.proof for aspect in border.aspects}


def test_an_honest_restart_is_proven_and_a_clean_stop_is_consistent(resumed):
    resumed()
    run = resumed(last=9)
    first, second = audit_restarts(run).borders
    assert (first.proof, first.overlap, first.after_step, first.on_path) == ("proven", (5, 7), 4, True)
    twice = ("data", "random states", "learning rate", "numbers")
    assert [proofs(first)[name] for name in twice] == ["proven"] * 4
    assert first.text == (
        "attempt 2 goes on after step 4: proven; steps 5 to 7 were done twice: 3 steps are equal to those of attempt 1 "
        "to the last bit"
    )
    assert (second.after_step, second.overlap, proofs(second)["numbers"]) == (7, None, "not seen")
    assert second.proof == "consistent"
    assert (proofs(second)["data"], proofs(second)["random states"]) == ("consistent", "consistent")
    states = run.attempts()[2].header.random_states
    assert states.saved == states.begun == run.checkpoints()[1].manifest.random_states


def test_a_lost_random_state_is_found_by_the_steps_that_were_done_twice(resumed):
    run = resumed(lose_random_state={})
    (border,) = audit_restarts(run).borders
    assert border.proof == "changed"
    assert (proofs(border)["data"], proofs(border)["learning rate"]) == ("proven", "proven")
    states = next(each for each in border.aspects if each.name == "random states")
    assert (states.proof, states.step) == ("changed", 5)
    assert border.text.startswith("attempt 2 goes on after step 4: changed; random states: step 5 drew from ")
    numbers = next(each for each in border.aspects if each.name == "numbers")
    assert (numbers.proof, numbers.step) == ("changed", 5)
    rings = [{ring.step: ring for ring in attempt.rings()}[5] for attempt in run.attempts()]
    assert f"loss {rings[0].loss!r}, then {rings[1].loss!r}" in numbers.text


def test_another_learning_rate_is_found(resumed):
    (border,) = audit_restarts(resumed(another_schedule={"rate": 2})).borders
    rate = next(each for each in border.aspects if each.name == "learning rate")
    assert (border.proof, rate.proof, rate.step) == ("changed", "changed", 5)
    assert proofs(border)["data"] == "proven"


def test_skipped_samples_are_found(resumed):
    (border,) = audit_restarts(resumed(another_schedule={"skip": 3})).borders
    data = next(each for each in border.aspects if each.name == "data")
    assert (border.proof, data.proof, data.step) == ("changed", "changed", 5)
    assert data.text.endswith("it skips 3")


def test_another_layout_is_named_beside_the_numbers_that_it_moved(resumed, project, monkeypatch):
    run = resumed("--set=parallel.data=1", "--continue-changed")
    (border,) = audit_restarts(RunDirectory(run.path)).borders
    assert (border.proof, proofs(border)["layout"], proofs(border)["data"]) == ("changed", "changed", "proven")
    assert "layout changed (data 2 to 1" in border.text
    monkeypatch.chdir(project.root)
    shown = CliRunner().invoke(app, ["audit", "--restarts", str(run.path)])
    assert shown.exit_code == EXIT_DIFFERS
    assert shown.stdout.startswith("CHANGED by a restart: before attempt 2; 1 restart: 1 changed.\n")
    document = json.loads(CliRunner().invoke(app, ["audit", "--restarts", str(run.path), "--json"]).stdout)
    assert (document["holds"], document["borders"][0]["overlap"]) == (False, [5, 7])
