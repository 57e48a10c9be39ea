"""A rank that is killed or stuck ends the job soon, is named, and leaves a run that goes on as if nothing had been."""

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager

import psutil
import pytest
from trained import assert_identical, eventually, resolved, run_of

from treering.metrics import state
from treering.metrics.lines.read import run_line
from treering.metrics.run_summary import run_page
from treering.ship.projection import state_tags
from treering_trainer.launch.ending import log_file

pytestmark = [pytest.mark.trainer, pytest.mark.slow]

SHORT = "--set=parallel.rank_timeout_s=4"


def train_with_signal(zygote, project, runs, *options, **fault):
    """Trains with a signal to one rank; returns what was printed."""
    moment = runs.parent / "moment"
    return zygote.train(project, runs, *options, expect=75, signal_rank={"moment": str(moment), **fault})


def goes_on_identically(zygote, project, runs, reference):
    """The same command, started again, ends as the uninterrupted run did."""
    saved = run_of(runs).checkpoints()[-1].step
    zygote.train(project, runs)
    assert run_of(runs).attempts()[1].header.parent.step == saved
    assert_identical(run_of(runs), reference)


@pytest.mark.parametrize(
    ("layout", "rank"), [("parallel.data=2", 0), ("parallel.pipeline=2", 1), ("parallel.tensor=2", 1)]
)
def test_a_killed_rank_ends_the_job_and_is_named(layout, rank, zygote, project, reference, tmp_path):  # noqa: PLR0917
    fault = {"rank": rank, "step": 6, "number": signal.SIGKILL, "part": "TRAIN"}
    printed = train_with_signal(zygote, project, tmp_path / "runs", f"--set={layout}", **fault)
    assert f"rank {rank} (process" in printed
    assert "was killed by SIGKILL while training step 6; all ranks were ended" in printed
    run = run_of(tmp_path / "runs")
    end = run.attempts()[0].end
    assert (end.status, end.step) == ("interrupted", 5)
    assert end.reason in printed
    (incident,) = run.attempts()[0].incidents()
    assert (incident.kind, incident.rank, incident.step) == ("rank_killed", rank, 5)
    assert incident.host == os.uname().nodename
    assert incident.text.endswith("was killed by SIGKILL while training step 6")
    assert run_page(run)["attempts"][0]["incidents"] == [{**incident.model_dump(), "title": "a rank was killed"}]
    if layout == "parallel.data=2":
        goes_on_identically(zygote, project, tmp_path / "runs", reference)


@pytest.mark.parametrize(
    ("layout", "rank", "part", "doing"),
    [
        ("parallel.data=2", 0, "READ", "reading the data of step 6"),
        ("parallel.pipeline=2", 1, "TRAIN", "training step 6"),
        ("parallel.tensor=2", 0, "RECORD", "recording step 6"),
    ],
)
def test_a_stuck_rank_ends_the_job_and_is_named(  # noqa: PLR0917 - four of them are the case
    layout, rank, part, doing, zygote, project, reference, tmp_path
):
    fault = {"rank": rank, "step": 6, "number": signal.SIGSTOP, "part": part}
    printed = train_with_signal(zygote, project, tmp_path / "runs", SHORT, f"--set={layout}", **fault)
    assert (
        f"rank {rank} has given no sign for 4 s while {doing}; it is stopped (SIGSTOP); all ranks were end" in printed
    )
    run = run_of(tmp_path / "runs")
    assert run.state() == "interrupted"
    assert run.attempts()[0].end.reason in printed
    (incident,) = run.attempts()[0].incidents()
    assert (incident.kind, incident.rank, incident.step) == ("rank_stuck", rank, 5)
    assert "most recent call first" in log_file(run.attempts()[0].path, 1 - rank).read_text(), "where the other waits"
    if layout == "parallel.data=2":
        goes_on_identically(zygote, project, tmp_path / "runs", reference)


def test_a_stopped_rank_is_a_stall_and_is_named(zygote, project, tmp_path, monkeypatch):
    """Long before the watchdog ends the job: runs, show, and MLflow's tags say so, and which rank is silent."""
    monkeypatch.setattr(state, "STALL_FLOOR_S", 3.0)
    monkeypatch.setattr(state, "SILENT_S", 2.0)
    runs, moment = tmp_path / "runs", tmp_path / "moment"
    fault = {"rank": 1, "step": 7, "number": signal.SIGSTOP, "part": "TRAIN", "moment": str(moment)}
    training = zygote.start(project, runs, "--set=checkpoint.every_steps=20", signal_rank=fault)
    try:
        assert eventually(moment.exists), training.output
        run = run_of(runs)
        assert eventually(lambda: state.condition(run).silent_ranks), state.condition(run)
        found = state.condition(run)
        assert (found.state, found.step, found.silent_ranks, found.ranks) == ("stalled", 6, (1,), 2)
        assert found.stall.endswith("silent: rank 1 of 2 ranks")
        line = run_line(run)
        assert (line.state, line.step) == ("stalled", 6)
        assert state_tags(found)["treering.state"] == "stalled"
    finally:
        training.kill(signal.SIGKILL)
        training.wait()
    assert eventually(lambda: state.condition(run).state == "broken")


