"""Starting a run from a checkpoint of another one: annealing on a new blend, extending a finished run.

Part of the recipe: a run that starts elsewhere is another run. It is named by the other run's recipe and the step, not
by the checkpoint's digest, so that whoever trains both again gets the same ids; the attempt's header records the very
checkpoint.
"""

from typing import Literal

from pydantic import Field

from treering.config.model import Digest, PositiveInt, Section

ScheduleOrigin = Literal["restart", "continue"]


class StartConfig(Section):
    """The checkpoint of another run whose weights and optimizer state are the beginning of this one."""

    run: str = Field(
        pattern=r"^[0-9a-f]{4,64}$",
        description="id of the other run or a prefix of it, in quotes; it lies beside this one in the folder of runs",
    )
    step: PositiveInt = Field(description="of the checkpoint; this run's first step is the next one")
    schedule: ScheduleOrigin = Field(
        "restart",
        description="`restart`: batch size, learning rate and train_tokens count from that checkpoint (annealing); "
        "`continue`: they count from the other run's beginning (a longer run)",
    )


class ResolvedStart(Section):
    """The same by content."""

    run: Digest
    step: PositiveInt
    consumed_samples: PositiveInt = Field(description="read on the way to that checkpoint")
    schedule: ScheduleOrigin
