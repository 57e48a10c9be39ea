"""The rules of health: what each finds, when, and the healthy curves that none of them may touch."""

import math
from collections import Counter

import numpy as np
import pytest

from treering.metrics.alarms import DIVERGENCE, EARLY_BLOWUP, FLAT, GRAD_NORM, LOSS, SPIKE, TOO_GOOD, Alarm
from treering.metrics.spikes import RingAlarms, SeriesJudge, find_spikes

RANDOM = np.random.default_rng(9)
STEPS = np.arange(1, 2001)


def noisy(level, sigma=0.01, seed=0):
    level = np.broadcast_to(np.asarray(level, dtype=float), STEPS.shape)
    return level * np.exp(np.random.default_rng(seed).normal(0, sigma, len(level)))


def falling(start=11.0, end=3.0, pace=60.0):
    return end + (start - end) * np.exp(-(STEPS - 1) / pace)


def named(values, metric=LOSS, steps=STEPS) -> dict[str, list[Alarm]]:
    found: dict[str, list[Alarm]] = {}
    for alarm in find_spikes(steps[: len(values)], values, metric):
        found.setdefault(alarm.rule, []).append(alarm)
    return found


def with_at(values, first, last, value):
    return np.where((first <= STEPS) & (first <= last) & (last >= STEPS), value, values)


# early_blowup


@pytest.mark.parametrize("step", [3, 10, 31])
def test_a_loss_times_16_in_the_first_steps_is_a_blowup(step):
    values = noisy(falling())
    values[step - 1] *= 16
    (alarm,) = named(values)[EARLY_BLOWUP]
    assert (alarm.step, alarm.since, alarm.metric, alarm.z) == (step, step, LOSS, None)
    assert alarm.value == values[step - 1]
    assert alarm.value / alarm.background > 10


def test_a_blowup_of_many_steps_is_one_alarm_and_no_background_of_spikes():
    values = with_at(noisy(3.0), 10, 30, noisy(40.0, seed=1))
    found = named(values)
    assert {rule: [alarm.step for alarm in alarms] for rule, alarms in found.items()} == {EARLY_BLOWUP: [10]}
    values[499] *= 1.5  # 20 values of 40 would hide it
    assert [alarm.step for alarm in named(values)[SPIKE]] == [500]


def test_the_blowup_of_2021_is_found_at_its_third_step():
    """bigscience's gpt2-meg-ds-3d (ds-off): 12.4 at first, 44 at step 3, 20.4 after 62 steps."""
    values = np.concatenate([[12.4, 12.4, 44.0], np.geomspace(40, 20.4, 59)]) * np.exp(RANDOM.normal(0, 0.01, 62))
    assert [alarm.step for alarm in named(values)[EARLY_BLOWUP]] == [3]


def test_two_blowups_are_two_alarms():
    values = noisy(5.0)
    values[9:12] *= 4
    values[19:22] *= 4
    assert [alarm.step for alarm in named(values)[EARLY_BLOWUP]] == [10, 20]


# too_good


def test_a_loss_of_zero_is_named_at_once_and_once():
    values = with_at(noisy(3.0), 1000, 2000, 0.0)
    (alarm,) = named(values)[TOO_GOOD]
    assert (alarm.step, alarm.value) == (1000, 0.0)
    assert alarm.background == pytest.approx(3.0, rel=0.01)
    assert [a.step for a in named(np.zeros(5))[TOO_GOOD]] == [1]
    assert [a.step for a in named([3.0, -1.0, -1.0, 3.0, 0.0])[TOO_GOOD]] == [2, 5]


def test_a_loss_that_falls_to_a_third_within_a_step_and_stays_is_too_good():
    values = with_at(noisy(3.0), 700, 2000, noisy(1.0, seed=1))
    (alarm,) = named(values)[TOO_GOOD]
    assert (alarm.step, alarm.since) == (707, 700)
    assert alarm.background == pytest.approx(3.0, rel=0.02)


