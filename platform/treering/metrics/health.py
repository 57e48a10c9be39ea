"""The rules of health beside the spike rule: `early_blowup`, `too_good`, `flat`, `divergence`.

Each rule is one class: its docstring has the formula, its constants the windows and thresholds with their reasons.
`experiments/benchmarks/health_rules.py` measures false alarms and delays on real curves; the README beside it has the
figures. All four judge the loss; `flat` judges the gradient norm as well. Each rule fires once where its condition
begins to hold, and again only after the condition has ended.

Logarithms, because a loss varies by factors. The noise of a curve is measured by its differences from step to step: a
steady fall then does not count as noise.
"""

import math
import statistics
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final

from treering.metrics.alarms import DIVERGENCE, EARLY_BLOWUP, FLAT, LOSS, MAD_TO_SIGMA, TOO_GOOD, Alarm


def noise(logs: Sequence[float]) -> float:
    """Robust standard deviation of a curve around its own course: 1.4826 · median |x_t - x_(t-1)| / √2."""
    if len(logs) < 2:
        return 0.0
    steps = [abs(after - before) for before, after in zip(logs, list(logs)[1:], strict=False)]
    return MAD_TO_SIGMA * statistics.median(steps) / math.sqrt(2)


class EarlyBlowup:
    """`early_blowup`: x_t > median of the last 8 calm values · max(2, exp(6 · noise)), in the first steps of a run.

    The spike rule needs 32 values; until then this rule judges, from the third value on. A loss that doubles in these
    steps is neither warm-up nor noise: healthy runs fall from the first step (the largest rise above that median in the
    first 32 steps of the curves that were measured is a factor of 1.3). A value that is flagged is not calm and
    never enters the background of the spike rule. After 32 flagged values in a row the new level is taken for calm.

    Source: the factor is ours. A real case: bigscience's gpt2-meg-ds-3d (ds-off) of 2021, 12.4, then 44 at step 3.
    """

    RECENT: Final = 8
    FACTOR: Final = 2.0
    SIGMAS: Final = 6.0
    LEAST: Final = 2
    TAKE_OVER: Final = 32

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=self.RECENT)
        self._flagged: list[float] = []

    def update(self, step: int, value: float) -> tuple[bool, Alarm | None]:
        """Takes the next value, positive; whether it is calm, and the alarm if it is the first one that is not."""
        log = math.log(value)
        if len(self._recent) >= self.LEAST:
            median = statistics.median(self._recent)
            limit = max(math.log(self.FACTOR), self.SIGMAS * noise(self._recent))
            if log - median > limit:
                self._flagged.append(log)
                first = len(self._flagged) == 1
                if len(self._flagged) >= self.TAKE_OVER:
                    self._recent.extend(self._flagged)
                    self._flagged.clear()
                alarm = Alarm(step, LOSS, value, None, math.exp(median), len(self._recent), EARLY_BLOWUP, step)
                return False, alarm if first else None
        self._flagged.clear()
        self._recent.append(log)
        return True, None


