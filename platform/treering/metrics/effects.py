"""Statistics of a difference: effect, 95 % interval, p-value, and the smallest effect that would have been found.

Two checkpoints that answer the same items are compared in pairs, item by item: what is hard for both cancels out. Runs
with different seeds are compared by Welch's test. Numbers come from `metrics.verdicts` and `metrics.groups`.

Sources: exact test of McNemar (Psychometrika 12, 1947); interval of Agresti and Min (Statistics in Medicine 24, 2005),
which adds 1/2 to each cell; symmetric bootstrap-t (Hall, Annals of Statistics 16, 1988); Welch (Biometrika 34, 1947);
Holm (Scandinavian Journal of Statistics 6, 1979).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

ALPHA: Final = 0.05
"""Probability with which any difference of a comparison is called real although none is."""

POWER: Final = 0.8
"""Probability with which a true difference of the size `detectable` is found."""

RESAMPLES: Final = 4999
_SIMULATED: Final = 20_000
_SEED: Final = 20_260_101
_CHUNK: Final = 2_000_000

_ROUNDING: Final = 1e-12
"""Relative error of a mean of equal numbers: `(0.1 + 0.1 + 0.1) / 3` is not 0.1."""

_MANY: Final = 50
"""Values in a group beyond which Student's t is taken for normal: a detectable difference is up to 4 % too small."""

Method = Literal["mcnemar", "bootstrap", "unpaired", "welch"]


@dataclass(frozen=True, slots=True)
class Effect:
    """Second minus first, with its doubt.

    Attributes:
        value: the difference.
        low: lower end of the 95 % interval; NaN where there is no error.
        high: its upper end.
        p: two-sided p-value before correction; 1 where nothing can be said.
        detectable: smallest true difference that is found with a probability of 80 %; NaN where there is no error.
        method: `mcnemar` (exact) or `bootstrap` over pairs of items; `unpaired` from two standard errors; `welch` over
            seeds.
        pairs: items that both answered; 0 where the comparison is not over pairs.
    """

    value: float
    low: float
    high: float
    p: float
    detectable: float
    method: Method
    pairs: int = 0


