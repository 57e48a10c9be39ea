"""Attempt sections of an experiment: what may change under a run without making it another run.

Nothing here enters the run's id; each attempt records the values it was started with.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, StringConstraints, model_validator

from treering.config.layout import Layout, PipelineSchedule
from treering.config.model import GrowingSection, PositiveInt, Section, contradiction


class ParallelConfig(GrowingSection):
    """What is asked of the parallel layout; data parallelism takes what tensor and pipeline parallelism leave."""

    added = frozenset({"recompute_interval", "pipeline_schedule", "rank_timeout_s"})

    tensor: PositiveInt = Field(1, description="ranks that share each layer")
    pipeline: PositiveInt = Field(1, description="stages that the layers are cut into")
    data: PositiveInt | Literal["auto"] = Field("auto", description="replicas; `auto` uses every device")
    micro_batch_size: PositiveInt = Field(description="samples of one forward pass of one replica")
    cpu_processes: PositiveInt = Field(2, description="ranks started on a machine without a GPU if `data` is `auto`")
    activation_recompute: Literal["none", "full"] = Field(
        "none", description="`full` keeps only each layer's input and computes the rest again in the backward pass"
    )
    recompute_interval: PositiveInt = Field(
        1, description="with `full`: of so many consecutive layers of a stage only the first one's input is kept"
    )

    pipeline_schedule: PipelineSchedule = Field(
        "1f1b",
        description="`dualpipev`: each stage holds two chunks of layers, micro-batches run through all stages and back",
    )
    rank_timeout_s: Annotated[float, Field(gt=0)] = Field(
        600.0,
        description="seconds without a sign of a rank after which it counts as stuck and the attempt ends; more than "
        "saving, validating and a step take each",
    )

    def layout(self, num_devices: int) -> Layout:
        """The layout that the config asks for; `data: auto` takes what the devices leave, at least one replica."""
        rest = max(1, num_devices // (self.tensor * self.pipeline))
        return Layout(
            tensor=self.tensor,
            pipeline=self.pipeline,
            data=rest if self.data == "auto" else self.data,
            micro_batch_size=self.micro_batch_size,
            pipeline_schedule=self.pipeline_schedule,
        )

    @model_validator(mode="after")
    def _schedule_fits(self) -> Self:
        if self.pipeline_schedule == "dualpipev" and self.pipeline == 1:
            raise contradiction("pipeline_schedule", "dualpipev with pipeline 1", "1f1b: one stage has no schedule")
        return self

    @model_validator(mode="after")
    def _recompute_fits(self) -> Self:
        if self.recompute_interval > 1 and self.activation_recompute == "none":
            raise contradiction(
                "recompute_interval",
                f"{self.recompute_interval} with activation_recompute none",
                "activation_recompute full beside it: nothing is recomputed",
            )
        return self


class KernelConfig(GrowingSection):
    """Which implementation of each operation is asked for; the attempt's header has what ran."""

    added = frozenset({"layer_norm", "cross_entropy"})

    optimizer: Literal["torch", "torch_fused"] = "torch_fused"
    attention: Literal["sdpa_flash", "sdpa_math", "sdpa_auto"] = "sdpa_auto"
    bias_gelu: Literal["eager", "compiled"] = "eager"
    bias_dropout_add: Literal["eager", "compiled"] = "eager"
    layer_norm: Literal["torch", "apex"] = Field(
        "torch", description="both are one fused kernel; where apex is missing torch's takes its place, on record"
    )
    cross_entropy: Literal["eager", "compiled"] = Field(
        "eager", description="`compiled` keeps the logits as they are, `eager` an fp32 copy of them"
    )


class CheckpointConfig(GrowingSection):
    """When training state is saved, the last step always, and how long it stays, the newest one always."""

    added = frozenset({"keep_last", "keep_every", "keep_best", "finish"})

    every_steps: PositiveInt
    keep_last: PositiveInt | None = Field(None, description="how many of the newest ones stay; null keeps all")
    keep_every: PositiveInt | None = Field(
        None, description="beside the newest ones, those of steps that are multiples of this stay; needs keep_last"
    )
    keep_best: bool | PositiveInt | None = Field(
        None, description="beside them, that many with the lowest held-out loss stay, `true` for one; needs keep_last"
    )

    finish: Literal["before_next_step", "beside_training"] = Field(
        "before_next_step",
        description="when written files are synced and digested: `beside_training` takes it off the step, for a core "
        "of each rank",
    )

    @property
    def num_best(self) -> int:
        """How many stay for their held-out loss."""
        return int(self.keep_best or 0)

    @model_validator(mode="after")
    def _rules_fit(self) -> Self:
        for name, value in (("keep_every", self.keep_every), ("keep_best", self.keep_best)):
            if value and self.keep_last is None:
                raise contradiction(name, str(value), "keep_last beside it: without it every checkpoint stays")
        if self.keep_every is not None and self.keep_every % self.every_steps:
            raise contradiction(
                "keep_every",
                str(self.keep_every),
                f"a multiple of every_steps ({self.every_steps}), when checkpoints are made",
            )
        return self


