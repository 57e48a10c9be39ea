"""The schema of an authored experiment (`experiments/*.yaml`).

Sections fall into three kinds: what makes the data (`corpora`, `curation`, `tokenizer`, `blend`), what makes the recipe
(`model`, `optimizer`, `schedule`, `precision`, `seed`, `start_from`) and what an attempt may choose anew (`parallel`,
`kernels`, …). DVC reads the same file as its parameters: a stage depends on the sections it uses.
"""

from collections.abc import Iterable, Iterator
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator
from pydantic_core import PydanticCustomError

from treering.config.ancestry import StartConfig
from treering.config.corpora import CorpusConfig, CurationConfig, TokenizerConfig
from treering.config.model import (
    LossScaleConfig,
    ModelConfig,
    OptimizerConfig,
    PositiveInt,
    Precision,
    ScheduleConfig,
    Section,
    contradiction,
)
from treering.config.operation import (
    CheckpointConfig,
    EvaluationConfig,
    HookConfig,
    KernelConfig,
    ParallelConfig,
    SpikeConfig,
    TelemetryConfig,
    ValidationConfig,
)

SCHEMA_VERSION: Final = 1

_SMALLEST_WEIGHT_EXPONENT: Final = -20  # 2**-64 is 5.4e-20

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=64)]


class ComponentConfig(Section):
    """One corpus of a blend and its share of the samples."""

    corpus: Name
    weight: Annotated[str, Field(description='decimal string like "0.14336": exact, so that it can be digested')]

    @field_validator("weight", mode="before")
    @classmethod
    def _decimal(cls, value: Any) -> str:
        """One spelling for one weight: `0.30`, `"0.3"` and `3e-1` are the same blend."""  # noqa: DOC501 the error is made by a function
        text = repr(value) if isinstance(value, int | float) else value
        try:
            weight = Decimal(text)
        except (InvalidOperation, TypeError, ValueError):
            raise contradiction("", repr(value), 'a decimal like "0.25"') from None
        if not weight.is_finite() or not 0 < weight <= 1:
            raise contradiction("", str(value), "a weight above 0 and at most 1")
        if weight.adjusted() < _SMALLEST_WEIGHT_EXPONENT:
            raise contradiction("", str(value), "a weight of at least 2**-64: no sample would ever be read for less")
        whole = format(weight, "f")  # every digit: Decimal's own arithmetic would round to 28 of them
        return whole.rstrip("0").rstrip(".") if "." in whole else whole


