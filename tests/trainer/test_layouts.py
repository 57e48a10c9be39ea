"""One recipe in every layout: the same batches, the same losses; killed again and again in all dimensions at once."""

import os
import random
import signal
import time

import pytest
import torch
from trained import eventually, rings, run_of

from treering.audit.checkpoint import audit_checkpoint
from treering.audit.report import Level
from treering.runlog.directory import RunDirectory
from treering_trainer.checkpointing.weights import read_weights

pytestmark = [pytest.mark.trainer, pytest.mark.slow]

LENGTH = 32
# 30 steps: three of 4 samples, then 8; checkpoints and validation have their own tests.
RECIPE = (
    f"--set=schedule.train_tokens={LENGTH * (4 * 4 + 26 * 8)}",
    "--set=checkpoint.every_steps=1000",
    "--set=validation=null",
    "--no-publish",
)
OWN = ("checkpoint", "digests", "path", "not_proven")
"""Fields of an audit that describe the attempts and the files."""

LAYOUTS = ("2x1x1", "1x2x1", "1x1x2", "2x2x1", "2x1x2", "1x2x2", "2x2x2")


def layout(sizes):
    return [
        f"--set=parallel.{axis}={size}"
        for axis, size in zip(("tensor", "pipeline", "data"), sizes.split("x"), strict=True)
    ]


@pytest.fixture(scope="module")
def alone(zygote, project, tmp_path_factory):
    """The run of one process."""
    runs = tmp_path_factory.mktemp("alone")
    zygote.train(project, runs, *RECIPE, *layout("1x1x1"))
    return run_of(runs)


def assert_agree(run, alone):
    """Batches by digest, losses and gradient norms to a few units in the last place, weights closely."""
    ours, theirs = rings(run), rings(alone)
    assert [ring.batch_digest for ring in ours] == [ring.batch_digest for ring in theirs]
    assert len(ours) == 30
    for one, other in zip(ours, theirs, strict=True):
        assert one.loss == pytest.approx(other.loss, abs=5e-6)
        assert one.grad_norm == pytest.approx(other.grad_norm, rel=1e-5)
    left, right = (read_weights(each.checkpoints()[-1].path) for each in (run, alone))
    assert left.keys() == right.keys()
    for name in left:
        # A key's bias has no gradient but rounding, which Adam blows up to full steps: it differs and moves nothing.
        if not name.endswith("linear_qkv.bias"):
            torch.testing.assert_close(left[name], right[name], atol=1e-4, rtol=1e-3, msg=f"{name} differs")


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("sizes", LAYOUTS)
def test_every_layout_trains_the_same(sizes, recompute, zygote, project, alone, tmp_path):  # noqa: PLR0917 - the case
    zygote.train(project, tmp_path, *RECIPE, *layout(sizes), f"--set=parallel.activation_recompute={recompute}")
    run = run_of(tmp_path)
    assert str(run.attempts()[0].header.layout) == sizes
    assert run.path.name == alone.path.name
    assert_agree(run, alone)


def test_recomputation_moves_no_bit_in_one_process(zygote, project, alone, tmp_path):
    zygote.train(project, tmp_path, *RECIPE, *layout("1x1x1"), "--set=parallel.activation_recompute=full")
    assert [(ring.loss, ring.grad_norm) for ring in rings(run_of(tmp_path))] == [
        (ring.loss, ring.grad_norm) for ring in rings(alone)
    ]


def test_audits_do_not_depend_on_the_layout(zygote, project, alone, tmp_path):
    """Trained in one process, in all dimensions at once, or in another layout from step 13 on: the same audit."""
    (tmp_path / "all").mkdir()
    zygote.train(project, tmp_path / "all", *RECIPE, *layout("2x2x2"))
    zygote.train(project, tmp_path / "relaid", *RECIPE, *layout("2x2x2"), "--stop-after=12", expect=75)
    zygote.train(project, tmp_path / "relaid", *RECIPE, *layout("1x1x1"), "--continue-changed")
    relaid = run_of(tmp_path / "relaid")
    assert [str(attempt.header.layout) for attempt in relaid.attempts()] == ["2x2x2", "1x1x1"]
    reports = [
        audit_checkpoint(run.checkpoints()[-1], project, verify=True)
        for run in (alone, run_of(tmp_path / "all"), relaid)
    ]
    for report in reports:
        assert report.level is Level.CONTENT_BOUND
        assert {name: report.digests[name] for name in ("recipe", "blend", "tokenizer")} == {
            name: reports[0].digests[name] for name in ("recipe", "blend", "tokenizer")
        }
    answers = [{name: value for name, value in report.to_json().items() if name not in OWN} for report in reports]
    assert answers[0] == answers[1] == answers[2]
    assert [(each.attempt, each.first_step, each.last_step) for each in reports[2].path] == [(1, 1, 12), (2, 13, 30)]


def last_step(runs):
    steps = [ring.step for path in runs.glob("*/resolved.json") for attempt in RunDirectory(path.parent).attempts()
             for ring in attempt.rings()]  # fmt: skip
    return max(steps, default=0)


def test_killed_thrice_in_every_dimension_at_once(zygote, project, tmp_path):
    """60 steps in bf16 through ramp and warm-up: the same weights, bit by bit, as without the three kills."""
    options = (
        f"--set=schedule.train_tokens={LENGTH * (15 * 4 + 8 * 8 + 37 * 12)}",
        "--set=schedule.global_batch_size=12",
        "--set=schedule.rampup.samples=120",
        f"--set=schedule.warmup_tokens={LENGTH * 200}",
        "--set=precision=bf16",
        "--set=checkpoint.every_steps=6",
        "--set=validation=null",
        "--no-publish",
        *layout("2x2x2"),
    )
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    zygote.train(project, whole, *options)
    chance = random.Random(530)
    moments = sorted(chance.sample(range(2, 58), 3))
    for moment in moments:
        training = zygote.start(project, killed, *options, slow={"seconds": 0.02})
        assert eventually(lambda: last_step(killed) >= moment), training.output  # noqa: B023 - called at once
        time.sleep(chance.uniform(0.0, 0.1))
        os.killpg(training.pid, signal.SIGKILL)
        assert training.wait() == -signal.SIGKILL
    zygote.train(project, killed, *options)
    run, reference = run_of(killed), run_of(whole)
    assert len(run.attempts()) == 4
    numbers = [
        [(ring.step, ring.batch_digest, ring.loss, ring.grad_norm) for ring in rings(each)] for each in (run, reference)
    ]
    assert numbers[0] == numbers[1]
    assert len(numbers[0]) == 60
    assert {ring.global_batch_size for ring in rings(run)} == {4, 8, 12}
    left, right = (
        {file.path: file.digest for file in each.checkpoints()[-1].manifest.files} for each in (run, reference)
    )
    layers = {path for path in right if "layer_" in path}
    assert layers
    assert {path: left[path] for path in layers} == {path: right[path] for path in layers}
