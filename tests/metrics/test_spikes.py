"""The spike detector on BLOOM's real spike, on constant, non-finite and shifted series."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treering.metrics.alarms import GRAD_NORM, LOSS, NON_FINITE, SPIKE, Alarm
from treering.metrics.spikes import RingAlarms, SpikeDetector, SpikeRule, find_spikes

# BLOOM 176B, iterations 31,214 to 31,219, from its public training chronicle.
BLOOM_STEPS = range(31_214, 31_220)
BLOOM_GRAD_NORM = [0.242, 0.947, 2.390, 15.886, 145.1, 960.4]
BLOOM_LOSS = [2.199, 2.220, 2.595, 2.242, 2.345, 5.098]


@dataclass(frozen=True)
class Row:
    step: int
    loss: float
    grad_norm: float | None
    applied: bool = True
    learning_rate: float = 1e-4


def bloom_rings() -> list[Row]:
    """256 iterations of background before the spike: log-normal, loss 2.2 ± 1 %, gradient norm 0.24 ± 10 %."""
    random = np.random.default_rng(31_214)
    loss = 2.2 * np.exp(0.01 * random.standard_normal(256))
    grad_norm = 0.24 * np.exp(0.10 * random.standard_normal(256))
    background = [
        Row(31_214 - 256 + i, float(x), float(y)) for i, (x, y) in enumerate(zip(loss, grad_norm, strict=True))
    ]
    return background + [Row(*row) for row in zip(BLOOM_STEPS, BLOOM_LOSS, BLOOM_GRAD_NORM, strict=True)]


def test_bloom_fires_at_the_gradient_norm_four_iterations_before_the_loss_peaks() -> None:
    judge = RingAlarms()
    spikes = [alarm for ring in bloom_rings() for alarm in judge.update(ring)]
    assert {alarm.rule for alarm in spikes} == {SPIKE}
    by_metric = {metric: [s.step for s in spikes if s.metric == metric] for metric in (GRAD_NORM, LOSS)}
    assert by_metric[GRAD_NORM] == [31_215, 31_216, 31_217, 31_218, 31_219]
    assert by_metric[LOSS] == [31_216, 31_219]
    first, peak = spikes[0], spikes[-1]
    assert (first.metric, first.step, first.value) == (GRAD_NORM, 31_215, 0.947)
    assert first.z == pytest.approx(math.log(0.947 / 0.24) / 0.10, rel=0.2)
    assert first.background == pytest.approx(0.24, rel=0.05)
    assert first.num_background == 256
    assert (peak.metric, peak.value) == (LOSS, 5.098)
    assert peak.z > 60


def test_constant_background_neither_divides_by_zero_nor_flags_rounding() -> None:
    detector = SpikeDetector(LOSS)
    assert [detector.update(step, 2.0) for step in range(100)] == [None] * 100
    assert detector.update(100, 2.0 * (1 + 1e-7)) is None
    assert detector.update(101, 2.0 * 1.05) is None
    spike = detector.update(102, 2.0 * 1.07)
    assert spike is not None
    assert spike.z == pytest.approx(math.log(1.07) / 0.01)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_non_finite_is_a_spike_from_the_first_step(value: float) -> None:
    first = SpikeDetector(LOSS).update(1, value)
    assert first is not None
    assert (first.step, first.rule, first.z, first.num_background) == (1, NON_FINITE, math.inf, 0)
    assert math.isnan(first.background)
    detector = SpikeDetector(LOSS)
    for step in range(40):
        detector.update(step, 3.0)
    assert detector.update(40, value) is not None
    assert detector.update(41, 3.0) is None, "a non-finite value must not enter the background"


def found_spikes(values: list[float], rule: SpikeRule | None = None) -> list[Alarm]:
    return [alarm for alarm in find_spikes(range(len(values)), values, LOSS, rule) if alarm.rule == SPIKE]


def test_falling_and_vanishing_values_are_no_spikes() -> None:
    assert found_spikes([*np.geomspace(11.0, 3.0, 200), 0.5, 0.0, -1.0]) == []


def test_flagged_points_do_not_raise_their_own_threshold() -> None:
    values = [2.0] * 300 + [4.0] * 200
    assert len(found_spikes(values)) == 200


def test_a_level_that_holds_for_a_window_becomes_the_background() -> None:
    values = [2.0] * 300 + [4.0] * 300 + [8.0]
    steps = [spike.step for spike in found_spikes(values)]
    assert steps == [*range(300, 556), 600]


def test_gradient_norm_of_a_skipped_step_is_passed_over_and_its_loss_is_not() -> None:
    detector = RingAlarms()
    assert detector.update(Row(1, 2.0, math.inf, applied=False)) == []
    assert detector.update(Row(2, 2.0, None)) == []
    assert [s.metric for s in detector.update(Row(3, math.nan, math.inf))] == [GRAD_NORM, LOSS]
    assert [s.metric for s in detector.update(Row(4, math.inf, math.nan, applied=False))] == [LOSS]


def test_rule_is_configurable() -> None:
    values = [2.0] * 20 + [2.1]
    assert found_spikes(values) == []
    rule = SpikeRule(threshold=4.0, window=16, min_points=8)
    (spike,) = found_spikes(values, rule)
    assert (spike.step, spike.num_background) == (20, 16)
    assert spike.to_dict()["z"] == pytest.approx(math.log(1.05) / 0.01)


values = st.one_of(
    st.floats(1.9, 2.1), st.floats(1.9, 2.1), st.floats(0.1, 1e4), st.just(0.0), st.just(math.nan), st.just(math.inf)
)


@given(st.lists(values, max_size=120), st.integers(0, 40))
def test_every_spike_is_what_the_whole_background_says(series: list[float], quiet: int) -> None:
    rule = SpikeRule(threshold=5.0, window=8, min_points=4)
    series = [2.0 + 0.001 * (i % 7) for i in range(quiet)] + series
    detector = SpikeDetector(LOSS, rule)
    background: list[float] = []
    flagged: list[float] = []
    for step, value in enumerate(series):
        found = detector.update(step, value)
        if not math.isfinite(value) or value <= 0:
            assert (found is not None) == (not math.isfinite(value))
            continue
        log, middle = math.log(value), float(np.median(background)) if background else math.nan
        z = (log - middle) / max(1.4826 * float(np.median(np.abs(np.array(background) - middle))), 0.01)
        if len(background) >= 4 and z > 5.0:
            assert found == Alarm(step, LOSS, value, pytest.approx(z), math.exp(middle), len(background), SPIKE, step)
            flagged.append(log)
            if len(flagged) == 8:
                background, flagged = flagged, []
            continue
        assert found is None
        flagged = []
        background = [*background, log][-8:]
