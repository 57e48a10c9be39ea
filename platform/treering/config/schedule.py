"""What step t does, as closed forms: how many samples it reads and which, and at what learning rate.

Pure arithmetic between the resolved config and everyone who needs it: the trainer steps by it, `treering plan` prints
its milestones, the audit holds rings against it. Steps count from 1; step t reads the samples [C(t - 1), C(t)), where
C(t), `samples_before(t + 1)`, is what t steps have consumed; where samples were passed over, their number is added to
both ends. A batch schedule is a short list of stages of equal batch size, so every question costs a search among the
stages and never a walk over the steps.
"""

import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Self

from treering.config.model import OptimizerConfig, ScheduleConfig
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
        num_steps: steps of this size; None for the last stage, which has no end of its own.
    """

    batch_size: int
    first_step: int
    start_sample: int
    num_steps: int | None


@dataclass(frozen=True, slots=True)
class Milestone:
    """One line of `treering plan`.

    Attributes:
        kind: `batch_size`, `full_batch`, `warmup_end`, `decay_end` or `end`.
        step: the first step of that batch size; the step after which warm-up, decay or training are over.
        consumed_samples: before that step for a batch size, after it otherwise; tokens likewise.
        batch_size: global batch size of that step.
        learning_rate: learning rate of that step.
        reached: False where training ends earlier.
    """

    kind: str
    step: int
    consumed_samples: int
    consumed_tokens: int
    batch_size: int
    learning_rate: float
    reached: bool


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


@dataclass(frozen=True, slots=True)
class Schedule:
    """Batch size and learning rate of every step of a run.

    Training has `num_steps`; beyond them the last batch size goes on, so that the functions hold for any step.

    Attributes:
        sequence_length: tokens a sample counts.
        train_tokens: training ends with the first step after which as many tokens are consumed (Megatron's
            `--train-samples` ends with the last step before).
        global_batch_size: samples of a step, after the ramp if there is one; of the last stage with `batch_steps`.
        peak_learning_rate: at the end of the warm-up.
        min_learning_rate: from the end of the decay on.
        warmup_tokens: consumed tokens over which the learning rate rises linearly from 0.
        decay_tokens: consumed tokens, warm-up included, at which the cosine reaches the minimum; None: train_tokens.
        rampup: Megatron's ramp, or None.
        batch_steps: explicit batch sizes by consumed tokens, `0:768 250B:1536`, or None; not together with a ramp.
        start_step: steps that were done before the schedule begins, whose samples it does not count; its first step is
            the next one.
        skipped_samples: samples of the data order that are passed over before the first one; they count as nothing
            read, so batch size and learning rate know nothing of them.
    """

    sequence_length: int
    train_tokens: int
    global_batch_size: int
    peak_learning_rate: float
    min_learning_rate: float = 0.0
    warmup_tokens: int = 0
    decay_tokens: int | None = None
    rampup: Rampup | None = None
    batch_steps: str | None = None
    start_step: int = 0
    skipped_samples: int = 0
    stages: tuple[Stage, ...] = field(init=False, repr=False, compare=False)
    num_steps: int = field(init=False, repr=False, compare=False)

    @classmethod
    def from_config(
        cls,
        schedule: ScheduleConfig,
        optimizer: OptimizerConfig,
        sequence_length: int,
        *,
        start_step: int = 0,
        skipped_samples: int = 0,
    ) -> Self:
        """The schedule of a recipe.

        Raises:
            ConfigError: as the constructor.
        """
        rampup = schedule.rampup
        return cls(
            sequence_length=sequence_length,
            train_tokens=schedule.train_tokens,
            global_batch_size=schedule.global_batch_size,
            peak_learning_rate=optimizer.peak_learning_rate,
            min_learning_rate=optimizer.min_learning_rate,
            warmup_tokens=schedule.warmup_tokens,
            decay_tokens=schedule.decay_tokens,
            rampup=None if rampup is None else Rampup(rampup.start, rampup.increment, rampup.samples),
            batch_steps=schedule.batch_steps,
            start_step=start_step,
            skipped_samples=skipped_samples,
        )

    def __post_init__(self) -> None:
        """Derives the stages and the number of steps.

        Raises:
            ConfigError: a value that no schedule can have, or two batch schedules at once.
        """
        for name in ("sequence_length", "train_tokens", "global_batch_size"):
            if getattr(self, name) < 1:
                raise ConfigError("config", f"schedule.{name}", str(getattr(self, name)), "at least 1")
        if not 0 <= self.warmup_tokens <= self.decay_end_tokens:
            expected = f"between 0 and the end of the decay, {self.decay_end_tokens} tokens"
            raise ConfigError("config", "schedule.warmup_tokens", str(self.warmup_tokens), expected)
        if not 0 <= self.min_learning_rate <= self.peak_learning_rate or self.peak_learning_rate <= 0:
            found = f"minimum {self.min_learning_rate}, peak {self.peak_learning_rate}"
            raise ConfigError("config", "optimizer.peak_learning_rate", found, "0 <= minimum <= peak and peak > 0")
        object.__setattr__(self, "stages", stages_of(self._thresholds(), self.start_step))
        object.__setattr__(self, "num_steps", self.step_reaching(self.train_tokens))

    def _thresholds(self) -> list[tuple[int, int]]:
        if self.batch_steps is None:
            if self.rampup is None:
                return [(0, self.global_batch_size)]
            return rampup_thresholds(self.rampup, self.global_batch_size)
        if self.rampup is not None:
            raise ConfigError("config", "schedule", "both rampup and batch_steps", "one of them")
        thresholds = explicit_thresholds(self.batch_steps, self.sequence_length)
        if thresholds[-1][1] != self.global_batch_size:
            expected = f"{thresholds[-1][1]}, the last size of batch_steps"
            raise ConfigError("config", "schedule.global_batch_size", str(self.global_batch_size), expected)
        return thresholds

    @property
    def decay_end_tokens(self) -> int:
        """Consumed tokens at which the learning rate reaches its minimum."""
        return self.train_tokens if self.decay_tokens is None else self.decay_tokens

    @property
    def num_samples(self) -> int:
        """Samples that the whole training reads."""
        return self.samples_after(self.num_steps)

    def stage(self, step: int) -> Stage:
        """The stage of a step (from `start_step` + 1); steps before belong to the first one, with negative samples."""
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

    def tokens_after(self, step: int) -> int:
        """Consumed tokens after that many steps."""
        return self.samples_after(step) * self.sequence_length

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

    def step_reaching(self, tokens: int) -> int:
        """The first step after which at least `tokens` (above 0) are consumed."""
        return self._step_consuming(-(-tokens // self.sequence_length) - 1)

    def learning_rate(self, consumed_samples: int) -> float:
        """Learning rate as a function of consumed samples alone: linear warm-up, then cosine to the minimum.

        A step uses the value at its own end, `step_learning_rate`; so the first step already moves.

        Source: Megatron-LM, megatron/core/optimizer_param_scheduler.py, get_lr, counted in tokens as MT-NLG does
        (arXiv 2201.11990, section 2.3).
        """
        tokens = consumed_samples * self.sequence_length
        if tokens < self.warmup_tokens:
            return self.peak_learning_rate * (tokens / self.warmup_tokens)
        if tokens >= self.decay_end_tokens:
            return self.min_learning_rate
        progress = (tokens - self.warmup_tokens) / (self.decay_end_tokens - self.warmup_tokens)
        cosine = 0.5 * (1.0 + math.cos(math.pi * progress))
        return self.min_learning_rate + (self.peak_learning_rate - self.min_learning_rate) * cosine

    def step_learning_rate(self, step: int) -> float:
        """The learning rate of a step (from 1): that of C(step), the samples consumed when its batch is read."""
        return self.learning_rate(self.samples_after(step))

    def check_divisible(self, multiple: int, least: int = 1) -> Stage | None:
        """The first stage whose batch size is no multiple of `multiple` (micro-batch x data parallel size), or None.

        Args:
            multiple: samples of one micro-batch of all replicas.
            least: micro-batches that a step needs.
        """
        return next((s for s in self.stages if s.batch_size % multiple or s.batch_size < least * multiple), None)

    def milestones(self) -> tuple[Milestone, ...]:
        """Where something changes, by step: each batch size, the full batch, the ends of warm-up, decay, training."""
        found = [self._milestone("batch_size", stage.first_step) for stage in self.stages[:-1]]
        last = "full_batch" if len(self.stages) > 1 else "batch_size"
        found.append(self._milestone(last, self.stages[-1].first_step))
        if self.warmup_tokens:
            found.append(self._milestone("warmup_end", self.step_reaching(self.warmup_tokens)))
        found.append(self._milestone("decay_end", self.step_reaching(self.decay_end_tokens)))
        found.append(self._milestone("end", self.num_steps))
        return tuple(sorted(found, key=lambda milestone: milestone.step))

    def _milestone(self, kind: str, step: int) -> Milestone:
        starts = kind in ("batch_size", "full_batch")
        consumed = self.samples_before(step) if starts else self.samples_after(step)
        return Milestone(
            kind=kind,
            step=step,
            consumed_samples=consumed,
            consumed_tokens=consumed * self.sequence_length,
            batch_size=self.batch_size(step),
            learning_rate=self.step_learning_rate(step),
            reached=step <= self.num_steps,
        )
