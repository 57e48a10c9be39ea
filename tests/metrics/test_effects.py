"""Simulated comparisons with and without an effect: false alarms, effects found, intervals that cover the truth."""

import json
import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from treering.metrics.contenders import Measure
from treering.metrics.effects import ALPHA, holm, paired, unpaired, welch
from treering.metrics.group_scores import judge_groups


def answers(values):
    return {str(number): float(value) for number, value in enumerate(values)}


def accuracies(random, items, effect=0.0):
    """Two checkpoints of 40 % accuracy that agree on most items; the second one gains `effect`."""
    first = random.random(items) < 0.4
    changed = random.random(items)
    return answers(first), answers(np.where(changed < 0.1, ~first, first) | (random.random(items) < effect / 0.58))


def neutral(random, items):
    """Two checkpoints of the same accuracy: as many items are gained as lost, on average."""
    first, swap = random.random(items) < 0.4, random.random(items)
    second = np.where(swap < 0.2, random.random(items) < 0.4, first)
    return answers(first), answers(second)


def test_the_exact_test_of_mcnemar():
    first = answers([0] * 10 + [1] * 2 + [1] * 50)
    second = answers([1] * 10 + [0] * 2 + [1] * 50)
    found = paired(first, second)
    assert found.p == pytest.approx(2 * (1 + 12 + 66) / 2**12)
    assert (found.value, found.pairs, found.method) == (8 / 62, 62, "mcnemar")
    assert found.low < found.value < found.high


def test_pairs_find_what_two_standard_errors_cannot():
    first = answers([0] * 20 + [1] * 4 + [0] * 88 + [1] * 88)
    second = answers([1] * 20 + [0] * 4 + [0] * 88 + [1] * 88)
    found = paired(first, second)
    error = math.sqrt(0.25 / 200)
    assert found.p < 0.002
    assert unpaired(0.46, error, 0.54, error).p == pytest.approx(0.1096, abs=1e-4)
    assert found.detectable < unpaired(0.46, error, 0.54, error).detectable


def test_the_demos_cloze_items_at_steps_80_and_320():
    """Answers to 200 items without examples, as the demo's evaluation recorded them: unpaired z 0.77, paired z 2.36."""
    kept = json.loads((Path(__file__).parents[1] / "fixtures/demo_cloze.json").read_text())
    first, second = (answers(map(int, kept[f"step {step}"])) for step in (80, 320))
    found = paired(first, second)
    assert (found.value, found.pairs) == (pytest.approx(0.035), 200)
    assert found.p == pytest.approx(2 * (1 + 9) / 2**9)  # 8 items gained, one lost
    differences = np.array([second[item] - first[item] for item in first])
    assert found.value / (differences.std() / math.sqrt(200)) == pytest.approx(2.366, abs=1e-3)
    errors = kept["stderr 80"], kept["stderr 320"]
    alone = unpaired(np.mean(list(first.values())), errors[0], np.mean(list(second.values())), errors[1])
    assert alone.value / math.hypot(*errors) == pytest.approx(0.768, abs=1e-3)
    assert (found.p <= ALPHA, alone.p <= ALPHA) == (True, False)
    assert found.low > 0 > alone.low


def test_equal_answers_are_no_effect_and_few_items_can_show_little():
    found = paired(answers([0, 1, 1, 0, 1]), answers([0, 1, 1, 0, 1]))
    assert (found.value, found.p) == (0, 1)
    assert found.low < 0 < found.high
    assert found.detectable >= 6 / 5
    assert paired(answers([0] * 5), answers([1] * 5)).p == 0.0625


def test_only_common_items_are_compared():
    found = paired({"a": 0, "b": 1, "c": 0}, {"b": 1, "c": 1, "d": 0})
    assert (found.pairs, found.value) == (2, 0.5)


def test_a_single_pair_and_a_constant_difference_of_losses():
    alone = paired({"a": 0.5}, {"a": 0.7})
    assert (alone.p, math.isnan(alone.low), math.isnan(alone.detectable)) == (1, True, True)
    shifted = paired(answers([0.5, 0.25, 2]), answers([1, 0.75, 2.5]))
    assert (shifted.value, shifted.low, shifted.high, shifted.p) == (0.5, 0.5, 0.5, 0.25)
    assert paired(answers([0.5, 0.25]), answers([0.5, 0.25])).p == 1


def test_a_rounding_error_is_no_noise():
    """The mean of three times 0.1 is not 0.1, so that the variance of equal numbers is not 0."""
    third = paired(dict(zip("abc", (0.2, 0.3, 0.4), strict=True)), dict(zip("abc", (0.3, 0.4, 0.5), strict=True)))
    assert (third.p, third.low, third.high) == (0.25, third.value, third.value)
    assert third.value == pytest.approx(0.1)
    seeds = welch([0.1, 0.1, 0.1], [0.7, 0.7, 0.7])
    assert (seeds.p, math.isnan(seeds.low), seeds.value) == (1.0, True, pytest.approx(0.6))
    small = welch([1e-9, 2e-9, 3e-9], [11e-9, 12e-9, 13e-9])
    assert small.p < 0.001, "small numbers have their noise"


def test_the_bootstrap_gives_the_same_numbers_again_whatever_the_order_of_the_items():
    random = np.random.default_rng(0)
    first, second = answers(random.random(50)), answers(random.random(50))
    assert paired(first, second) == paired(dict(reversed(first.items())), second)


def test_holm_against_the_published_procedure():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1, 1]
    assert holm([]) == []


