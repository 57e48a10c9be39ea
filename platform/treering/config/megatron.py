"""A Megatron run as its launch script names it: what an audit needs of a run that knows nothing of Treering."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from treering.config.batch_schedule import (
    BatchSchedule,
    Rampup,
    explicit_thresholds,
    rampup_thresholds,
    resumed_schedule,
)
from treering.config.model import PositiveInt, RampConfig, Section, contradiction


class MegatronData(Section):
    """One entry of `--data-path`."""

    prefix: str = Field(min_length=1, description="of the .bin/.idx pair, relative to the file's folder or absolute")
    weight: float | None = Field(None, ge=0, description="in any scale; left out for all: the lineage says what weighs")
    part: tuple[Annotated[float, Field(ge=0, le=1)], Annotated[float, Field(ge=0, le=1)]] | None = Field(
        None, description="of its sequences, START and END from 0 to 1, where --train-weighted-split-paths named them"
    )


class MegatronRun(Section):
    """Data, order, batch schedule, and how far the checkpoint came."""

    data: tuple[MegatronData, ...] = Field(min_length=1, max_length=1 << 15)
    split: str | None = Field(None, description="--split; left out where --train-data-path named the data")
    seed: int = Field(ge=0, lt=2**32, description="--seed")
    sequence_length: PositiveInt = Field(lt=2**31, description="--seq-length")
    train_samples: PositiveInt | None = Field(None, lt=2**40, description="--train-samples")
    train_iters: PositiveInt | None = Field(
        None, lt=2**40, description="--train-iters, where there are no train samples"
    )
    global_batch_size: PositiveInt = Field(lt=2**31, description="--global-batch-size")
    rampup: RampConfig | None = Field(None, description="--rampup-batch-size")
    batch_steps: str | None = Field(None, min_length=1, description="--step-batch-size-schedule, TOKENS:SAMPLES ...")
    iterations_to_skip: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (), description="--iterations-to-skip, counted from 0"
    )
    resumed_after: tuple[PositiveInt, ...] = Field(
        (), description="steps after which the run went on with other arguments, where checkpoints leave them open"
    )
    checkpoint: str | None = Field(
        None, min_length=1, description="a checkpoint or save folder of Megatron; what is left out here is read there"
    )
    launch: tuple[str, ...] = Field(
        (), description="a launch script, or YAML files of GPT-NeoX; what is left out here is read there"
    )
    iteration: PositiveInt | None = Field(None, description="of the checkpoint")
    consumed_samples: PositiveInt | None = Field(None, description="as the checkpoint or the log says")
    cache: str | None = Field(None, description="--data-cache-path")
    lineage: str | None = Field(
        None,
        min_length=1,
        description="whose order: a name of docs/data-order.md, or a release as megatron-core-0.12",
    )
    generation: Literal["core", "core-early", "legacy"] | None = Field(
        None, description="an older name for several lineages; lineage names one"
    )
    surplus: float = Field(0.005, ge=0, le=100, description="mid_level_dataset_surplus of the dataset config")
    extra_token: bool = Field(True, description="add_extra_token_to_sequence of the dataset config")
    renormalized: bool | None = Field(None, description="--renormalize-blend-weights, of megatron-core 0.9 and 0.10")
    exact_epochs: PositiveInt | None = Field(
        None, lt=2**31, description="--train-data-exact-num-epochs of deepspeedai's Megatron-DeepSpeed"
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.train_samples is None) == (self.train_iters is None):
            raise contradiction("train_samples", "train_samples and train_iters both or neither", "one of them")
        if self.train_iters is not None and self.rampup is not None:
            raise contradiction("train_iters", "train_iters with a rampup", "train_samples, as Megatron asks for it")
        if self.batch_steps is not None and self.rampup is not None:
            raise contradiction("batch_steps", "batch_steps with a rampup", "one of them")
        if self.lineage is not None and self.generation is not None:
            raise contradiction("generation", "lineage and generation", "lineage alone")
        if self.split is not None and any(entry.part is not None for entry in self.data):
            raise contradiction("split", "a split, and parts of the data", "one of them")
        if len({entry.weight is None for entry in self.data}) > 1:
            raise contradiction("data", "weights for some entries", "a weight for every entry or for none")
        return self

    @property
    def weights(self) -> tuple[float, ...] | None:
        """The weights, None where there are none."""
        given = tuple(entry.weight for entry in self.data if entry.weight is not None)
        return given or None

    @property
    def parts(self) -> tuple[tuple[float, float] | None, ...] | None:
        """The parts of the data, None where all of it is read or the split decides."""
        given = tuple(entry.part for entry in self.data)
        return given if any(part is not None for part in given) else None

    @property
    def num_samples(self) -> int:
        """Samples that the training asks for."""
        return self.train_samples or (self.train_iters or 0) * self.global_batch_size

    def batch_schedule(self, steps: int = 0, consumed: int = 0) -> BatchSchedule:
        """The samples of each step of a launch of the run.

        A sequential sampler continues where the launch before it stopped.

        Args:
            steps: steps before the first one of the launch.
            consumed: samples that those steps consumed.

        Raises:
            ConfigError: the ramp does not lead up to the global batch size, or the steps cannot be read.
        """
        return resumed_schedule(self._batch_sizes(), steps, consumed)

    def _batch_sizes(self) -> list[tuple[int, int]]:
        """Batch sizes as (consumed samples from which on, batch size), ascending from 0."""
        if self.batch_steps is not None:
            return explicit_thresholds(self.batch_steps, self.sequence_length)
        if self.rampup is None:
            return [(0, self.global_batch_size)]
        ramp = Rampup(self.rampup.start, self.rampup.increment, self.rampup.samples)
        return rampup_thresholds(ramp, self.global_batch_size)