def test_seven_easy_batches_are_not_too_good():
    assert TOO_GOOD not in named(with_at(noisy(3.0), 700, 706, 0.5))


def test_the_return_from_a_blowup_is_not_too_good():
    assert set(named(with_at(noisy(3.0), 700, 900, noisy(9.0, seed=1)))) == {SPIKE, DIVERGENCE}


# flat


@pytest.mark.parametrize("metric", [LOSS, GRAD_NORM])
def test_a_value_that_repeats_16_times_is_flat(metric):
    values = with_at(noisy(3.0), 100, 115, 2.5)
    (alarm,) = named(values, metric)[FLAT]
    assert (alarm.step, alarm.since, alarm.value, alarm.num_background) == (115, 100, 2.5, 16)
    assert FLAT not in named(with_at(noisy(3.0), 100, 114, 2.5), metric)


def test_a_gradient_norm_of_zero_is_flat():
    assert [alarm.step for alarm in named(with_at(noisy(1.0), 50, 2000, 0.0), GRAD_NORM)[FLAT]] == [65]


def test_a_loss_that_never_leaves_its_start_is_flat():
    (alarm,) = named(noisy(10.8))[FLAT]
    assert (alarm.step, alarm.since) == (200, 1)
    assert alarm.background == pytest.approx(10.8, rel=0.01)


def test_a_start_above_a_uniform_guess_that_falls_only_to_it_is_flat():
    judge = SeriesJudge(LOSS, uniform=math.log(8192))
    values = noisy(np.maximum(9.0, 22 * np.exp(-STEPS / 20)))
    found = [alarm for step, value in zip(STEPS, values, strict=True) for alarm in judge.update(int(step), value)]
    assert [(alarm.rule, alarm.step) for alarm in found] == [(FLAT, 200)]
    assert found[0].background == math.log(8192)


def test_a_converged_loss_is_not_flat_and_a_trained_model_may_stay_where_it_starts():
    assert named(noisy(falling())) == {}
    assert named(noisy(3.0)) == {}
    judge = SeriesJudge(LOSS, uniform=math.log(50_304))
    assert not any(judge.update(int(step), value) for step, value in zip(STEPS, noisy(2.8), strict=True))


def test_a_warm_up_is_no_plateau_and_a_rate_that_stays_is():
    rising, judge = SeriesJudge(LOSS), SeriesJudge(LOSS)
    values = noisy(10.8)
    for step, value in zip(STEPS.tolist(), values, strict=True):
        assert rising.update(step, value, learning_rate=1e-9 * step) == []
    found = [
        alarm
        for step, value in zip(STEPS.tolist(), values, strict=True)
        for alarm in judge.update(step, value, learning_rate=1e-9 * min(step, 700))
    ]
    assert [(alarm.rule, alarm.step) for alarm in found] == [(FLAT, 900)]


def test_steps_that_were_not_applied_say_nothing_of_the_model():
    judge = SeriesJudge(LOSS)
    assert not any(judge.update(step, 10.8, applied=False) for step in range(1, 400))


# divergence


def test_a_slow_divergence_is_found_within_300_steps():
    """3 to 10 in 1,500 steps."""
    values = noisy(np.where(STEPS < 500, 3.0, 3.0 * np.exp((STEPS - 500) * 0.0008)))
    (alarm,) = named(values)[DIVERGENCE]
    assert 650 < alarm.step <= 750
    assert alarm.since < 560
    assert alarm.background == pytest.approx(3.0, rel=0.01)
    assert alarm.value > 1.15 * alarm.background


def test_a_divergence_that_ends_and_comes_back_is_two_alarms():
    values = with_at(with_at(noisy(3.0), 400, 600, noisy(5.0, seed=1)), 1200, 1400, noisy(5.0, seed=2))
    assert [alarm.step for alarm in named(values)[DIVERGENCE]] == [431, 1231]


