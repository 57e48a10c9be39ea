"""Which corpus each sample of a blend comes from: a Weyl sequence cut at the cumulated weights.

Part of `treering-1`, used by `treering.data.order.treering1`. Sample g has the point

    x(g) = (g * MULTIPLIER + b) mod 2**64

and belongs to the component whose interval [t(c), t(c+1)) holds x(g), where t(c) = floor(2**64 * W(c)) and W(c) is the
exact sum of the weights of the components declared before c. MULTIPLIER is odd and near 2**64 / golden ratio, the
multiplier whose multiples are spread most evenly, so the realised count of a component stays within a few samples of
weight * g. How many of the first g points are in an interval is a difference of two sums of floors, which Euclid's
algorithm evaluates in O(log 2**64) steps: no table, no build, any g.

`b` is the first 8 bytes, little endian, of sha256 of the ASCII text `treering-1/weyl/<seed in decimal>`.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from treering.errors import UserError

MODULUS = 1 << 64
MULTIPLIER = 0x9E3779B97F4A7C15
MAX_SAMPLES = 1 << 63
"""Sample numbers stay below 2**63, so that they fit a signed 64-bit column everywhere."""

_DECIMAL = re.compile(r"\+?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_WINDOW = 1 << 12
# How far from weight * g the count of the first g samples nearly always stays.
_SAMPLES_AROUND = 6
_CHUNK = 1 << 18
# A scalar select costs about as much as enumerating this many points.
_POINTS_PER_SELECT = 1 << 13


def floor_sum(n: int, m: int, a: int, b: int) -> int:
    """Sum of floor((a * i + b) / m) over i in [0, n), for n, a, b >= 0 and m >= 1, in O(log m).

    Source: Graham, Knuth, Patashnik, Concrete Mathematics, section 3.5; the loop is that of the AtCoder Library.
    """
    total = 0
    while n > 0:
        if a >= m:
            total += n * (n - 1) // 2 * (a // m)
            a %= m
        if b >= m:
            total += n * (b // m)
            b %= m
        top = a * n + b
        if top < m:
            break
        n, b, m, a = top // m, top % m, a, m
    return total


def parse_weights(names: Sequence[str], weights: Sequence[str]) -> tuple[Fraction, ...]:
    """The exact weights of a blend.

    Raises:
        UserError: a weight is not a decimal number above 0, or the weights do not sum to exactly 1.
    """
    parsed = []
    for name, weight in zip(names, weights, strict=True):
        if not _DECIMAL.fullmatch(weight) or Fraction(weight) == 0:
            raise UserError(
                f"blend: the weight of corpus {name!r} is {weight!r}, expected a decimal number above 0 such as "
                f"'0.25'; correct it under `blend`, or remove the corpus"
            )
        parsed.append(Fraction(weight))
    total = sum(parsed, Fraction(0))
    if total != 1:
        raise UserError(
            f"blend: the {len(parsed)} weights sum to {_decimal(total)}, expected exactly 1; "
            f"they differ by {_decimal(1 - total)}, correct them under `blend`"
        )
    return tuple(parsed)


def _decimal(value: Fraction) -> str:
    """A fraction whose denominator is a power of ten (a sum of decimals), written without rounding."""
    digits = 0
    while (value * 10**digits).denominator != 1:
        digits += 1
    sign, whole = "-" if value < 0 else "", str(abs(value.numerator) * 10**digits // value.denominator)
    whole = whole.zfill(digits + 1)
    return f"{sign}{whole[:-digits]}.{whole[-digits:]}" if digits else f"{sign}{whole}"


@dataclass(frozen=True, slots=True)
class Interleave:
    """The component of every sample of a blend.

    Attributes:
        thresholds: [num_components + 1], 0 first and 2**64 last; component c owns [thresholds[c], thresholds[c + 1]).
        offset: b, the point of sample 0.
        weights: exact, in declared order.
    """

    thresholds: tuple[int, ...]
    offset: int
    weights: tuple[Fraction, ...]

    @classmethod
    def of(cls, seed: int, weights: Sequence[Fraction]) -> "Interleave":
        """Cuts the circle by `weights`, which sum to exactly 1.

        Raises:
            UserError: a weight is so small (below 2**-64) that no sample could ever fall to it.
        """
        cumulated, thresholds = Fraction(0), [0]
        for position, weight in enumerate(weights):
            cumulated += weight
            thresholds.append(cumulated.numerator * MODULUS // cumulated.denominator)
            if thresholds[-1] == thresholds[-2]:
                raise UserError(
                    f"blend: the weight of component {position} is {float(weight):g}, expected at least 2**-64, since "
                    f"no sample would ever be read from it; remove the corpus from `blend`"
                )
        state = hashlib.sha256(f"treering-1/weyl/{seed}".encode("ascii")).digest()
        return cls(tuple(thresholds), int.from_bytes(state[:8], "little"), tuple(weights))

    def component(self, g: int) -> int:
        """The component of sample g."""
        return int(self.components(g, g + 1)[0])

    def components(self, lo: int, hi: int) -> NDArray[np.int64]:
        """The components of samples [lo, hi), shape [hi - lo]."""
        points = np.arange(lo, hi, dtype=np.uint64)
        points *= np.uint64(MULTIPLIER)
        points += np.uint64(self.offset)
        cuts = np.array(self.thresholds[1:-1], dtype=np.uint64)
        return np.searchsorted(cuts, points, side="right").astype(np.int64, copy=False)

    def _floors(self, threshold: int, g: int) -> int:
        return floor_sum(g, MODULUS, MULTIPLIER, self.offset + MODULUS - threshold)

    def count(self, component: int, g: int) -> int:
        """How many of the samples [0, g) come from `component`.

        (y mod m < t) equals floor(y / m) - floor((y - t) / m), so the count below a threshold is a difference of two
        floor sums, and the first of them cancels between the two ends of the interval.
        """
        return self._floors(self.thresholds[component], g) - self._floors(self.thresholds[component + 1], g)

    def counts(self, g: int) -> tuple[int, ...]:
        """`count` of every component, in declared order; they sum to g."""
        floors = [self._floors(threshold, g) for threshold in self.thresholds]
        return tuple(below - above for below, above in pairwise(floors))

    def select(self, component: int, k: int) -> int:
        """The sample number of the k-th sample (from 0) of a component, the g with k of its samples before it.

        Estimates g from the weight and enumerates a short window around it. Nearly always this window holds the sample,
        since counts stay within a few samples of weight * g. Otherwise it widens the window until the counts at its
        ends enclose k, halves it by counts until it is short, and enumerates the rest.

        Raises:
            UserError: that sample is at or beyond 2**63.
        """
        weight = self.weights[component]
        guess = min(k * weight.denominator // weight.numerator, MAX_SAMPLES)
        reach = _SAMPLES_AROUND * weight.denominator // weight.numerator + _SAMPLES_AROUND
        if reach <= _WINDOW:
            lo, hi = max(guess - reach, 0), min(guess + reach, MAX_SAMPLES)
            before = self.count(component, lo)
            hits = np.flatnonzero(self.components(lo, hi) == component)
            if before <= k < before + len(hits):
                return lo + int(hits[k - before])
        lo, hi = self._enclose(component, k)
        while hi - lo > _WINDOW:
            middle = (lo + hi) // 2
            lo, hi = (middle, hi) if self.count(component, middle) <= k else (lo, middle)
        hits = np.flatnonzero(self.components(lo, hi) == component)
        return lo + int(hits[k - self.count(component, lo)])

    def _enclose(self, component: int, k: int) -> tuple[int, int]:
        """A window [lo, hi) with count(lo) <= k < count(hi).

        Raises:
            UserError: the k-th sample is at or beyond 2**63.
        """
        weight = self.weights[component]
        guess = min(k * weight.denominator // weight.numerator, MAX_SAMPLES)
        reach = 8 * weight.denominator // weight.numerator + 8
        lo = hi = guess
        while lo > 0 and self.count(component, lo) > k:
            lo, reach = max(lo - reach, 0), reach * 2
        while self.count(component, hi) <= k:
            if hi >= MAX_SAMPLES:
                raise UserError(
                    f"data order: sample {k} of component {component} is beyond sample 2**63, the last that an order "
                    f"can number; ask for an earlier one"
                )
            hi, reach = min(hi + reach, MAX_SAMPLES), reach * 2
        return lo, hi

    def selects(self, component: int, ks: NDArray[np.int64]) -> NDArray[np.int64]:
        """`select` of every k, shape as `ks`, which is sorted ascending."""
        if len(ks) == 0:
            return np.empty(0, dtype=np.int64)
        if float(ks[-1] - ks[0]) > _POINTS_PER_SELECT * len(ks) * float(self.weights[component]):
            return np.array([self.select(component, int(k)) for k in ks], dtype=np.int64)
        first, last = self.select(component, int(ks[0])), self.select(component, int(ks[-1]))
        found, done, seen = np.empty(len(ks), dtype=np.int64), 0, int(ks[0])
        for lo in range(first, last + 1, _CHUNK):
            hits = np.flatnonzero(self.components(lo, min(lo + _CHUNK, last + 1)) == component)
            until = int(np.searchsorted(ks, seen + len(hits), side="left"))
            found[done:until] = lo + hits[ks[done:until] - seen]
            done, seen = until, seen + len(hits)
        return found
