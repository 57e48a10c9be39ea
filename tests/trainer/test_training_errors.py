"""Errors that end a training: numbers that are not finite, ranks that read other batches, a folder that refuses."""

import pytest
from trained import run_of

pytestmark = [pytest.mark.trainer, pytest.mark.slow]


def test_runs_that_cannot_be_written(zygote, project, tmp_path):
    (tmp_path / "runs").write_text("a file")
    printed = zygote.train(project, tmp_path / "runs", expect=5)
    assert "training cannot read or write" in printed
    assert "Traceback" not in printed


def test_not_finite_stops_the_run(zygote, project, tmp_path):
    printed = zygote.train(project, tmp_path, "--set=optimizer.peak_learning_rate=1e30", expect=5)
    assert "expected finite numbers; the ring is appended" in printed
    (attempt,) = run_of(tmp_path).attempts()
    last = list(attempt.rings())[-1]
    assert not last.applied
    assert last.grad_norm == float("inf") or last.loss != last.loss
    assert attempt.end.status == "failed"


def test_ranks_must_be_fed_the_same(zygote, project, tmp_path):
    printed = zygote.train(project, tmp_path, "--set=parallel.pipeline=2", expect=3, feed_another={"rank": 1})
    assert "first and last stage must read the same batch" in printed
    assert [ring.step for ring in run_of(tmp_path).attempts()[0].rings()] == [1]


def test_no_ring_no_next_step(zygote, project, tmp_path):
    printed = zygote.train(project, tmp_path, expect=5, full_disk={"step": 6})
    assert "No space left on device" in printed
    run = run_of(tmp_path)
    assert [ring.step for ring in run.attempts()[0].rings()] == [1, 2, 3, 4, 5]
    assert run.state() == "failed"
    printed = zygote.train(project, tmp_path, expect=5, full_disk={"step": 6, "reason": False})
    assert "rank 0: OSError: [Errno 28] No space left on device" in printed
