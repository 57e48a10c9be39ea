"""Which samples step t reads, as closed forms over stages of equal batch size.

Steps count from 1. Step t reads the samples [C(t - 1), C(t)), where C(t), `samples_after(t)`, is the number of samples
that t steps have consumed. Where the run skipped samples of the data order, their number is added to both ends. A
question costs a search among the stages, never a walk over the steps. `treering.config.schedule` adds the learning
rate. The audit of Megatron runs takes the batch sizes from the run's launch arguments (`treering.config.megatron`).
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from treering.errors import ConfigError

_SUFFIX = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
_TOKENS = re.compile(r"(\d+(?:\.\d+)?)([KMBT]?)")


@dataclass(frozen=True, slots=True)
class Rampup:
    """Megatron's `--rampup-batch-size START INCREMENT SAMPLES`.

    Attributes:
        start: first global batch size, samples.
        increment: what each increase adds, samples.
        samples: consumed samples over which the increases are spread evenly.
    """

    start: int
    increment: int
    samples: int


@dataclass(frozen=True, slots=True)
class Stage:
    """A span of steps with one global batch size.

    Attributes:
        batch_size: global batch size, samples.
        first_step: the first step (from 1) of this size.
        start_sample: consumed samples before that step.
        num_steps: steps of this size; None for the last stage, which ends with the training.
    """

    batch_size: int
    first_step: int
    start_sample: int
    num_steps: int | None


def parse_tokens(text: str) -> int:
    """Tokens written as `250B`, `1.5M` or `4096` (K, M, B, T are powers of 1000).

    Raises:
        ConfigError: no such number, or no whole number of tokens.
    """
    match = _TOKENS.fullmatch(text)
    tokens = Fraction(match[1]) * _SUFFIX[match[2]] if match else Fraction(-1)
    if tokens < 0 or tokens.denominator != 1:
        raise ConfigError("config", "schedule.batch_steps", repr(text), "a number of tokens such as 250B or 1.5M")
    return int(tokens)


def rampup_thresholds(rampup: Rampup, global_batch_size: int) -> list[tuple[int, int]]:
    """The ramp as (consumed samples from which on, batch size), by Megatron's rule to the last bit.

    Megatron computes `start + int(consumed / (samples / increments)) * increment` in double precision while
    `consumed <= samples`, and the full size afterwards. A threshold is the least whole number for which that very
    expression takes the next value.

    Source: Megatron-LM, megatron/core/num_microbatches_calculator.py, RampupBatchsizeNumMicroBatchesCalculator.

    Raises:
        ConfigError: the ramp does not lead from its start to the global batch size in whole increments.
    """
    for name in ("start", "increment", "samples"):
        if getattr(rampup, name) < 1:
            raise ConfigError("config", f"schedule.rampup.{name}", str(getattr(rampup, name)), "at least 1")
    increments, rest = divmod(global_batch_size - rampup.start, rampup.increment)
    if increments < 1 or rest:
        raise ConfigError(
            "config",
            "schedule.rampup",
            f"start {rampup.start} and increment {rampup.increment}",
            f"whole increments that lead from start up to global_batch_size {global_batch_size}",
        )
    samples_per_increment = rampup.samples / increments
    thresholds = [(0, rampup.start)]
    for number in range(1, increments + 1):
        consumed = number * rampup.samples // increments
        while int(consumed / samples_per_increment) >= number:
            consumed -= 1
        while int(consumed / samples_per_increment) < number:
            consumed += 1
        thresholds.append((consumed, rampup.start + number * rampup.increment))
    return thresholds


def explicit_thresholds(batch_steps: str, sequence_length: int) -> list[tuple[int, int]]:
    """`0:768 250B:1536` (consumed tokens from which on : batch size) as (consumed samples from which on, batch size).

    Raises:
        ConfigError: malformed, not starting at 0, or not ascending.
    """
    thresholds: list[tuple[int, int]] = []
    for entry in batch_steps.split():
        tokens, colon, size = entry.partition(":")
        if not colon or not size.isascii() or not size.isdigit() or int(size) < 1:
            raise ConfigError("config", "schedule.batch_steps", repr(entry), "TOKENS:BATCH_SIZE such as 250B:1536")
        threshold = -(-parse_tokens(tokens) // sequence_length)
        if thresholds and threshold <= thresholds[-1][0]:
            raise ConfigError("config", "schedule.batch_steps", repr(batch_steps), "ascending numbers of tokens")
        thresholds.append((threshold, int(size)))
    if not thresholds or thresholds[0][0] != 0:
        raise ConfigError("config", "schedule.batch_steps", repr(batch_steps), "a first entry at 0 tokens, as 0:768")
    return thresholds


def stages_of(thresholds: Sequence[tuple[int, int]], start_step: int = 0) -> tuple[Stage, ...]:
    """The stages that take at least one step: a batch larger than a ramp's next span steps over that stage.

    Args:
        thresholds: (consumed samples from which on, batch size), ascending from 0.
        start_step: the step before the first.
    """
    stages: list[Stage] = []
    step, consumed = start_step + 1, 0
    for position, (_, size) in enumerate(thresholds):
        if position + 1 == len(thresholds):
            stages.append(Stage(size, step, consumed, None))
            break
        steps = -(-(thresholds[position + 1][0] - consumed) // size)
        if steps > 0:
            stages.append(Stage(size, step, consumed, steps))
            step, consumed = step + steps, consumed + steps * size
    return tuple(stages)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSchedule:
    """Batch size and samples of every step.

    Attributes:
        stages: spans of steps with equal batch size, in order; the last one has no end.
        skipped_samples: samples of the data order before the first one that these steps read. The stages do not count
            them, so the batch size does not depend on them.
    """

    stages: tuple[Stage, ...]
    skipped_samples: int = 0

    def stage(self, step: int) -> Stage:
        """The stage of a step (from 1); steps before belong to the first one, with negative samples."""
        return self.stages[max(bisect_right(self.stages, step, key=lambda stage: stage.first_step) - 1, 0)]

    def batch_size(self, step: int) -> int:
        """Global batch size of a step (from 1), samples."""
        return self.stage(step).batch_size

    def samples_before(self, step: int) -> int:
        """Consumed samples before a step (from 1)."""
        stage = self.stage(step)
        return stage.start_sample + (step - stage.first_step) * stage.batch_size

    def samples_after(self, step: int) -> int:
        """C(step): consumed samples after that step; 0 for `start_step`."""
        return self.samples_before(step + 1)

    def sample_range(self, step: int) -> tuple[int, int]:
        """The samples [start, end) of the data order that a step (from 1) reads."""
        return self.samples_of(step, step)

    def samples_of(self, first_step: int, last_step: int) -> tuple[int, int]:
        """The samples [start, end) of the data order that steps `first_step` to `last_step` (inclusive) read."""
        skipped = self.skipped_samples
        return skipped + self.samples_before(first_step), skipped + self.samples_after(last_step)

    def step_of_sample(self, sample: int) -> int:
        """The step (from 1) that reads a sample of the data order (from `skipped_samples`)."""
        return self._step_consuming(sample - self.skipped_samples)

    def _step_consuming(self, sample: int) -> int:
        """The step (from 1) that reads the `sample`-th sample (from 0) of all that are read."""
        stage = self.stages[bisect_right(self.stages, sample, key=lambda stage: stage.start_sample) - 1]
        return stage.first_step + (sample - stage.start_sample) // stage.batch_size

    def steps_within(self, num_samples: int) -> int:
        """How many whole steps a number of consumed samples is enough for."""
        last = self._step_consuming(max(num_samples - 1, 0))
        return last if self.samples_after(last) <= num_samples else last - 1

    def check_divisible(self, multiple: int, least: int = 1) -> Stage | None:
        """The first stage whose batch size is not a multiple of `multiple` (micro-batch x data parallel size), or None.

        Args:
            multiple: samples of one micro-batch of all replicas.
            least: micro-batches that a step needs.
        """
        return next((s for s in self.stages if s.batch_size % multiple or s.batch_size < least * multiple), None)


def resumed_schedule(thresholds: Sequence[tuple[int, int]], steps: int, consumed: int) -> BatchSchedule:
    """The schedule of a training that continues after some steps, where the samples before count for the batch size.

    Its steps and samples continue the numbers of the training before it.

    Args:
        thresholds: (consumed samples from which on, batch size), ascending from 0, counted from the first step of all.
        steps: steps before its first one.
        consumed: samples that those steps consumed.
    """
    shifted = [(threshold - consumed, size) for threshold, size in thresholds]
    return BatchSchedule(stages=stages_of(shifted, steps), skipped_samples=consumed)