class ValidationConfig(Section):
    """Loss on held-out documents during training."""

    every_steps: PositiveInt
    samples: PositiveInt = Field(description="held-out samples of each corpus, the same ones every time")


EvaluationDevice = Annotated[str, StringConstraints(pattern=r"^(cpu|cuda(:\d{1,3})?)$")]


class PromptsConfig(Section):
    """Prompts that every checkpoint continues."""

    file: str = Field(min_length=1, description="text with one prompt a line, or JSON Lines with id and prompt")
    max_tokens: PositiveInt = Field(64, description="tokens of a continuation, at most")
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        0.0, description="divides the logits; 0 takes the most probable token"
    )
    top_p: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0, description="draw from the most probable tokens that together reach this probability"
    )
    seed: Annotated[int, Field(ge=0, lt=2**31)] = Field(0, description="of the draws; each prompt has the next number")


class EvaluationTask(Section):
    """A task of lm-eval over files of your own: prompts, examples and metrics are those of its definition."""

    task: str = Field(min_length=1, description="its name in lm-eval, or `hans` or `wikitext103`")
    files: str | dict[str, str] = Field(
        description="the file that is scored, or a file for each split: `test`, `validation`, `train` (for examples)"
    )
    shots: tuple[Annotated[int, Field(ge=0)], ...] | None = Field(
        None, min_length=1, description="examples in the prompt; default: those of the section, 0 for whole texts"
    )
    max_items: PositiveInt | None = Field(None, description="how many items, the first ones; default: all")


class EvaluationConfig(GrowingSection):
    """Scores of every checkpoint, on tasks made of held-out documents and on tasks of lm-eval."""

    added = frozenset({"prompts", "follow", "device", "tasks"})

    shots: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (0, 1, 4), description="examples in the prompt; as many of them as the sequence holds"
    )
    max_items: PositiveInt = Field(200, description="items of each task that was made of held-out documents")
    perplexity_samples: PositiveInt = Field(64, description="held-out samples of each corpus")
    prompts: PromptsConfig | None = Field(None, description="prompts whose continuations are kept beside the scores")
    follow: bool = Field(False, description="each new checkpoint is evaluated beside the training, in its own process")
    device: EvaluationDevice | None = Field(
        None, description="cpu, cuda or cuda:N; default: cpu beside a training, else the first GPU if there is one"
    )
    tasks: tuple[EvaluationTask, ...] = Field((), description="tasks of lm-eval over files of your own")

    @model_validator(mode="after")
    def _tasks_once(self) -> Self:
        names = [each.task for each in self.tasks]
        for name in names:
            if names.count(name) > 1:
                raise contradiction("tasks", f"{name} twice", "each task once, with all its shots")
        return self


class ElectricityConfig(GrowingSection):
    """What electricity costs and emits."""

    added = frozenset({"price_per_kwh", "currency", "co2e_g_per_kwh"})

    price_per_kwh: Annotated[float, Field(gt=0)] | None = Field(
        None, description="of electricity, for the cost in `treering show`; needs currency"
    )
    currency: Annotated[str, Field(min_length=1)] | None = Field(None, description="of the price, such as EUR")
    co2e_g_per_kwh: Annotated[float, Field(gt=0)] | None = Field(
        None, description="grams of CO2 equivalent of a kWh of this electricity"
    )

    @model_validator(mode="after")
    def _price_fits(self) -> Self:
        if (self.price_per_kwh is None) is not (self.currency is None):
            given, missing = (
                ("currency", "price_per_kwh") if self.price_per_kwh is None else ("price_per_kwh", "currency")
            )
            raise contradiction(given, str(getattr(self, given)), f"{missing} beside it: alone it has no effect")
        return self


class TelemetryConfig(ElectricityConfig):
    """What a node's sensors say while it trains."""

    interval_s: Annotated[float, Field(gt=0)] = 1.0


class SpikeConfig(Section):
    """When a value of loss or gradient norm counts as a spike."""

    window: PositiveInt = Field(256, description="unflagged points before it that a value is judged against")
    min_points: PositiveInt = Field(32, description="fewer unflagged points judge nothing")
    threshold: Annotated[float, Field(gt=0)] = Field(6.0, description="robust z-score of the logarithm")


class HookConfig(Section):
    """A hook of the training loop that an installed package brings."""

    name: str = Field(description="as its package names it in the entry points `treering.hooks`")
    options: dict[str, JsonValue] = Field({}, description="keyword arguments of the hook")


class AttemptConfig(GrowingSection):
    """What an attempt was started with; may change under a run."""

    added = frozenset({"hooks", "deterministic"})

    parallel: ParallelConfig
    kernels: KernelConfig
    checkpoint: CheckpointConfig
    validation: ValidationConfig | None
    telemetry: TelemetryConfig
    spikes: SpikeConfig
    hooks: tuple[HookConfig, ...] = ()
    deterministic: bool = False
