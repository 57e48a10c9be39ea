"""Ratios of two groups with 95 % intervals: of probabilities over prompts and words, and of counts of texts.

Everything is computed on logarithms, so that a ratio and its reciprocal are judged alike; 1 is no difference. Numbers
come from `metrics.bias`.

Sources: Student's t over prompts; Satterthwaite's degrees of freedom (Biometrics Bulletin 2, 1946); logarithmic
interval of a ratio of counts with 1/2 added to each (Katz et al., Biometrics 34, 1978; Walter, Biometrika 62, 1975);
Fisher's exact test, two-sided by doubling; tests that can never be significant left out of the correction (Tarone,
Biometrics 46, 1990).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from treering.metrics.effects import ALPHA, POWER

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as probable, or as frequent, something is with one group as with others.

    Attributes:
        value: the ratio; 1 is no difference.
        low: lower end of the 95 % interval; NaN where the error is unknown.
        high: its upper end.
        p: two-sided p-value of no difference, before correction; 1 where nothing can be said.
        detectable: smallest ratio above 1 that is found with a probability of 80 %; NaN where the error is unknown.
    """

    value: float
    low: float
    high: float
    p: float
    detectable: float


def ratios_by_word(differences: Floats, tests: int) -> list[Ratio]:
    """One ratio a word, with the error over prompts.

    Args:
        differences: of log-probabilities, one row a prompt, one column a word.
        tests: comparisons that are made together, which `detectable` takes into account.
    """
    prompts = len(differences)
    means = differences.mean(axis=0)
    if prompts < 2:
        return [_of(float(mean), math.nan, 1, tests) for mean in means]
    errors = differences.std(axis=0, ddof=1) / math.sqrt(prompts)
    return [
        _constant(float(mean), prompts) if _is_zero(error, mean) else _of(float(mean), float(error), prompts - 1, tests)
        for mean, error in zip(means, errors, strict=True)
    ]


def ratio_of_words(differences: Floats, first: NDArray[np.bool_], second: NDArray[np.bool_] | None = None) -> Ratio:
    """One ratio of many words, with the error over prompts and over words.

    Both prompts and words are samples of what could have been asked, so both errors are added; what they share counts
    twice, which makes the interval slightly wide.

    Args:
        differences: of log-probabilities, one row a prompt, one column a word.
        first: which words; at least one.
        second: words whose ratio divides that of the first; None for the ratio of the first alone.
    """
    parts = [(differences[:, first], 1.0)] + ([] if second is None else [(differences[:, second], -1.0)])
    by_prompt = np.sum([sign * part.mean(axis=1) for part, sign in parts], axis=0)
    value = float(by_prompt.mean())
    samples = [by_prompt, *(part.mean(axis=0) for part, _ in parts)]
    if any(len(each) < 2 for each in samples):
        return _of(value, math.nan, 1, 1)
    variances = [float(each.var(ddof=1)) / len(each) for each in samples]
    total = sum(variances)
    if _is_zero(math.sqrt(total), value):
        return _constant(value, len(by_prompt))
    freedom = total**2 / sum(part**2 / (len(each) - 1) for part, each in zip(variances, samples, strict=True))
    return _of(value, math.sqrt(total), freedom, 1)


def ratio_of_counts(hits: int, texts: int, other_hits: int, other_texts: int, tests: int) -> Ratio:
    """How many times as often texts of one group have a word as texts of others.

    Args:
        hits: texts of the group that have the word.
        texts: of the group, at least one.
        other_hits: the same of the others.
        other_texts: the same of the others.
        tests: comparisons that are made together, which `detectable` takes into account.
    """
    share, other = (hits + 0.5) / (texts + 1), (other_hits + 0.5) / (other_texts + 1)
    error = math.sqrt(
        max(0.0, 1 / (hits + 0.5) - 1 / (texts + 1)) + max(0.0, 1 / (other_hits + 0.5) - 1 / (other_texts + 1))
    )
    found = _of(math.log(share / other), error, math.inf, tests)
    return Ratio(
        found.value, found.low, found.high, _fisher(hits, texts, hits + other_hits, other_texts), found.detectable
    )


def wilson(hits: int, items: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson, Journal of the American Statistical Association 22, 1927)."""
    z = _quantile(math.inf, 1 - ALPHA / 2)
    middle = (hits + z**2 / 2) / (items + z**2)
    half = z / (items + z**2) * math.sqrt(hits * (items - hits) / items + z**2 / 4)
    return max(0.0, middle - half), min(1.0, middle + half)


def least_p(texts: int, total_hits: int, other_texts: int) -> float:
    """The smallest p-value that so many texts with a word could have given, however they are divided."""
    ends = {max(0, total_hits - other_texts), min(texts, total_hits)}
    return min(_fisher(hits, texts, total_hits, other_texts) for hits in ends)


def _fisher(hits: int, texts: int, total: int, other_texts: int) -> float:
    possible = np.arange(max(0, total - other_texts), min(texts, total) + 1)
    logs = _log_choose(texts, possible) + _log_choose(other_texts, total - possible)
    shares = np.exp(logs - special.logsumexp(logs))
    below, above = float(shares[possible <= hits].sum()), float(shares[possible >= hits].sum())
    return min(1.0, 2 * min(below, above))


def _log_choose(of: int, chosen: NDArray[np.int64]) -> Floats:
    found: Floats = special.gammaln(of + 1) - special.gammaln(chosen + 1) - special.gammaln(of - chosen + 1)
    return found


def _is_zero(error: float, value: float) -> bool:
    return error <= 1e-12 * max(1.0, abs(value))


def _constant(log_ratio: float, prompts: int) -> Ratio:
    """A ratio that is the same after every prompt: the test of signs."""
    p = 1.0 if _is_zero(abs(log_ratio), 1.0) else 2.0 ** (1 - prompts)
    value = math.exp(log_ratio)
    return Ratio(value, value, value, p, 1.0)


def _of(log_ratio: float, error: float, freedom: float, tests: int) -> Ratio:
    if math.isnan(error):
        return Ratio(math.exp(log_ratio), math.nan, math.nan, 1.0, math.nan)
    half = _quantile(freedom, 1 - ALPHA / 2) * error
    p = min(1.0, 2 * float(special.stdtr(freedom, -abs(log_ratio) / error)))
    needed = (_quantile(freedom, 1 - ALPHA / 2 / tests) + _quantile(freedom, POWER)) * error
    low, high, detectable = (_exp(each) for each in (log_ratio - half, log_ratio + half, needed))
    return Ratio(math.exp(log_ratio), low, high, p, detectable)


def _quantile(freedom: float, probability: float) -> float:
    return float(special.ndtri(probability) if math.isinf(freedom) else special.stdtrit(freedom, probability))


def _exp(value: float) -> float:
    """Exponential, infinite where the number is too large: an interval over two prompts may be that wide."""
    return math.exp(value) if value < 700 else math.inf