class BlendConfig(Section):
    """A weighted blend of corpora: with a seed, a data order."""

    algorithm: Literal["treering-1"] = "treering-1"
    seed: Annotated[int, Field(ge=0, lt=2**63)]
    sequence_length: PositiveInt = Field(description="tokens that a sample predicts; it holds one more")
    components: tuple[ComponentConfig, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _weights_sum_to_one(self) -> Self:
        total = sum(Fraction(component.weight) for component in self.components)
        if total != 1:
            found = f"{float(total)!r}" if float(total) != 1 else f"1{float(total - 1):+g}"
            raise contradiction("components", f"weights that sum to {found}", "weights that sum to exactly 1")
        twice = _first_duplicate(component.corpus for component in self.components)
        if twice:
            raise contradiction("components", f"corpus {twice} twice", "one component with the summed weight")
        return self


class Experiment(Section):
    """One authored experiment."""

    schema_version: Literal[1] = SCHEMA_VERSION
    experiment: Name = Field(description="the question; runs of one experiment are compared with each other")
    description: str = ""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = Field(description="of the weights and of dropout")
    corpora: tuple[CorpusConfig, ...] = Field(min_length=1, description="in order of deduplication priority")
    curation: CurationConfig = CurationConfig()
    tokenizer: TokenizerConfig
    blend: BlendConfig
    start_from: StartConfig | None = None
    model: ModelConfig
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    precision: Precision = "fp32"
    parallel: ParallelConfig
    kernels: KernelConfig = KernelConfig()
    deterministic: bool = Field(
        False, description="whether an attempt takes only algorithms that give the same bits again, which may be slower"
    )
    checkpoint: CheckpointConfig
    validation: ValidationConfig | None = None
    evaluation: EvaluationConfig = EvaluationConfig()
    telemetry: TelemetryConfig = TelemetryConfig()
    spikes: SpikeConfig = SpikeConfig()
    hooks: tuple[HookConfig, ...] = Field((), description="hooks of the loop beside the built-in ones, in their order")

    @property
    def loss_scale(self) -> LossScaleConfig | None:
        """The loss scale with its defaults written out, None where the precision needs none."""
        return (self.optimizer.loss_scale or LossScaleConfig()) if self.precision == "fp16" else None

    def contradictions(self) -> Iterator[Iterator[PydanticCustomError]]:
        """What does not fit together."""
        yield self._names()
        yield self._judged_corpora()
        yield self._vocabulary()
        yield self._tokenizer_of_tokens()
        yield self._best_checkpoint()
        yield self._only_fp16_is_scaled()
        yield self._layout_divides()
        yield self._hooks_once()

    def _names(self) -> Iterator[PydanticCustomError]:
        names = [corpus.name for corpus in self.corpora]
        twice = _first_duplicate(names)
        if twice:
            yield contradiction("corpora", f"{twice} twice", "each name once")
        for component in self.blend.components:
            if component.corpus not in names:
                yield contradiction(
                    "blend.components", f"corpus {component.corpus}", f"one of corpora: {', '.join(names)}"
                )

    def _judged_corpora(self) -> Iterator[PydanticCustomError]:
        quality = self.curation.quality
        if quality is None:
            return
        with_text = [corpus.name for corpus in self.corpora if corpus.has_text]
        for field, names in (("good", quality.good), ("corpora", quality.corpora)):
            for name in names:
                if name not in with_text:
                    expected = f"one of corpora with text: {', '.join(with_text)}"
                    yield contradiction(f"curation.quality.{field}", f"corpus {name}", expected)
            twice = _first_duplicate(names)
            if twice:
                yield contradiction(f"curation.quality.{field}", f"{twice} twice", "each name once")
        for name in quality.corpora:
            if name in quality.good:
                yield contradiction(
                    "curation.quality.corpora",
                    f"corpus {name}",
                    "no corpus of curation.quality.good: good documents stay",
                )

    def _vocabulary(self) -> Iterator[PydanticCustomError]:
        if self.tokenizer.vocabulary_size > self.model.padded_vocab_size:
            yield contradiction(
                "model.padded_vocab_size",
                str(self.model.padded_vocab_size),
                f"at least tokenizer.vocabulary_size {self.tokenizer.vocabulary_size}",
            )

    def _tokenizer_of_tokens(self) -> Iterator[PydanticCustomError]:
        tokens = [corpus.name for corpus in self.corpora if corpus.megatron is not None]
        if tokens and self.tokenizer.file is None:
            yield contradiction(
                "tokenizer.file", "none", f"the tokenizer that made the tokens of corpus {', '.join(tokens)}"
            )

    def _best_checkpoint(self) -> Iterator[PydanticCustomError]:
        if self.checkpoint.num_best and self.validation is None:
            yield contradiction(
                "checkpoint.keep_best", str(self.checkpoint.keep_best), "a section validation, which measures the loss"
            )

    def _only_fp16_is_scaled(self) -> Iterator[PydanticCustomError]:
        if self.optimizer.loss_scale is not None and self.precision != "fp16":
            found = f"a loss scale with precision {self.precision}"
            yield contradiction("optimizer.loss_scale", found, "precision fp16 beside it")

    def _hooks_once(self) -> Iterator[PydanticCustomError]:
        twice = _first_duplicate(hook.name for hook in self.hooks)
        if twice:
            yield contradiction("hooks", f"{twice} twice", "each name once: a checkpoint keeps state by name")

    def _layout_divides(self) -> Iterator[PydanticCustomError]:
        tensor, chunks = self.parallel.tensor, self.parallel.layout(1).chunks
        by_chunks = "parallel.pipeline" if chunks == self.parallel.pipeline else "2 x parallel.pipeline (dualpipev) ="
        for field, value, ways, by in (
            ("model.num_attention_heads", self.model.num_attention_heads, tensor, "parallel.tensor"),
            ("model.padded_vocab_size", self.model.padded_vocab_size, tensor, "parallel.tensor"),
            ("model.ffn_hidden_size", self.model.ffn_width, tensor, "parallel.tensor"),
            ("model.num_layers", self.model.num_layers, chunks, by_chunks),
        ):
            if value % ways:
                yield contradiction(field, str(value), f"a number divisible by {by} {ways}")
        layers = self.model.num_layers // chunks
        if self.parallel.recompute_interval > layers:
            yield contradiction(
                "parallel.recompute_interval",
                str(self.parallel.recompute_interval),
                f"at most {layers}, the number of consecutive layers of a stage",
            )


def _first_duplicate(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
