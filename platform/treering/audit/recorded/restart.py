"""What a restart repeated or skipped: an attempt's samples against the samples of the attempts before.

Two kinds of evidence decide. Where an earlier attempt went beyond the point of return, its abandoned steps show what
the same steps were fed before: equal samples prove that the restart changed nothing. Without such steps only samples
that were fed before can be seen; they are a fault unless the data was repeated in whole epochs before, or the
trainer's own metric `epoch` says that a new epoch began.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from treering.audit.recorded.feed import StepFeed

RestartState = Literal["same samples", "other samples", "no sample repeated", "samples repeated", "unknown"]


_NOT_RESUMED: Final = (
    "the loader did not resume, or a new epoch began with this very step. The metric `epoch` tells these apart."
)


@dataclass(frozen=True, slots=True)
class Restart:
    """What the record shows of one restart.

    Attributes:
        attempt: number of the attempt that resumed.
        after_step: the step that it resumed from, 0 for the beginning.
        state: `same samples`: every abandoned step that was trained again was fed the same samples; `other samples`:
            one was not. Where no abandoned step was trained again, `no sample repeated` or `samples repeated`: whether
            samples of the first step were fed before. `unknown`: the tokens were not reported.
        fault: whether the restart harmed the training.
        compared_steps: abandoned steps that were trained again.
        first_difference: the first of these that was fed other samples; None where there is none.
        repeats_step: an earlier step of the path that was fed the same samples as the attempt's first step.
        repeated_samples: samples of the attempt's steps up to the end of the abandoned ones (without these: of its
            first step) that were fed on the path before the restart and that the abandoned steps were not fed.
        skipped_samples: samples of the abandoned steps that no compared step was fed again.
        text: all of it in words.
    """

    attempt: int
    after_step: int
    state: RestartState
    fault: bool
    compared_steps: int
    first_difference: int | None
    repeats_step: int | None
    repeated_samples: int
    skipped_samples: int
    text: str


def judge_restart(
    attempt: int, after_step: int, before: Sequence[StepFeed], resumed: Sequence[StepFeed], lost: Mapping[int, StepFeed]
) -> Restart:
    """Compares the samples of an attempt that resumed with those before.

    Args:
        attempt: number of the attempt.
        after_step: the step that it resumed from, 0 for the beginning.
        before: of the path up to that step.
        resumed: of the attempt.
        lost: of the abandoned steps after it, by step.
    """
    fed = [feed for feed in resumed if feed.samples]
    if not fed or (before and not any(feed.samples for feed in before)):
        text = f"Attempt {attempt} resumed after step {after_step}; what it was fed is not on record."
        return Restart(attempt, after_step, "unknown", False, 0, None, None, 0, 0, text)
    compared = [(feed, lost[feed.step]) for feed in fed if feed.step in lost]
    if compared:
        return _against_lost(attempt, after_step, before, compared)
    return _against_path(attempt, after_step, before, fed[0])


def _against_lost(
    attempt: int, after_step: int, before: Sequence[StepFeed], compared: Sequence[tuple[StepFeed, StepFeed]]
) -> Restart:
    first, last = compared[0][0].step, compared[-1][0].step
    different = next((now.step for now, then in compared if not now.same_samples(then)), None)
    if different is None:
        text = (
            f"Attempt {attempt} resumed after step {after_step} and was fed the same samples in steps {first} to "
            f"{last} as the attempt before."
        )
        return Restart(attempt, after_step, "same samples", False, len(compared), None, None, 0, 0, text)
    now = Counter(sample for feed, _ in compared for sample in feed.samples)
    then = Counter(sample for _, feed in compared for sample in feed.samples)
    earlier = {sample for feed in before for sample in feed.samples}
    skipped = (then - now).total()
    repeated = sum(count for sample, count in (now - then).items() if sample in earlier)
    at_difference = next(feed for feed, _ in compared if feed.step == different)
    again = _step_with(at_difference, before)
    text = (
        f"Attempt {attempt} resumed after step {after_step}: step {different} was fed other samples than in the "
        "attempt before"
    )
    text += f"; it was fed the samples of step {again} again" if again is not None else ""
    text += f". In steps {first} to {last}, {_samples(repeated)} repeated from before the restart, and "
    text += f"{_samples(skipped)} of the abandoned steps skipped."
    return Restart(attempt, after_step, "other samples", True, len(compared), different, again, repeated, skipped, text)


def _against_path(attempt: int, after_step: int, before: Sequence[StepFeed], first: StepFeed) -> Restart:
    earlier = {sample for feed in before for sample in feed.samples}
    repeated = sum(sample in earlier for sample in first.samples)
    beginning = f"Attempt {attempt} resumed after step {after_step}"
    if not repeated:
        text = f"{beginning}; no sample of its first step {first.step} was fed before. Skipped samples cannot be seen."
        return Restart(attempt, after_step, "no sample repeated", False, 0, None, None, 0, 0, text)
    again = _step_with(first, before)
    expected = _later_epoch(first, before) or _begins_epoch(first, before)
    again_fed = "1 sample" if repeated == 1 else f"{repeated:,} samples"
    text = f"{beginning}: its first step {first.step} was fed {again_fed} again"
    text += f", all those of step {again}" if again is not None else ""
    text += "; that fits the next epoch." if expected else f"; {_NOT_RESUMED}"
    return Restart(attempt, after_step, "samples repeated", not expected, 0, None, again, repeated, 0, text)


def _step_with(feed: StepFeed, before: Sequence[StepFeed]) -> int | None:
    """The first step before that was fed the same samples."""
    return next((each.step for each in before if each.samples and each.same_samples(feed)), None)


def _later_epoch(first: StepFeed, before: Sequence[StepFeed]) -> bool:
    """Whether the path repeated its data in whole epochs, and no sample of this step was fed in the present one.

    In whole epochs every sample was fed as often as any other, or once less: then the present epoch has not reached it.
    """
    counts = Counter(sample for feed in before for sample in feed.samples)
    most, least = max(counts.values()), min(counts.values())
    if most < 2 or most - least > 1:
        return False
    return least == most or all(counts[sample] < most for sample in first.samples)


def _begins_epoch(first: StepFeed, before: Sequence[StepFeed]) -> bool:
    """Whether the trainer's own count says that an epoch ended before this step.

    Trainers report the epoch after a step, so the last step of an epoch reports a whole number.
    """
    last = before[-1].epoch
    if last is None or first.epoch is None:
        return False
    return math.floor(first.epoch) > math.floor(last) or (last > 0 and last == math.floor(last) and first.epoch > last)


def _samples(count: int) -> str:
    return f"{count:,} sample was" if count == 1 else f"{count:,} samples were"
