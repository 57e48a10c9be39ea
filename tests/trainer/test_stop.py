"""A signal or a time limit stops a run with a checkpoint, and the run goes on from there."""

import os
import signal
import time

import pytest
from trained import assert_identical, eventually, rings_after, run_of

from treering.audit.checkpoint import audit_checkpoint

pytestmark = [pytest.mark.trainer, pytest.mark.slow]


def test_second_signal_ends_at_once(zygote, project, tmp_path):
    training = zygote.start(project, tmp_path, slow={"seconds": 60})
    assert eventually(lambda: list(tmp_path.glob("*/attempts/0001/rings.jsonl")))
    os.kill(training.pid, signal.SIGTERM)
    time.sleep(0.5)
    os.kill(training.pid, signal.SIGTERM)
    assert training.wait() == 75, training.output
    assert run_of(tmp_path).state() == "interrupted"


@pytest.mark.parametrize(
    ("ignored", "number", "code"),
    [((signal.SIGINT,), signal.SIGTERM, 75), ((), signal.SIGUSR1, 75), ((), signal.SIGINT, 130)],
    ids=["SIGTERM in a background job", "SIGUSR1", "SIGINT"],
)
def test_stops_with_a_checkpoint(  # noqa: PLR0917 - three of them are the case
    ignored, number, code, zygote, project, reference, tmp_path
):
    training = zygote.start(
        project, tmp_path, "--set=checkpoint.every_steps=1000", ignored=ignored, slow={"seconds": 0.1}
    )
    assert eventually(lambda: list(tmp_path.glob("*/resolved.json")) and rings_after(run_of(tmp_path), 5))
    for each in ignored:
        training.kill(each)
        assert eventually(lambda: rings_after(run_of(tmp_path), 7)), "what was ignored stays ignored"
    training.kill(number)
    assert training.wait() == code, training.output
    run = run_of(tmp_path)
    assert run.state() == "interrupted"
    stopped = run.attempts()[0].end
    assert (stopped.reason, stopped.step) == (
        "asked to stop by a signal",
        [ring.step for ring in run.attempts()[0].rings()][-1],
    )
    (unscheduled,) = run.checkpoints()
    assert unscheduled.step == stopped.step
    assert audit_checkpoint(unscheduled, project, verify=True).findings == ()
    zygote.train(project, tmp_path)
    assert run_of(tmp_path).attempts()[1].header.parent.step == stopped.step
    assert [each.step for each in run.checkpoints()] == sorted(
        {stopped.step, *(step for step in (8, 12, 15) if step > stopped.step)}
    )
    assert_identical(run_of(tmp_path), reference)


def test_a_warning_is_no_second_signal(zygote, project, tmp_path):
    """Slurm sends SIGUSR1, then SIGTERM: the second one must not take the checkpoint away."""
    training = zygote.start(project, tmp_path, "--set=checkpoint.every_steps=1000", slow={"seconds": 0.5})
    assert eventually(lambda: list(tmp_path.glob("*/resolved.json")) and rings_after(run_of(tmp_path), 1))
    os.kill(training.pid, signal.SIGUSR1)
    time.sleep(0.1)
    os.kill(training.pid, signal.SIGTERM)
    assert training.wait() == 75, training.output
    assert len(run_of(tmp_path).checkpoints()) == 1


def test_time_limit_stops_with_a_checkpoint(zygote, project, reference, tmp_path):
    options = ("--set=checkpoint.every_steps=1000", "--time-limit=0m3s")
    zygote.train(project, tmp_path, *options, expect=75, slow={"seconds": 0.4})
    run = run_of(tmp_path)
    end = run.attempts()[0].end
    assert (end.status, end.reason) == ("interrupted", "the time limit is over")
    assert [each.step for each in run.checkpoints()] == [end.step] * (end.step > 0)
    zygote.train(project, tmp_path, "--time-limit=1h")
    assert_identical(run_of(tmp_path), reference)


def test_time_limit_must_be_a_time(zygote, project, tmp_path):
    printed = zygote.train(project, tmp_path, "--time-limit=soon", expect=2)
    assert "'soon' is not a span of time" in printed