def judged(values, uniform):
    judge = SeriesJudge(LOSS, uniform=uniform)
    return [(each.rule, each.step) for n, value in enumerate(values, 1) for each in judge.update(n, value)]


GONE_WRONG = [9.2, 8.8, 9.9, 11.2, 14.5, 14.5, 14.2, 17.5, 15.0, 14.7, 15.3, 11.8, 10.4, 12.0, 18.4, 17.8]
"""The demo's loss, vocabulary 8,192, at a peak learning rate of 0.5: it stays between 13 and 28 for 90 steps."""


def test_a_run_that_is_worse_than_a_guess_from_the_start_diverges():
    guess = math.log(8192)
    judge = SeriesJudge(LOSS, uniform=guess)
    (alarm,) = [each for n, value in enumerate(GONE_WRONG, 1) for each in judge.update(n, value)]
    assert (alarm.rule, alarm.step, alarm.since, alarm.background) == (DIVERGENCE, 16, 16, guess)
    assert alarm.value == pytest.approx(14.35, abs=0.01)
    back = [*GONE_WRONG, *[9.0] * 20, *[20.0] * 20]
    assert [step for rule, step in judged(back, guess) if rule == DIVERGENCE] == [16, 44]
    assert judged(GONE_WRONG, None) == []


def test_a_high_start_is_not_worse_than_a_guess():
    assert judged(noisy(np.maximum(14.0 - 0.1 * STEPS, 3.0), sigma=0.02)[:200], math.log(8192)) == []


def test_a_loss_near_zero_does_not_diverge():
    values = noisy(np.where(STEPS < 500, 0.004, 0.02), sigma=0.5)
    assert DIVERGENCE not in named(values)


# healthy curves


HEALTHY = {
    "fast fall": falling(pace=8),
    "slow fall": falling(pace=900),
    "high start": np.maximum(falling(pace=40), 22.6 * np.exp(-(STEPS - 1) / 1.5)),
    "learned by heart": np.maximum(2e-4, 10.9 * np.exp(-STEPS / 9)),
    "annealing": falling() * np.where(STEPS > 1500, 0.9 + 0.1 * np.exp(-(STEPS - 1500) / 80), 1),
    "restart": falling() * np.where((STEPS > 900) & (STEPS < 930), 1.04, 1),
    "rate raised again": falling() * (1 + 0.08 * np.exp(-(((STEPS - 1200) / 100) ** 2))),
}


@pytest.mark.parametrize("sigma", [0.005, 0.03, 0.15])
@pytest.mark.parametrize("curve", HEALTHY)
def test_healthy_curves_raise_no_named_alarm(curve, sigma):
    for seed in range(3):
        assert set(named(noisy(HEALTHY[curve], sigma, seed))) <= {SPIKE}


def test_a_batch_ramp_raises_no_named_alarm():
    size = np.minimum(32, 1 + STEPS // 20)
    values = falling() * np.exp(RANDOM.normal(0, 0.3, len(STEPS)) / np.sqrt(size))
    assert set(named(values)) <= {SPIKE}


# rings


class Ring:
    def __init__(self, step, loss, grad_norm=1.0, *, applied=True, learning_rate=1e-3):
        self.step, self.loss, self.grad_norm = step, loss, grad_norm
        self.applied, self.learning_rate = applied, learning_rate


def test_another_run_on_the_path_begins_anew():
    """The level of another blend is no spike and no divergence."""
    first = [Ring(step, value, norm) for step, (value, norm) in enumerate(zip(noisy(2.0), noisy(1.0), strict=True), 1)]
    second = [Ring(step + 2000, each.loss * 2, each.grad_norm) for step, each in enumerate(first, 1)]
    judge = RingAlarms()
    assert Counter(alarm.rule for ring in (*first, *second) for alarm in judge.update(ring))[DIVERGENCE] == 1
    judge = RingAlarms()
    assert not any(judge.update(ring) for ring in first)
    judge.begin()
    assert not any(judge.update(ring) for ring in second)