def test_stuck_while_saving(zygote, project, reference, tmp_path):
    fault = {"rank": 1, "step": 8, "number": signal.SIGSTOP, "part": "SAVE"}
    printed = train_with_signal(zygote, project, tmp_path / "runs", SHORT, **fault)
    assert "rank 1 has given no sign for 4 s while saving the checkpoint of step 8" in printed
    run = run_of(tmp_path / "runs")
    assert [each.step for each in run.checkpoints()] == [4]
    (incident,) = run.attempts()[0].incidents()
    assert (incident.kind, incident.rank, incident.step) == ("rank_stuck", 1, 8)
    goes_on_identically(zygote, project, tmp_path / "runs", reference)


@pytest.mark.parametrize("layout", ["parallel.data=2", "parallel.pipeline=2"])
def test_a_rank_that_sleeps_where_the_others_wait_is_named(layout, zygote, project, tmp_path):
    """As in a deadlock: kernel and heartbeats see no difference, but it waits in no collective."""
    printed = zygote.train(project, tmp_path, SHORT, f"--set={layout}", expect=75, sleep={"rank": 0, "step": 6})
    assert "rank 0 has given no sign for 4 s while training step 6; all ranks were ended" in printed
    assert "in patched" in log_file(run_of(tmp_path).attempts()[0].path, 0).read_text(), "where it sleeps"


def test_a_slow_rank_is_not_stuck(zygote, project, reference, tmp_path):
    zygote.train(project, tmp_path, SHORT, slow={"seconds": 0.4, "rank": 1})
    assert run_of(tmp_path).attempts()[0].incidents() == []
    assert_identical(run_of(tmp_path), reference)


LONG = "schedule.train_tokens=3200000"


@contextmanager
def running(command, project, runs):
    """A launcher with one interpreter a rank, after their first checkpoint; yields the launcher and the ranks."""
    options = (f"--runs={runs}", f"--set={LONG}", "--set=checkpoint.every_steps=4", SHORT, "--no-publish")
    with (runs / "printed").open("w") as printed:
        launcher = subprocess.Popen(
            [sys.executable, *command, "tiny.yaml", *options],
            cwd=project.root,
            stdout=printed,
            stderr=printed,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    try:
        assert eventually(lambda: list(runs.glob("*/checkpoints/step-00000004"))), (runs / "printed").read_text()
        yield launcher, {int(each.environ()["RANK"]): each for each in psutil.Process(launcher.pid).children()}
    finally:
        launcher.kill()
        launcher.wait()


def test_ranks_with_an_interpreter_each_are_watched_too(project, tmp_path):
    """How ranks start where there are GPUs: the launcher learns from their heartbeats which attempt it is."""
    start = (
        "import sys; from pathlib import Path; from treering_trainer.launch import start; "
        "from treering.runlog.directory import RunDirectory; "
        f"run = RunDirectory(Path({str(tmp_path / resolved(project, LONG).run_id)!r})); "
        "sys.exit(start._watch_interpreters(2, sys.argv[1:], run, 4.0))"
    )
    with running(["-c", start], project, tmp_path) as (launcher, ranks):
        ranks[0].suspend()
        assert launcher.wait(60) == 1  # the script's, which lets the error through
    assert "RankStuckError: rank 0 has given no sign for 4 s while" in (tmp_path / "printed").read_text()
    run = run_of(tmp_path)
    assert run.state() == "interrupted"
    (incident,) = run.attempts()[0].incidents()
    assert (incident.kind, incident.rank) == ("rank_stuck", 0)


def test_under_an_outer_launcher_rank_0_records_that_contact_was_lost(project, tmp_path):
    """torchrun has nobody who looks at heartbeats: a collective fails by its timeout."""
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m", "treering_trainer.launch"]
    with running(command, project, tmp_path) as (launcher, ranks):
        ranks[1].suspend()
        assert eventually(lambda: list(tmp_path.glob("*/attempts/0001/end.json")))
        ranks[1].kill()  # torchrun would give it 30 seconds to end by itself
        assert launcher.wait(60) == 1
    run = run_of(tmp_path)
    assert run.state() == "interrupted"
    (incident,) = run.attempts()[0].incidents()
    assert (incident.kind, incident.rank) == ("contact_lost", 0)
    assert re.search(r"rank 0 lost contact while .* step \d+: .*Timed out waiting 4000ms", incident.text)
    assert incident.text in (tmp_path / "printed").read_text()
