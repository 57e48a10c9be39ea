"""The parallel layout of a training: how many ranks share the work, where each rank is, and which samples it reads.

The config asks for a layout (`treering.config.operation.ParallelConfig`), the trainer builds its groups by it, the run
log records it, the plan estimates it, and the audit finds the rank that read a sample. All of them use this type.

A layout is written TP x PP x DP. Ranks are ordered with tensor fastest, then data, then pipeline. A global batch is cut
into micro-batches of all replicas: replica d reads, as its micro-batch m, the `micro_batch_size` samples from position
(m x DP + d) x `micro_batch_size` of the batch on.
"""

from dataclasses import dataclass
from typing import Literal, Self

from pydantic import Field

from treering.config.batch_schedule import BatchSchedule, Stage
from treering.config.model import GrowingSection, PositiveInt

PipelineSchedule = Literal["1f1b", "dualpipev"]


class Layout(GrowingSection):
    """Sizes of the three ways to share the work, and of a micro-batch."""

    added = frozenset({"pipeline_schedule"})

    tensor: PositiveInt = Field(description="ranks that share each layer")
    pipeline: PositiveInt = Field(description="stages that the layers are cut into")
    data: PositiveInt = Field(description="replicas")
    micro_batch_size: PositiveInt = Field(description="samples of one forward pass of one replica")
    pipeline_schedule: PipelineSchedule = Field("1f1b", description="which layers a stage holds depends on it")

    def __str__(self) -> str:
        schedule = "" if self.pipeline_schedule == "1f1b" else f" {self.pipeline_schedule}"
        return f"{self.tensor}x{self.pipeline}x{self.data}{schedule}"

    @property
    def world_size(self) -> int:
        """Ranks of the layout, one a device."""
        return self.tensor * self.pipeline * self.data

    @property
    def folded(self) -> bool:
        """Whether every stage holds two chunks of layers, and the pipeline turns around on the last one (DualPipeV)."""
        return self.pipeline_schedule == "dualpipev"

    @property
    def chunks(self) -> int:
        """Runs of consecutive layers that the model is cut into: one a stage, two with DualPipeV."""
        return self.pipeline * (2 if self.folded else 1)

    @property
    def least_micro_batches(self) -> int:
        """Micro-batches of a replica that the schedule needs in every step: as many as chunks with DualPipeV."""
        return self.chunks if self.folded else 1

    @property
    def global_micro_batch_size(self) -> int:
        """Samples of one micro-batch of all replicas."""
        return self.micro_batch_size * self.data

    def micro_batches(self, batch_size: int) -> float:
        """Micro-batches of one replica in a step; whole where the global batch divides."""
        return batch_size / self.global_micro_batch_size

    def place(self, position: int) -> tuple[int, int]:
        """Micro-batch and replica of a sample by its position in the global batch, all from 0."""
        return divmod(position // self.micro_batch_size, self.data)

    def micro_batch_starts(self, replica: int, start: int, end: int) -> range:
        """The first sample of each micro-batch that a replica reads of the global batch [start, end)."""
        return range(start + replica * self.micro_batch_size, end, self.global_micro_batch_size)

    def coordinates(self, rank: int, local_rank: int = 0) -> "RankCoordinates":
        """Where a rank is.

        Args:
            rank: the rank, from 0 to `world_size` - 1.
            local_rank: its number on its node.
        """
        replicas, tensor = divmod(rank, self.tensor)
        pipeline, data = divmod(replicas, self.data)
        return RankCoordinates(rank, local_rank, self, tensor, pipeline, data)

    def unfit_stage(self, schedule: BatchSchedule) -> Stage | None:
        """The first stage of a batch schedule that this layout cannot cut into micro-batches; None if there is none."""
        return schedule.check_divisible(self.global_micro_batch_size, self.least_micro_batches)

    @property
    def stage_rule(self) -> str:
        """What every stage of a batch schedule must fulfil, for errors."""
        least = self.least_micro_batches
        return (
            f"every stage divisible by micro_batch_size x data = {self.micro_batch_size} x {self.data}"
            + (f", at least {least} micro-batches of it for {self.pipeline_schedule}" if least > 1 else "")
        )  # fmt: skip

    def fitted(self, schedule: BatchSchedule) -> Self:
        """The same with as many replicas, up to its own number, as every stage of the schedule allows; at least 1."""
        fewer = (self.model_copy(update={"data": data}) for data in range(self.data, 0, -1))
        alone = self.model_copy(update={"data": 1})
        return next((layout for layout in fewer if layout.unfit_stage(schedule) is None), alone)


@dataclass(frozen=True, slots=True)
class RankCoordinates:
    """Where one rank is in its layout.

    Attributes:
        rank: the rank.
        local_rank: its number on its node.
        layout: the layout.
        tensor: its number among the ranks that share its layers.
        pipeline: its stage.
        data: its replica.
    """

    rank: int
    local_rank: int
    layout: Layout
    tensor: int
    pipeline: int
    data: int

    @property
    def first_stage(self) -> bool:
        """Whether this rank embeds tokens."""
        return self.pipeline == 0

    @property
    def last_stage(self) -> bool:
        """Whether this rank computes the loss."""
        return self.pipeline == (0 if self.layout.folded else self.layout.pipeline - 1)

    @property
    def reads_data(self) -> bool:
        """Whether tokens are fed to this rank: only the first and the last stage see them."""
        return self.first_stage or self.last_stage

    def micro_batch_starts(self, start: int, end: int) -> range:
        """The first sample of each micro-batch that this rank's replica reads of the global batch [start, end)."""
        return self.layout.micro_batch_starts(self.data, start, end)
