"""Ratios: a neutral model is flagged at most 5 times of 100, a planted ratio is in its interval 95 times of 100."""

import math

import numpy as np
import pytest
from scipy import stats

from treering.metrics.effects import ALPHA, holm
from treering.metrics.ratios import least_p, ratio_of_counts, ratio_of_words, ratios_by_word

MODELS, PROMPTS, WORDS = 1000, 8, 30
ERROR = 3 * math.sqrt(ALPHA * (1 - ALPHA) / MODELS)
"""Three standard errors of a share of 5 % of so many models."""


def covers_one(ratio):
    return ratio.low <= 1 <= ratio.high


def difference(random, *, planted=1.0, shift=0.4, noise=0.3):
    """Log-probabilities of words after a group's prompts minus those after another's, as a model gives them.

    Every prompt has a shift of its own for all words, since one group's text may fit it better. Word 3 is planted.
    """
    found = random.normal(0, shift, (PROMPTS, 1)) + random.normal(0, noise, (PROMPTS, WORDS))
    found[:, 3] += math.log(planted)
    return found


def test_of_1000_neutral_models_at_most_5_percent_have_a_flagged_word():
    random = np.random.default_rng(1)
    flagged, covers = 0, np.zeros(3)
    positive = np.arange(WORDS) % 3 == 0
    for _ in range(MODELS):
        found = difference(random)
        flagged += min(holm([each.p for each in ratios_by_word(found, WORDS)])) <= ALPHA
        overall = ratio_of_words(found, np.full(WORDS, fill_value=True))
        leaning = ratio_of_words(found, positive, ~positive)
        covers += [covers_one(each) for each in (ratios_by_word(found[:, :1], 1)[0], overall, leaning)]
    assert flagged / MODELS <= ALPHA + ERROR
    assert np.all(covers / MODELS >= 1 - ALPHA - ERROR)


def test_a_planted_ratio_is_in_its_interval_and_is_found():
    random = np.random.default_rng(2)
    inside = found = 0
    for _ in range(MODELS):
        words = ratios_by_word(difference(random, planted=3.0, shift=0.05, noise=0.25), WORDS)
        inside += words[3].low <= 3 <= words[3].high
        found += holm([each.p for each in words])[3] <= ALPHA
    assert abs(inside / MODELS - 0.95) <= ERROR
    assert found / MODELS > 0.9


def test_a_planted_leaning_of_many_words_is_in_its_interval():
    """Positive words are twice as probable after the group, negative ones as probable as after the other."""
    random = np.random.default_rng(3)
    positive = np.arange(WORDS) % 3 == 0
    inside = 0
    for _ in range(MODELS):
        ratio = ratio_of_words(difference(random) + math.log(2) * positive, positive, ~positive)
        inside += ratio.low <= 2 <= ratio.high
        assert ratio.value == pytest.approx(2, rel=0.6)
    assert inside / MODELS >= 0.95 - ERROR


def test_what_can_be_found_is_found_four_times_of_five():
    random = np.random.default_rng(4)
    logs = [math.log(ratios_by_word(difference(random), 1)[3].detectable) for _ in range(MODELS)]
    detectable = math.exp(math.sqrt(np.mean(np.square(logs))))  # of the true error, not of one estimate of it
    found = sum(ratios_by_word(difference(random, planted=detectable), 1)[3].p <= ALPHA for _ in range(MODELS))
    assert found / MODELS == pytest.approx(0.8, abs=0.05)


def test_of_1000_neutral_models_at_most_5_percent_have_a_flagged_count():
    """Words with unequal frequencies, whose share depends on the prompt as well."""
    random = np.random.default_rng(5)
    flagged = inside = judged = 0
    for _ in range(MODELS):
        shares = random.uniform(0.005, 0.2, 12)
        hits, others = random.binomial(200, shares), random.binomial(400, shares)
        ratios = [ratio_of_counts(a, 200, b, 400, 12) for a, b in zip(hits, others, strict=True)]
        flagged += min(holm([each.p for each in ratios])) <= ALPHA
        inside += sum(covers_one(each) for each in ratios)
        judged += len(ratios)
    assert flagged / MODELS <= ALPHA + ERROR
    assert inside / judged >= 0.945


def test_a_planted_count_is_in_its_interval_and_is_found():
    random = np.random.default_rng(6)
    inside = found = 0
    for _ in range(MODELS):
        ratio = ratio_of_counts(random.binomial(800, 0.15), 800, random.binomial(800, 0.05), 800, 30)
        inside += ratio.low <= 3 <= ratio.high
        found += ratio.p * 30 <= ALPHA
    assert inside / MODELS >= 0.95 - ERROR
    assert found / MODELS > 0.99


def test_the_p_value_of_counts_is_fishers():
    for hits, texts, other_hits, other_texts in ((3, 10, 9, 12), (0, 5, 0, 9), (7, 7, 1, 30), (2, 20, 1, 20)):
        found = ratio_of_counts(hits, texts, other_hits, other_texts, 1)
        rows = [[hits, texts - hits], [other_hits, other_texts - other_hits]]
        sides = [stats.fisher_exact(rows, side).pvalue for side in ("less", "greater")]
        assert found.p == pytest.approx(min(1, 2 * min(sides)))
    assert least_p(10, 3, 10) == pytest.approx(2 * stats.fisher_exact([[3, 7], [0, 10]], "greater").pvalue)
    assert least_p(10, 0, 10) == 1


def test_a_model_that_does_not_see_the_group_has_ratios_of_exactly_one():
    found = np.zeros((4, 5))
    for ratio in (*ratios_by_word(found, 5), ratio_of_words(found, np.full(5, fill_value=True))):
        assert (ratio.value, ratio.low, ratio.high, ratio.p) == (1, 1, 1, 1)
    (same,) = ratios_by_word(np.full((4, 1), math.log(2)), 1)
    assert (same.value, same.p) == (pytest.approx(2), 0.125)  # four prompts of one sign


def test_one_prompt_or_one_word_says_nothing_about_the_error():
    (ratio,) = ratios_by_word(np.array([[1.0]]), 1)
    assert ratio.value == pytest.approx(math.e)
    assert math.isnan(ratio.low)
    assert ratio.p == 1
    assert math.isnan(ratio_of_words(np.array([[1.0, 2.0]]), np.array([True, True])).high)
    assert math.isnan(ratio_of_words(np.array([[1.0, 2.0], [2.0, 1.5]]), np.array([True, False])).high)


def test_an_interval_over_two_prompts_may_have_no_end():
    (ratio,) = ratios_by_word(np.array([[0.0], [900.0]]), 1)
    assert ratio.high == math.inf
    assert ratio.low == 0
