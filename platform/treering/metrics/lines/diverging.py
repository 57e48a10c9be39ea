"""When a running run is diverging, and since which step: `MEANING` has the definition."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from treering.metrics.alarms import DIVERGENCE, EARLY_BLOWUP, GRAD_NORM, LOSS, NON_FINITE, SPIKE, Alarm
from treering.metrics.health import Divergence as LevelRule
from treering.metrics.spikes import JudgedRing

RECENT: Final = 16
OUTSIDE: Final = 8
LEVEL_STEPS: Final = LevelRule.WINDOW
OVER: Final = LevelRule.OVER

MEANING: Final = (
    "A running run is diverging while one of these holds; of several, the one that began first is named.",
    "1. The newest step that moved the weights has a loss that is not finite.",
    f"2. The gradient norm or the loss is outside its band at {OUTSIDE} or more of the newest {RECENT} steps, by the "
    "rules spike and non_finite. The gradient norm leaves its band before the loss does. A spike is over before that.",
    f"3. The median loss of the newest {LEVEL_STEPS} steps is still more than {OVER} times the level that an alarm "
    "divergence or early_blowup compared it with.",
)

NAMES: Final = {LOSS: "loss", GRAD_NORM: "gradient norm"}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong with a run, in a sentence.

    Attributes:
        step: where it began, or where to look; None where no step can be named.
        text: the sentence.
    """

    step: int | None
    text: str


def diverging(newest: Sequence[JudgedRing], alarms: Sequence[Alarm]) -> Finding | None:
    """Why the rings of a run say that it is diverging; None where they do not.

    Args:
        newest: the newest rings of the path, oldest first, at least 64 of them where there are as many.
        alarms: on the path, in the order of their steps.
    """
    found = [
        each
        for each in (
            _not_finite(newest),
            _outside(newest, alarms, GRAD_NORM),
            _outside(newest, alarms, LOSS),
            _risen(newest, alarms),
        )
        if each is not None
    ]
    return min(found, key=lambda each: each.step or 0) if found else None


def _not_finite(newest: Sequence[JudgedRing]) -> Finding | None:
    applied = [ring for ring in newest if ring.applied]
    if not applied or math.isfinite(applied[-1].loss):
        return None
    first = applied[-1]
    for ring in reversed(applied):
        if math.isfinite(ring.loss):
            break
        first = ring
    return Finding(first.step, f"the loss is not finite since step {first.step:,}, and the weights moved")


def _outside(newest: Sequence[JudgedRing], alarms: Sequence[Alarm], metric: str) -> Finding | None:
    if not newest:
        return None
    begin = newest[-1].step - RECENT
    own = [alarm for alarm in alarms if alarm.metric == metric and alarm.rule in {SPIKE, NON_FINITE}]
    recent = [alarm for alarm in own if alarm.step > begin]
    if len(recent) < OUTSIDE:
        return None
    first = own[-1]
    for before, after in pairwise(reversed(own)):
        if before.step - after.step > RECENT:
            break
        first = after
    name = NAMES[metric]
    text = f"{name} left its band at step {first.step:,} ({first.value:.3g}{usual_text(first)})"
    text += f"; {len(recent)} of the newest {RECENT} steps are outside"
    others = {alarm.metric for alarm in alarms if alarm.step > begin}
    if metric == GRAD_NORM and LOSS not in others:
        text += "; the loss has not left its own yet"
    return Finding(first.step, text)


def usual_text(alarm: Alarm) -> str:
    """What an alarm's value is compared with, in words; empty where there is nothing."""
    return "" if math.isnan(alarm.background) else f", usually {alarm.background:.3g}"


def _risen(newest: Sequence[JudgedRing], alarms: Sequence[Alarm]) -> Finding | None:
    alarm = next((each for each in reversed(alarms) if each.rule in {DIVERGENCE, EARLY_BLOWUP}), None)
    if alarm is None or math.isnan(alarm.background):
        return None
    begin = alarm.step if alarm.rule == EARLY_BLOWUP else 0
    losses = [ring.loss for ring in newest[-LEVEL_STEPS:] if ring.step >= begin and math.isfinite(ring.loss)]
    if not losses or (level := statistics.median(losses)) <= OVER * alarm.background:
        return None
    above = 100 * (level / alarm.background - 1)
    lowest = f" of step {alarm.since:,}" if alarm.since < alarm.step else ""
    lowest = ", a uniform guess" if alarm.rule == DIVERGENCE and not lowest else lowest
    text = f"loss rose to a level of {level:.3g}, {above:,.0f} % above {alarm.background:.3g}{lowest}"
    return Finding(alarm.step, f"{text}; alarm {alarm.rule} at step {alarm.step:,}")
