"""fp16 with a dynamic loss scale: an overflow is a skipped step on record, and no more until nothing helps.

DeepSpeed's ZeRO optimizer and its scale are the real ones; where a processor has no fp16 instructions torch computes
the same without them.
"""

import itertools
import math

import pytest
from trained import assert_same_weights, numbers, options, resolved, rings, run_of

from treering.config.model import LossScaleConfig
from treering.errors import ConfigError
from treering_trainer.core.engine import StepResult
from treering_trainer.core.overflow import LOSSES_IN_A_ROW, Overflows
from treering_trainer.core.timing import StepTiming

pytestmark = pytest.mark.trainer

FP16 = options(
    ("precision=fp16", "optimizer.loss_scale={initial_power: 20, window: 4, hysteresis: 1}", "parallel.pipeline=2")
)
EMULATED = {"compute_in_fp16": {}}


@pytest.fixture(scope="module")
def run(zygote, project, tmp_path_factory):
    runs = tmp_path_factory.mktemp("fp16")
    zygote.train(project, runs, *FP16, "--no-publish", **EMULATED)
    return run_of(runs)


@pytest.mark.slow
def test_an_overflow_skips_a_step_and_halves_the_scale(run):
    found = rings(run)
    scales = [ring.loss_scale for ring in found]
    skipped = [ring.step for ring in found if not ring.applied]
    assert scales[0] == 2**20
    assert skipped[:2] == [1, 2]
    assert len(skipped) < 8
    # DeepSpeed 0.19.8 doubles when a whole window has passed after the step that follows an overflow.
    since = 0
    for ring, after in itertools.pairwise(found):
        since = 0 if not ring.applied else since + 1
        doubles = ring.applied and since > 1 and (since - 1) % 4 == 0
        assert after.loss_scale == ring.loss_scale * (0.5 if not ring.applied else 2 if doubles else 1)
    assert any(after > before for before, after in itertools.pairwise(scales))
    assert all(math.isinf(ring.grad_norm) for ring in found if not ring.applied)
    assert all(math.isfinite(ring.loss) for ring in found)
    assert found[-1].loss < found[0].loss - 0.3


@pytest.mark.slow
def test_a_skipped_step_has_read_its_samples(run):
    schedule = run.resolved.schedule
    for ring in rings(run):
        assert (ring.sample_start, ring.sample_end) == schedule.sample_range(ring.step)
        assert ring.learning_rate == schedule.step_learning_rate(ring.step)
    applied = sum(ring.applied for ring in rings(run))
    assert run.checkpoints()[-1].manifest.applied_steps == applied < len(rings(run))


@pytest.mark.slow
def test_the_scale_is_resumed(run, zygote, project, tmp_path):
    zygote.train(project, tmp_path, *FP16, "--no-publish", expect=-9, kill_after_ring={"step": 6}, **EMULATED)
    printed = zygote.train(project, tmp_path, *FP16, "--no-publish", **EMULATED)
    assert "goes on from the checkpoint of step 4" in printed
    cut = run_of(tmp_path)
    assert numbers(rings(cut)) == numbers(rings(run))
    assert [ring.loss_scale for ring in rings(cut)] == [ring.loss_scale for ring in rings(run)]
    assert_same_weights(cut, run)


@pytest.mark.slow
def test_an_overflow_at_the_smallest_scale_ends_the_run(zygote, project, tmp_path):
    scale = "--set=optimizer.loss_scale={initial_power: 21, minimum: 1048576, hysteresis: 1}"
    printed = zygote.train(project, tmp_path, "--set=precision=fp16", scale, "--no-publish", expect=5, **EMULATED)
    assert "gradient norm inf at the smallest loss scale, 1,048,576: the scale cannot be lowered further" in printed
    (attempt,) = run_of(tmp_path).attempts()
    found = list(attempt.rings())
    assert [(ring.loss_scale, ring.applied) for ring in found] == [(2**21, False), (2**20, False)]


@pytest.mark.slow
def test_where_the_device_cannot_it_is_refused_before_anything_starts(zygote, project, tmp_path):
    printed = zygote.train(project, tmp_path, "--set=precision=fp16", "--no-publish", expect=2)
    assert "precision: found fp16, expected bf16 or fp32: the processors of this node cannot compute in fp16" in printed
    assert "--set precision=bf16" in printed
    assert not list(tmp_path.glob("*/attempts/*"))


# What is decided


def result(loss=5.0, grad_norm=1.0, applied=True, loss_scale=1024.0):
    return StepResult(loss, grad_norm, applied, loss_scale, StepTiming(0, 0, 0, 0, 0))


OVERFLOW = {"grad_norm": math.inf, "applied": False}
BAD_LOSS = {"loss": math.nan, "grad_norm": math.inf, "applied": False}


@pytest.mark.parametrize("change", [{"loss": math.nan}, {"loss": math.inf}, {"grad_norm": math.inf, "applied": False}])
def test_without_a_scale_the_first_number_that_is_not_finite_is_fatal(change):
    overflows = Overflows(None)
    assert overflows.fatal(result(loss_scale=None)) is None
    assert "expected finite numbers" in overflows.fatal(result(loss_scale=None, **change))


def test_what_moved_the_weights_must_be_finite():
    assert "expected finite numbers" in Overflows(LossScaleConfig()).fatal(result(grad_norm=math.nan))


def test_overflows_are_no_end_above_the_smallest_scale():
    overflows = Overflows(LossScaleConfig(minimum=2))
    assert all(overflows.fatal(result(loss_scale=4.0, **OVERFLOW)) is None for _ in range(100))
    assert "the smallest loss scale, 2" in overflows.fatal(result(loss_scale=2.0, **OVERFLOW))


def test_losses_that_no_scale_mends_are_counted_in_a_row():
    overflows = Overflows(LossScaleConfig())
    for _ in range(2):
        assert all(overflows.fatal(result(**BAD_LOSS)) is None for _ in range(LOSSES_IN_A_ROW - 1))
        assert overflows.fatal(result()) is None
    assert all(overflows.fatal(result(**BAD_LOSS)) is None for _ in range(LOSSES_IN_A_ROW - 1))
    assert "10 losses in a row" in overflows.fatal(result(**BAD_LOSS))


# Config


def test_the_scale_is_part_of_an_fp16_recipe_and_of_no_other(project):
    plain, half = resolved(project), resolved(project, "precision=fp16")
    assert "loss_scale" not in plain.to_json()["recipe"]["optimizer"]
    assert half.recipe.optimizer.loss_scale == LossScaleConfig(initial_power=32, window=1000, hysteresis=2, minimum=1)
    other = resolved(project, "precision=fp16", "optimizer.loss_scale.window=500")
    assert len({plain.run_id, half.run_id, other.run_id}) == 3


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (("optimizer.loss_scale.window=500",), "a loss scale with precision fp32, expected precision fp16 beside it"),
        (
            ("precision=fp16", "optimizer.loss_scale={initial_power: 3, minimum: 16}"),
            r"minimum: found 16, expected at most the first scale, 2\*\*3",
        ),
    ],
)
def test_what_does_not_fit_is_refused(settings, text, project):
    with pytest.raises(ConfigError, match=text):
        resolved(project, *settings)
