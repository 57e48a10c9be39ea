"""Loss spikes: points whose logarithm leaves the band of the recent past.

Reads loss and gradient norm of the rings, step by step while a run is alive or at once afterwards; the results are
equal. MLflow, the run page and `treering show` mark what this finds.

The z-score is robust: (log x - median) / (1.4826 · MAD) over the last `window` points *that were not flagged*, so that
a spike of many steps cannot raise its own threshold. Logarithms, because loss and gradient norm vary by factors. Only
upward: a falling loss is no spike.
"""

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

Series = npt.NDArray[np.float64]

MAD_TO_SIGMA: Final = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""

LOSS: Final = "train/loss"
GRAD_NORM: Final = "train/grad_norm"


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


@dataclass(frozen=True, slots=True)
class Spike:
    """One flagged point.

    Attributes:
        step: optimizer step.
        metric: catalogue key, `train/loss` or `train/grad_norm`.
        value: the value itself; may be NaN or infinite.
        z: robust z-score; infinite for a value that is not finite.
        background: median of the background, in the metric's own unit; NaN while there is none.
        num_background: unflagged points that the judgement stands on.
    """

    step: int
    metric: str
    value: float
    z: float
    background: float
    num_background: int

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain JSON values (write it with canonical JSON: z may be infinite)."""
        return asdict(self)


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

    def update(self, step: int, value: float) -> Spike | None:
        """Takes the next point and returns it as a spike if it is one."""
        if not math.isfinite(value):
            return self._spike(step, value, math.inf)
        if value <= 0:
            return None
        log = math.log(value)
        if len(self._background) >= self._rule.min_points:
            z = self._z(log)
            if z > self._rule.threshold:
                spike = self._spike(step, value, z)
                self._flagged.append(log)
                if len(self._flagged) >= self._rule.window:
                    self._take_over()
                return spike
        self._flagged.clear()
        self._accept(log)
        return None

    def update_many(self, steps: Sequence[int], values: Sequence[float]) -> list[Spike]:
        """Takes a stretch of points and returns its spikes, equal to `update` one by one.

        Between two spikes the background is a plain sliding window, so whole stretches of it are judged at once and
        single points only where a stretch may hold a spike.
        """
        series = np.asarray(values, dtype=np.float64)
        spikes: list[Spike] = []
        position = 0
        while position < len(series):
            quiet = self._quiet(series[position : position + 4096])
            if len(quiet):
                for log in quiet[-self._rule.window :]:
                    self._accept(float(log))
                self._flagged.clear()
                position += len(quiet)
                continue
            spike = self.update(steps[position], float(series[position]))
            if spike:
                spikes.append(spike)
            position += 1
        return spikes

    def _quiet(self, series: Series) -> Series:
        """Logarithms of the leading values of `series` that are background.

        Empty while the window is not full, and where the first value is not plainly background.
        """
        if len(self._background) < self._rule.window:
            return series[:0]
        usable = np.isfinite(series) & (series > 0)
        series = series[: len(series) if usable.all() else int(np.argmin(usable))]
        if not len(series):
            return series
        # math.log, not np.log: the two may differ in the last bit, and both ways of judging must agree.
        logs = np.array([math.log(value) for value in series])
        windows = np.lib.stride_tricks.sliding_window_view(
            np.concatenate([self._background, logs[:-1]]), self._rule.window
        )
        medians = np.median(windows, axis=1)
        mads = np.median(np.abs(windows - medians[:, None]), axis=1)
        flagged = (logs - medians) / np.maximum(MAD_TO_SIGMA * mads, self._floor) > self._rule.threshold
        return logs[: int(np.argmax(flagged)) if flagged.any() else len(logs)]

    def _z(self, log: float) -> float:
        values = np.asarray(self._sorted)
        median = float(np.median(values))
        mad = float(np.median(np.abs(values - median)))
        return (log - median) / max(MAD_TO_SIGMA * mad, self._floor)

    def _spike(self, step: int, value: float, z: float) -> Spike:
        background = math.exp(float(np.median(self._sorted))) if self._sorted else math.nan
        return Spike(step, self._metric, value, z, background, len(self._sorted))

    def _accept(self, log: float) -> None:
        self._background.append(log)
        insort(self._sorted, log)
        if len(self._background) > self._rule.window:
            del self._sorted[bisect_left(self._sorted, self._background.popleft())]

    def _take_over(self) -> None:
        self._background = deque(self._flagged)
        self._sorted = sorted(self._flagged)
        self._flagged.clear()


def find_spikes(
    steps: Sequence[int], values: Sequence[float], metric: str, rule: SpikeRule | None = None
) -> list[Spike]:
    """Every spike of a whole series, equal to `SpikeDetector.update` step by step, at a fraction of its time."""
    return SpikeDetector(metric, rule).update_many(steps, values)


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


class RingSpikes:
    """Judges loss and gradient norm of rings as they arrive on one path.

    The gradient norm of a step that was not applied is passed over: an fp16 overflow is the loss scale at work, and
    its loss is still judged.
    """

    def __init__(self, rule: SpikeRule | None = None) -> None:
        self._loss = SpikeDetector(LOSS, rule)
        self._grad_norm = SpikeDetector(GRAD_NORM, rule)

    def update(self, ring: JudgedRing) -> list[Spike]:
        """Spikes of this ring, the gradient norm's first."""
        found = []
        if ring.applied and ring.grad_norm is not None:
            found.append(self._grad_norm.update(ring.step, ring.grad_norm))
        found.append(self._loss.update(ring.step, ring.loss))
        return [spike for spike in found if spike]


def ring_spikes(rings: Iterable[JudgedRing], rule: SpikeRule | None = None) -> list[Spike]:
    """Every spike on a path of rings, in order of steps."""
    detector = RingSpikes(rule)
    return [spike for ring in rings for spike in detector.update(ring)]
