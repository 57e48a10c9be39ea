"""Which samples each step of a Megatron run read, from where a launch took it up."""

from bisect import bisect_right
from dataclasses import dataclass

from treering.config.megatron import MegatronRun
from treering.config.schedule import Stage, stages_of


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of one launch.

    A step's batch size follows from the samples consumed before it, wherever the launch began; a sequential sampler
    reads on where the last one stopped.

    Attributes:
        stages: of equal batch size; their samples count from `first_sample`.
        first_sample: samples consumed before the first step.
    """

    stages: tuple[Stage, ...]
    first_sample: int

    @classmethod
    def of(cls, run: MegatronRun, done: int = 0, consumed: int = 0) -> "Steps":
        """The steps of a launch that began after `done` steps and `consumed` samples.

        Raises:
            ConfigError: no batch schedule of Megatron.
        """
        shifted = [(threshold - consumed, size) for threshold, size in run.batch_sizes]
        return cls(stages_of(shifted, done), consumed)

    def samples_before(self, step: int) -> int:
        """Samples consumed before a step (from 1), one of the launch."""
        stage = self.stages[max(bisect_right(self.stages, step, key=lambda stage: stage.first_step) - 1, 0)]
        return self.first_sample + stage.start_sample + (step - stage.first_step) * stage.batch_size

    def steps_within(self, samples: int) -> int:
        """How many steps so many samples are enough for, none of the last step's left out."""
        last = self.step_of_sample(max(samples - 1, 0))
        return last if self.samples_before(last + 1) <= samples else last - 1

    def step_of_sample(self, sample: int) -> int:
        """The step that reads a sample, one of the launch."""
        number = sample - self.first_sample
        stage = self.stages[bisect_right(self.stages, number, key=lambda stage: stage.start_sample) - 1]
        return stage.first_step + (number - stage.start_sample) // stage.batch_size