class TooGood:
    """`too_good`: the loss is 0 (below 1e-6), or 8 values in a row are below half of what the values before predict.

    Predicted, in logarithms, is the lowest mean of 32 values in a row so far, plus 20 steps (from the middle of the 32
    values before to the middle of the 8) of the straight line through these 32; a rising line counts as level. So a
    steady fall, as of a small model that learns its data by heart, is not an alarm however far it goes. Neither is
    the return from a blow-up. The 8 values must be below the prediction by max(log 2, 6 · noise). Broken labels, or a
    leak of the answer into the input, do that within a few steps.

    Source: the thresholds are ours. A real case: allenai/OLMo issue 692, a loss that falls to 0 and stays.
    """

    ZERO: Final = 1e-6
    LOW: Final = 8
    BEFORE: Final = 32
    FACTOR: Final = 2.0
    SIGMAS: Final = 6.0

    _AHEAD: Final = (BEFORE + LOW) / 2

    def __init__(self) -> None:
        self._before: deque[tuple[int, float]] = deque()
        self._sum = 0.0
        self._low: deque[tuple[int, float]] = deque()
        self._zeros = False
        self._fell_from: float | None = None
        self._lowest = math.inf

    def update(self, step: int, value: float) -> Alarm | None:
        """Takes the next value, finite."""
        if value <= self.ZERO:
            first, self._zeros = not self._zeros, True
            level = math.exp(self._sum / len(self._before)) if self._before else math.nan
            return Alarm(step, LOSS, value, None, level, len(self._before), TOO_GOOD, step) if first else None
        self._zeros = False
        log = math.log(value)
        if self._fell_from is not None:
            if log > self._fell_from - math.log(self.FACTOR):
                self._fell_from = None  # back where it was; what follows is judged anew
                self._before.clear()
                self._low.clear()
                self._sum = 0.0
            else:
                return None
        self._low.append((step, log))
        if len(self._low) > self.LOW:
            old = self._low.popleft()
            self._before.append(old)
            self._sum += old[1]
            if len(self._before) > self.BEFORE:
                self._sum -= self._before.popleft()[1]
        if len(self._before) < self.BEFORE:
            return None
        level = self._sum / self.BEFORE
        self._lowest = min(self._lowest, level)
        if log > self._lowest - math.log(self.FACTOR):
            return None
        logs = [each for _, each in self._before]
        slope = statistics.linear_regression(range(self.BEFORE), logs).slope
        predicted = self._lowest + min(0.0, slope) * self._AHEAD
        limit = predicted - max(math.log(self.FACTOR), self.SIGMAS * noise(logs))
        if max(each for _, each in self._low) >= limit:
            return None
        self._fell_from = predicted
        return Alarm(step, LOSS, value, None, math.exp(predicted), self.BEFORE, TOO_GOOD, self._low[0][0])


class Flat:
    """`flat`: 16 values in a row are equal to the last bit; or the loss has not left its start after 200 steps.

    Two batches never give the same loss to the last bit, so equal values mean that nothing is computed. The loss has
    not left its start while the median of the last 64 values is not below 0.95 · start. The start is ln(V), the loss of
    a uniform guess, where the vocabulary is known; else the median of the first 16 values, and only where that is 5
    nats or more: a loss that begins lower is that of a trained model, which may stay where it is. Counted are steps
    that moved the weights and whose learning rate was not raised: a warm-up may take thousands of steps. Once the loss
    has left its start this part of the rule is done, so a converged run cannot set it off.

    Source: the thresholds are ours; the uniform guess is the usual check of an initialization.
    """

    EQUAL: Final = 16
    START: Final = 16
    WINDOW: Final = 64
    AFTER: Final = 200
    SHARE: Final = 0.95
    UNTRAINED: Final = 5.0

    def __init__(self, metric: str, uniform: float | None = None) -> None:
        self._metric = metric
        self._uniform = uniform
        self._equal: tuple[float, int, int] | None = None  # value, first step, how many
        self._values: deque[float] = deque(maxlen=self.WINDOW)
        self._first: list[float] = []
        self._begin = 0
        self._counted = 0
        self._rate = -math.inf
        self._done = metric != LOSS

    def update(self, step: int, value: float, *, applied: bool = True, rate: float | None = None) -> Alarm | None:
        """Takes the next value, finite.

        Args:
            step: of the value.
            value: the value.
            applied: whether the weights moved.
            rate: the learning rate; None where it is not known.
        """
        if not applied:
            return None
        return self._repeats(step, value) or self._stays(step, value, rate)

    def _repeats(self, step: int, value: float) -> Alarm | None:
        if self._equal is None or self._equal[0] != value:
            self._equal = (value, step, 1)
            return None
        _, since, count = self._equal
        self._equal = (value, since, count + 1)
        if count + 1 != self.EQUAL:
            return None
        return Alarm(step, self._metric, value, None, value, self.EQUAL, FLAT, since)

    def _stays(self, step: int, value: float, rate: float | None) -> Alarm | None:
        if self._done:
            return None
        self._begin = self._begin or step
        self._values.append(value)
        if len(self._first) < self.START:
            self._first.append(value)
        if rate is not None:
            raised, self._rate = rate > self._rate, rate
            self._counted = 0 if raised else self._counted + 1
        else:
            self._counted += 1
        if len(self._values) < self.WINDOW:
            return None
        start = self._uniform if self._uniform is not None else statistics.median(self._first)
        if self._uniform is None and start < self.UNTRAINED:
            self._done = True
            return None
        if self._counted < self.AFTER and step % 16:
            return None  # the median costs more than all else; until it can fire, now and then is enough
        level = statistics.median(self._values)
        if level < self.SHARE * start:
            self._done = True
        elif self._counted >= self.AFTER:
            self._done = True
            return Alarm(step, LOSS, level, None, start, self.WINDOW, FLAT, self._begin)
        return None


