"""What step t does, as closed forms: how many samples it reads and which, and at what learning rate.

Pure arithmetic between the resolved config and all its readers: the trainer steps by it, `treering plan` prints its
milestones, the audit compares rings with it. The samples of a step are `treering.config.batch_schedule`'s part; this
module adds the learning rate and the end of the training.
"""

import math
from dataclasses import dataclass, field
from typing import Self

from treering.config.batch_schedule import (
    BatchSchedule,
    Rampup,
    Stage,
    explicit_thresholds,
    rampup_thresholds,
    stages_of,
)
from treering.config.model import OptimizerConfig, ScheduleConfig
from treering.errors import ConfigError


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


@dataclass(frozen=True, slots=True)
class Schedule(BatchSchedule):
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
        skipped_samples: samples of the data order that are skipped before the first one. They are not consumed, so
            batch size and learning rate do not depend on them.
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

    def tokens_after(self, step: int) -> int:
        """Consumed tokens after that many steps."""
        return self.samples_after(step) * self.sequence_length

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
