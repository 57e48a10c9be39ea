"""Starting a run from a checkpoint of another one: annealing on a new blend, extending a finished run.

Part of the recipe: a run that starts elsewhere is another run. It is named by the other run's recipe and the step, not
by the checkpoint's digest, so that whoever trains both again gets the same ids; the attempt's header records the very
checkpoint.
"""

from typing import Annotated, Literal

from pydantic import Field

from treering.config.model import Digest, GrowingSection, PositiveInt, Section

ScheduleOrigin = Literal["restart", "continue"]
DataOrigin = Literal["by_schedule", "continue"]
Count = Annotated[int, Field(ge=0)]


class StartConfig(Section):
    """The checkpoint of another run whose weights and optimizer state are the beginning of this one."""

    run: str = Field(
        pattern=r"^[0-9a-f]{4,64}$",
        description="id of the other run or a prefix of it, in quotes; the folder of runs must contain it",
    )
    step: PositiveInt = Field(description="of the checkpoint; this run's first step is the next one")
    schedule: ScheduleOrigin = Field(
        "restart",
        description="`restart`: batch size, learning rate and train_tokens count from that checkpoint (annealing); "
        "`continue`: they count from the other run's beginning (a longer run)",
    )
    data: DataOrigin = Field(
        "by_schedule",
        description="`by_schedule`: the first sample is the one that the schedule names, in the order of this "
        "experiment's blend alone; `continue`: every corpus goes on at the sample where the other run stopped reading "
        "it, whatever the weights were, and a corpus that the other run did not read begins with its first sample",
    )
    skip_steps: Count = Field(
        0,
        description="batches of the data order to skip, neither read nor applied: those of so many steps from the "
        "first one on (a way around a loss spike: PaLM went back about 100 steps and skipped 200 to 500 batches, "
        "arXiv 2204.02311, section 5.1)",
    )


class ResolvedStart(GrowingSection):
    """The same by content."""

    added = frozenset({"skipped_samples"})

    run: Digest
    step: PositiveInt
    consumed_samples: PositiveInt = Field(description="read on the way to that checkpoint")
    schedule: ScheduleOrigin
    skipped_samples: Count = Field(
        0,
        description="skipped in the data order before this run's first sample; where the schedule continues, by "
        "the runs before it too",
    )

    @property
    def schedule_start_step(self) -> int:
        """The step after which the schedule begins to count: this one, or the root's 0 where it continues."""
        return self.step if self.schedule == "restart" else 0