class Divergence:
    """`divergence`: m_t > lowest m · 1.15 · exp(8 · s) and m_t - lowest m > 0.1 nats, m the median of 64 values.

    s is the standard error of that median: 1.2533 · noise / √64; eight of them are what the lowest and the highest of
    thousands of medians differ by without any rise. A median of 64 values is not moved by spikes, and a rise by 15 %
    over the best level so far is not a batch of hard documents. The 0.1 nats keep out small models whose loss is near
    0, where factors mean nothing. Ends where m falls below lowest m · 1.1.

    A slow rise is found as well as a sudden one, later: a loss that grows by 0.08 % a step after about 220 steps.

    It fires too where the median of the last 16 values is above ln(V) · 1.15, the loss of a uniform guess, and above
    1.15 times the lowest value so far: the model got worse than no model. The level cannot find that in the first
    steps, since a run that goes wrong there has no lower median. Ends below ln(V) · 1.1. A start above ln(V), as large
    weights have it, is no rise.

    Args:
        uniform: ln(V); None where the vocabulary is not known.

    Source: 1.2533 is the standard error of a median over that of a mean (normal distribution); the thresholds are ours.
    """

    WINDOW: Final = 64
    FACTOR: Final = 1.15
    OVER: Final = 1.1
    SIGMAS: Final = 8.0
    NATS: Final = 0.1
    GUESS: Final = 16

    def __init__(self, uniform: float | None = None) -> None:
        self._uniform = uniform
        self._lowest_value = math.inf
        self._above_guess = False
        self._values: deque[float] = deque()
        self._sorted: list[float] = []
        self._moves: deque[float] = deque()
        self._sorted_moves: list[float] = []
        self._lowest = math.inf
        self._lowest_at = 0
        self._diverged = False

    def update(self, step: int, log: float) -> Alarm | None:
        """Takes the logarithm of the next value."""
        if self._values:
            _slide(self._moves, self._sorted_moves, abs(log - self._values[-1]), self.WINDOW - 1)
        _slide(self._values, self._sorted, log, self.WINDOW)
        return self._judge_level(step) or self._judge_guess(step, log)

    def _judge_guess(self, step: int, log: float) -> Alarm | None:
        if self._uniform is None:
            return None
        self._lowest_value = min(self._lowest_value, log)
        guess = math.log(self._uniform)
        if len(self._values) < self.GUESS or (not self._above_guess and log - guess <= math.log(self.FACTOR)):
            return None  # the median costs more than all else
        level = statistics.median(islice(reversed(self._values), self.GUESS))
        if self._above_guess:
            self._above_guess = level - guess > math.log(self.OVER)
            return None
        if level - max(guess, self._lowest_value) <= math.log(self.FACTOR):
            return None
        self._above_guess = True
        if self._diverged:
            return None
        return Alarm(step, LOSS, math.exp(level), None, self._uniform, self.GUESS, DIVERGENCE, step)

    def _judge_level(self, step: int) -> Alarm | None:
        if len(self._values) < self.WINDOW:
            return None
        level = (self._sorted[self.WINDOW // 2 - 1] + self._sorted[self.WINDOW // 2]) / 2
        if level < self._lowest:
            self._lowest, self._lowest_at = level, step
        rise = level - self._lowest
        if self._diverged:
            self._diverged = rise > math.log(self.OVER)
            return None
        if rise <= math.log(self.FACTOR):
            return None
        error = 1.2533 * MAD_TO_SIGMA * self._sorted_moves[self.WINDOW // 2 - 1] / math.sqrt(2 * self.WINDOW)
        now, lowest = math.exp(level), math.exp(self._lowest)
        if rise <= math.log(self.FACTOR) + self.SIGMAS * error or now - lowest <= self.NATS:
            return None
        self._diverged = True
        return Alarm(step, LOSS, now, None, lowest, self.WINDOW, DIVERGENCE, self._lowest_at)


def _slide(window: deque[float], ordered: list[float], value: float, size: int) -> None:
    """Puts a value into a window and its sorted list, and drops the oldest beyond `size`."""
    window.append(value)
    insort(ordered, value)
    if len(window) > size:
        del ordered[bisect_left(ordered, window.popleft())]
