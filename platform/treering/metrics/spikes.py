"""Alarms of a run: the spike rule, and all rules together over the rings.

Reads loss and gradient norm of the rings, step by step while a run is alive or at once afterwards; the results are
equal. MLflow, the run page, the report and `treering show` name what this finds. `metrics.health` has the rules
beside the spike rule.

A spike is a point whose logarithm leaves the band of the recent past.

The z-score is robust: (log x - median) / (1.4826 · MAD) over the last `window` points *that were not flagged*, so that
a spike of many steps cannot raise its own threshold. Logarithms, because loss and gradient norm vary by factors. Only
upward: a falling loss is not a spike.
"""

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from treering.metrics.alarms import GRAD_NORM, LOSS, MAD_TO_SIGMA, NON_FINITE, SPIKE, Alarm
from treering.metrics.health import Divergence, EarlyBlowup, Flat, TooGood


@dataclass(frozen=True, slots=True)
class SpikeRule:
    """When a point counts as a spike.

    Attributes:
        threshold: z-score above which a point is flagged.
        window: how many unflagged points make the background.
        min_points: points of background before anything finite is judged.
        sigma_floors: smallest spread (in log units) by metric. On a constant background the MAD is 0 and any rounding
            would be infinitely far out; with threshold 6 the floors demand +6 % of a loss, +82 % of a gradient norm.
    """

    threshold: float = 6.0
    window: int = 256
    min_points: int = 32
    sigma_floors: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({LOSS: 0.01, GRAD_NORM: 0.1}))

    def sigma_floor(self, metric: str) -> float:
        """Smallest spread assumed for `metric`; a metric without its own takes the loss's."""
        return self.sigma_floors.get(metric, 0.01)


class SpikeDetector:
    """Judges one metric, one step after another.

    A level that holds for a whole window of flagged points is a new background, not a spike that never ends: the
    detector then takes it over. Values of zero or below have no logarithm; they are neither judged nor background.
    """

    def __init__(self, metric: str, rule: SpikeRule | None = None) -> None:
        self._metric = metric
        self._rule = rule or SpikeRule()
        self._floor = self._rule.sigma_floor(metric)
        self._background: deque[float] = deque()
        self._sorted: list[float] = []
        self._flagged: list[float] = []

    @property
    def judges(self) -> bool:
        """Whether there is background enough to judge a point."""
        return len(self._background) >= self._rule.min_points

    def update(self, step: int, value: float) -> Alarm | None:
        """Takes the next point and returns it as a spike if it is one."""
        if not math.isfinite(value):
            return self._alarm(step, value, math.inf, NON_FINITE)
        if value <= 0:
            return None
        log = math.log(value)
        if self.judges:
            z = self._z(log)
            if z > self._rule.threshold:
                spike = self._alarm(step, value, z, SPIKE)
                self._flagged.append(log)
                if len(self._flagged) >= self._rule.window:
                    self._take_over()
                return spike
        self._flagged.clear()
        self._accept(log)
        return None

    def _z(self, log: float) -> float:
        median = _median(self._sorted)
        mad = _median(sorted([abs(value - median) for value in self._sorted]))
        return (log - median) / max(MAD_TO_SIGMA * mad, self._floor)

    def _alarm(self, step: int, value: float, z: float, rule: str) -> Alarm:
        background = math.exp(_median(self._sorted)) if self._sorted else math.nan
        return Alarm(step, self._metric, value, z, background, len(self._sorted), rule, step)

    def _accept(self, log: float) -> None:
        self._background.append(log)
        insort(self._sorted, log)
        if len(self._background) > self._rule.window:
            del self._sorted[bisect_left(self._sorted, self._background.popleft())]

    def _take_over(self) -> None:
        self._background = deque(self._flagged)
        self._sorted = sorted(self._flagged)
        self._flagged.clear()


def _median(ordered: Sequence[float]) -> float:
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


class SeriesJudge:
    """Judges one metric by every rule that applies to it, one step after another.

    Args:
        metric: `train/loss` or `train/grad_norm`.
        rule: of spikes.
        uniform: the loss of a uniform guess, ln(V); None where the vocabulary is not known.
    """

    def __init__(self, metric: str, rule: SpikeRule | None = None, uniform: float | None = None) -> None:
        self._spikes = SpikeDetector(metric, rule)
        self._flat = Flat(metric, uniform)
        self._is_loss = metric == LOSS
        self._early, self._too_good, self._divergence = EarlyBlowup(), TooGood(), Divergence(uniform)

    def update(
        self, step: int, value: float, *, applied: bool = True, learning_rate: float | None = None
    ) -> list[Alarm]:
        """Takes the next value; what the rules find in it, the spike rule first."""
        if not math.isfinite(value):
            found = self._spikes.update(step, value)
            return [found] if found else []
        alarms: list[Alarm | None] = []
        log = math.log(value) if value > 0 else None
        if not self._is_loss:
            alarms.append(self._spikes.update(step, value))
        else:
            calm = True
            if log is not None and not self._spikes.judges:
                calm, early = self._early.update(step, value)
                alarms.append(early)
            if calm:
                alarms += [self._spikes.update(step, value), self._too_good.update(step, value)]
            if log is not None:
                alarms.append(self._divergence.update(step, log))
        alarms.append(self._flat.update(step, value, applied=applied, rate=learning_rate))
        return [alarm for alarm in alarms if alarm is not None]


def find_spikes(
    steps: Sequence[int], values: Sequence[float], metric: str, rule: SpikeRule | None = None
) -> list[Alarm]:
    """Every alarm of a whole series, of the spike rule and of all others that apply to the metric."""
    judge = SeriesJudge(metric, rule)
    return [alarm for step, value in zip(steps, values, strict=True) for alarm in judge.update(int(step), float(value))]


class JudgedRing(Protocol):
    """What of a ring is judged."""

    @property
    def step(self) -> int:
        """Optimizer step."""

    @property
    def applied(self) -> bool:
        """Whether the optimizer moved."""

    @property
    def loss(self) -> float:
        """Mean loss in nats."""

    @property
    def grad_norm(self) -> float | None:
        """Global gradient norm before clipping."""

    @property
    def learning_rate(self) -> float:
        """What the optimizer used."""


class RingAlarms:
    """Judges loss and gradient norm of rings as they arrive on one path.

    The gradient norm of a step that was not applied is left out: an fp16 overflow is the loss scale at work, and its
    loss is still judged.

    Args:
        rule: of spikes.
        uniform: the loss of a uniform guess, ln(V); None where the vocabulary is not known.
    """

    def __init__(self, rule: SpikeRule | None = None, uniform: float | None = None) -> None:
        self._rule, self._uniform = rule, uniform
        self.begin()

    def begin(self) -> None:
        """Forgets all rings: what follows belongs to another run, whose blend and recipe have a level of their own."""
        self._loss = SeriesJudge(LOSS, self._rule, self._uniform)
        self._grad_norm = SeriesJudge(GRAD_NORM, self._rule)

    def update(self, ring: JudgedRing) -> list[Alarm]:
        """Alarms of this ring, the gradient norm's first."""
        found = []
        if ring.applied and ring.grad_norm is not None:
            found += self._grad_norm.update(ring.step, ring.grad_norm)
        found += self._loss.update(ring.step, ring.loss, applied=ring.applied, learning_rate=ring.learning_rate)
        return found