def test_welch_against_a_worked_example():
    """The numbers of `scipy.stats.ttest_ind([4.45, 4.47, 4.44], [4.52, 4.49, 4.50], equal_var=False)`."""
    found = welch([4.52, 4.49, 4.50], [4.45, 4.47, 4.44])
    assert found.value == pytest.approx(-0.05)
    assert found.p == pytest.approx(0.01601097, abs=1e-8)
    assert (found.low, found.high) == (pytest.approx(-0.08462836, abs=1e-8), pytest.approx(-0.01537164, abs=1e-8))
    assert math.isnan(welch([4.5], [4.4, 4.5]).low)
    same = welch([4.5, 4.5], [4.4, 4.4])
    assert (same.p, math.isnan(same.low)) == (1, True)


@pytest.mark.slow
def test_of_a_thousand_pairs_without_effect_at_most_five_percent_are_flagged():
    random = np.random.default_rng(1)
    flagged = covered = 0
    for _ in range(1000):
        tasks = [paired(*neutral(random, items)) for items in (80, 150, 200, 400, 1000)]
        losses = random.normal(3, 1, 60)
        tasks.append(paired(answers(losses), answers(losses + random.gamma(1, 0.1, 60) - 0.1)))
        flagged += min(holm([task.p for task in tasks])) <= ALPHA
        covered += sum(task.low <= 0 <= task.high for task in tasks)
    assert flagged <= 50
    assert 0.94 <= covered / 6000 <= 0.97


@pytest.mark.slow
def test_an_effect_of_the_detectable_size_is_found_four_times_of_five():
    random = np.random.default_rng(2)
    found = covered = 0
    for _ in range(400):
        losses, noise = random.normal(3, 1, 100), random.normal(0, 0.2, 100)
        detectable = (1.96 + 0.8416) * 0.2 / 10
        effect = paired(answers(losses), answers(losses - detectable + noise))
        found += effect.p <= ALPHA
        covered += effect.low <= -detectable <= effect.high
    assert 0.74 <= found / 400 <= 0.86
    assert 0.92 <= covered / 400 <= 0.98


def test_planted_effects_on_accuracies_are_found():
    random = np.random.default_rng(3)
    found = [paired(*accuracies(random, 1000, 0.08)) for _ in range(100)]
    flagged = [min(holm([effect.p, *(paired(*neutral(random, 100)).p for _ in range(4))])) <= ALPHA for effect in found]
    assert sum(flagged) >= 95


def groups_of_seeds(random, means, spread=0.01):
    """Three seeds of each config, as `judge_groups` takes them: ids of the runs, and their values of several tasks."""
    groups = [[f"{number} {seed}" for seed in range(3)] for number in range(len(means[0]))]
    found = {
        Measure("task", f"task {number}", "acc", 0): (
            10,
            {run: random.normal(mean, spread) for group, mean in zip(groups, row, strict=True) for run in group},
        )
        for number, row in enumerate(means)
    }
    return found, groups


@pytest.mark.slow
def test_of_a_thousand_comparisons_of_groups_without_effect_at_most_five_percent_are_flagged():
    random = np.random.default_rng(5)
    scores = losses = 0
    for _ in range(1000):
        verdicts = judge_groups(*groups_of_seeds(random, [[0.4] * 4] * 5))
        scores += any(each.real for group in verdicts for each in group)
        seeds = random.normal(4.5, 0.01, (4, 3))
        losses += min(holm([welch(a, b, 6).p for a, b in combinations(seeds, 2)])) <= ALPHA
    assert scores <= 50
    assert losses <= 50


@pytest.mark.slow
def test_a_difference_of_the_stated_size_between_groups_is_found_four_times_of_five():
    random = np.random.default_rng(6)
    for seeds, tests in ((3, 1), (3, 6), (5, 20)):
        samples = [(random.normal(4.5, 0.01, seeds), random.normal(4.5, 0.01, seeds)) for _ in range(1000)]
        stated = [welch(a, b, tests).detectable / math.sqrt(np.var(a, ddof=1) + np.var(b, ddof=1)) for a, b in samples]
        planted = stated[0] * 0.01 * math.sqrt(2)
        assert stated == pytest.approx([stated[0]] * 1000)
        found = [welch(a, b - planted).p <= ALPHA / tests for a, b in samples]
        assert 0.76 <= sum(found) / 1000 <= 0.84


def test_a_planted_difference_of_one_task_of_one_group_is_found_and_no_other():
    random = np.random.default_rng(7)
    means = [[0.4] * 4 for _ in range(5)]
    means[3][2] = 0.6
    found = judge_groups(*groups_of_seeds(random, means, spread=0.003))
    assert [(group, each.measure.name) for group, row in enumerate(found) for each in row if each.real] == [
        (1, "task 3")
    ]
    assert found[1][3].effect.value == pytest.approx(0.2, abs=0.01)
    assert found[1][3].words == "beyond noise"


@pytest.mark.slow
def test_seeds_without_effect_are_seldom_flagged_and_planted_effects_found():
    random = np.random.default_rng(4)
    equal = [welch(random.normal(4.5, 0.01, 3), random.normal(4.5, 0.01, 3)) for _ in range(1000)]
    assert sum(effect.p <= ALPHA for effect in equal) <= 60
    assert sum(effect.low <= 0 <= effect.high for effect in equal) >= 940
    planted = [welch(random.normal(4.5, 0.01, 3), random.normal(4.45, 0.01, 3)) for _ in range(200)]
    assert sum(effect.p <= ALPHA for effect in planted) >= 180