class NoiseVerdict:
    """Whether a difference is more than noise.

    Attributes:
        effect: the difference.
        adjusted: its p-value after Holm's correction.
    """

    __slots__ = ()
    effect: Effect
    adjusted: float

    @property
    def real(self) -> bool:
        """Whether the difference is more than noise."""
        return self.adjusted <= ALPHA

    @property
    def known(self) -> bool:
        """Whether the noise is known."""
        return not math.isnan(self.effect.low)

    @property
    def words(self) -> str:
        """The verdict in words."""
        if not self.known:
            return "noise unknown"
        return "beyond noise" if self.real else "within noise"


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for their number by Holm: at most `ALPHA` means more than noise."""
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def paired(first: Mapping[str, float], second: Mapping[str, float], tests: int = 1) -> Effect:
    """Compares two checkpoints item by item; items that only one of them answered are left out.

    Args:
        first: value by the item's id, with at least one id that the second has too.
        second: the same of the other checkpoint.
        tests: comparisons that are made together, which `detectable` takes into account.
    """
    common = sorted(first.keys() & second.keys())
    a, b = (np.array([values[item] for item in common]) for values in (first, second))
    if np.isin(a, (0, 1)).all() and np.isin(b, (0, 1)).all():
        return _mcnemar(len(common), int((a < b).sum()), int((a > b).sum()), tests)
    return _bootstrap(b - a, tests)


def _mcnemar(items: int, gained: int, lost: int, tests: int) -> Effect:
    p = min(1.0, 2 * float(special.bdtr(min(gained, lost), gained + lost, 0.5))) if gained + lost else 1.0
    wide = items + 2
    middle = (gained - lost) / wide
    stderr = math.sqrt(((gained + lost + 1) / wide - middle**2) / wide)
    value, half = (gained - lost) / items, _normal(1 - ALPHA / 2) * stderr
    # Fewer items than this are never significant, even if all of them changed in one direction.
    fewest = math.ceil(1 - math.log2(ALPHA / tests))
    detectable = max(_detectable(stderr, tests), fewest / items)
    low, high = min(value, max(-1.0, middle - half)), max(value, min(1.0, middle + half))
    return Effect(value, low, high, p, detectable, "mcnemar", items)


def _bootstrap(differences: NDArray[np.float64], tests: int) -> Effect:
    items, value = len(differences), float(differences.mean())
    if items < 2:
        return Effect(value, math.nan, math.nan, 1.0, math.nan, "bootstrap", items)
    stderr = float(differences.std(ddof=1)) / math.sqrt(items)
    if _is_rounding(stderr, float(np.abs(differences).max())):
        # Every item changed by the same: the test of signs.
        p = 1.0 if _is_rounding(abs(value), 1.0) else 2.0 ** (1 - items)
        return Effect(value, value, value, p, 0.0, "bootstrap", items)
    random = np.random.default_rng(_SEED)
    rows = max(1, _CHUNK // items)
    parts = []
    for start in range(0, RESAMPLES, rows):
        drawn = differences[random.integers(0, items, (min(rows, RESAMPLES - start), items))]
        errors = drawn.std(axis=1, ddof=1) / math.sqrt(items)
        parts.append(np.abs(drawn.mean(axis=1) - value) / np.maximum(errors, np.finfo(float).tiny))
    ratios = np.concatenate(parts)
    p = (1 + int((ratios >= abs(value) / stderr).sum())) / (RESAMPLES + 1)
    half = float(np.quantile(ratios, 1 - ALPHA)) * stderr
    return Effect(value, value - half, value + half, p, _detectable(stderr, tests), "bootstrap", items)


def unpaired(first: float, first_stderr: float, second: float, second_stderr: float, tests: int = 1) -> Effect:
    """Compares two scores by their standard errors, as if each had items of its own: finds less than `paired`."""
    value, stderr = second - first, math.hypot(first_stderr, second_stderr)
    if not stderr > 0:
        return Effect(value, math.nan, math.nan, 1.0, math.nan, "unpaired")
    half = _normal(1 - ALPHA / 2) * stderr
    p = math.erfc(abs(value) / stderr / math.sqrt(2))
    return Effect(value, value - half, value + half, p, _detectable(stderr, tests), "unpaired")


def welch(first: Sequence[float], second: Sequence[float], tests: int = 1) -> Effect:
    """Compares the means of two groups of seeds; with fewer than two in either, the noise is not known."""
    value = float(np.mean(second) - np.mean(first))
    if min(len(first), len(second)) < 2:
        return Effect(value, math.nan, math.nan, 1.0, math.nan, "welch")
    parts = [float(np.var(values, ddof=1)) / len(values) for values in (first, second)]
    stderr = math.sqrt(sum(parts))
    if _is_rounding(stderr, float(max(np.abs(first).max(), np.abs(second).max()))):
        # Seeds that change nothing show no noise.
        return Effect(value, math.nan, math.nan, 1.0, math.nan, "welch")
    freedom = stderr**4 / sum(part**2 / (len(v) - 1) for part, v in zip(parts, (first, second), strict=True))
    p = min(1.0, 2 * float(special.stdtr(freedom, -abs(value) / stderr)))
    half = float(special.stdtrit(freedom, 1 - ALPHA / 2)) * stderr
    needed = _found_by_welch(len(first), len(second), tests) * stderr
    return Effect(value, value - half, value + half, p, needed, "welch")


@lru_cache(maxsize=1024)
def _found_by_welch(first: int, second: int, tests: int) -> float:
    """The true difference that Welch's test finds with probability `POWER`, in standard errors; groups of one variance.

    Simulated, since the degrees of freedom are estimated: with three seeds each, formulas for known ones promise 80 %
    where 50 to 70 % are found. Of many values in each group, such as texts, the normal distribution tells it.
    """
    if min(first, second) > _MANY:
        return _detectable(1.0, tests)
    random = np.random.default_rng(_SEED)
    a, b = (random.standard_normal((_SIMULATED, size)) for size in (first, second))
    parts = [values.var(axis=1, ddof=1) / values.shape[1] for values in (a, b)]
    total = parts[0] + parts[1]
    freedom = total**2 / (parts[0] ** 2 / (first - 1) + parts[1] ** 2 / (second - 1))
    limit = special.stdtrit(freedom, 1 - ALPHA / 2 / tests) * np.sqrt(total)
    # A shift is found where it lifts the difference above the limit.
    needed = np.quantile(limit - (b.mean(axis=1) - a.mean(axis=1)), POWER)
    return float(needed) / math.sqrt(1 / first + 1 / second)


def _detectable(stderr: float, tests: int) -> float:
    return (_normal(1 - ALPHA / 2 / tests) + _normal(POWER)) * stderr


def _is_rounding(error: float, size: float) -> bool:
    """Whether an error is only that of computing with numbers of this size."""
    return error <= _ROUNDING * size


def _normal(probability: float) -> float:
    return NormalDist().inv_cdf(probability)
