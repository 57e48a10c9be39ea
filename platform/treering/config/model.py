"""Recipe sections of an experiment: what makes two trainings the same training.

Everything here enters the recipe's digest, which is the run's id.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError


class Section(BaseModel):
    """A part of an experiment: frozen, and a key that it does not know is an error."""

    # defer_build: a command builds only the schemas that it uses, so that it starts fast
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_as_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuses `true` where a number or a text belongs: Python, and so pydantic, would take it for a 1."""  # noqa: DOC501 the error is made by a function
        truths = [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, bool)]
        if truths and not _takes_truth(cls.model_fields[info.field_name or ""].annotation):
            raise contradiction("", str(value).lower(), "a number or a text (in YAML yes and no are no texts)")
        return value

    @field_validator("*", mode="after")
    @classmethod
    def _no_endless_number(cls, value: Any) -> Any:
        """Refuses whole numbers that neither a counter of samples nor a floating-point number could hold."""  # noqa: DOC501 as above
        whole = [each for each in (value if isinstance(value, tuple) else (value,)) if type(each) is int]
        if any(abs(each) > _LARGEST for each in whole):
            raise contradiction("", f"a number of {len(str(max(map(abs, whole))))} digits", "less than 2**63")
        return value

    def contradictions(self) -> Iterator[Iterator[PydanticCustomError]]:
        """What does not fit together although each value is right; one iterator for each rule."""
        yield from ()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        found = [each for rule in self.contradictions() for each in rule]
        if len(found) == 1:
            raise found[0]
        if found:
            problems = [dict(each.context or {}) for each in found]
            raise PydanticCustomError("contradictions", "contradictions", {"problems": problems})
        return self

    @classmethod
    def contradictions_among(cls, values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The contradictions among those fields of a document that are right by themselves."""
        right: dict[str, Any] = {}
        for name, field in cls.model_fields.items():
            if name in values:
                with suppress(ValidationError):
                    right[name] = TypeAdapter(field.rebuild_annotation()).validate_python(values[name])
            elif not field.is_required():
                right[name] = field.get_default(call_default_factory=True, validated_data=right)
        partial = cls.model_construct(**right)
        for name in cls.model_fields.keys() - right.keys():
            partial.__dict__.pop(name, None)
        for rule in partial.contradictions():
            with suppress(AttributeError):  # the rule asks for a field that is wrong
                yield from (dict(each.context or {}) for each in rule)


_LARGEST = (1 << 63) - 1


class GrowingSection(Section):
    """A section that has got fields since documents with its digest were first written.

    Such a field is left out of the dump where it holds its default, so that documents from before keep their digests.
    """

    added: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _without_added_defaults(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = type(self).model_fields
        return {
            name: value
            for name, value in dump(self).items()
            if name not in self.added or getattr(self, name) != fields[name].default
        }


def _takes_truth(annotation: Any) -> bool:
    return annotation is bool or annotation is Any or any(_takes_truth(argument) for argument in get_args(annotation))


def contradiction(field: str, found: str, expected: str) -> PydanticCustomError:
    """The error that a validator raises when values that are each right do not fit together.

    Args:
        field: dotted path below the section whose validator raises it, empty for the section itself.
        found: the values as they stand.
        expected: what would be right.
    """
    return PydanticCustomError(
        "contradiction", "found {found}, expected {expected}", {"field": field, "found": found, "expected": expected}
    )


PositiveInt = Annotated[int, Field(gt=0)]
Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
Probability = Annotated[float, Field(ge=0.0, lt=1.0)]


class ModelConfig(Section):
    """A GPT: pre-norm transformer layers, learned positions, GELU."""

    num_layers: PositiveInt
    hidden_size: PositiveInt
    num_attention_heads: PositiveInt
    ffn_hidden_size: PositiveInt | None = Field(None, description="feed-forward width; default 4 x hidden_size")
    padded_vocab_size: PositiveInt = Field(description="rows of the embedding, independent of tensor parallelism")
    tied_embeddings: bool = Field(True, description="input embedding and output layer share their weights")
    init_std: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description="standard deviation of the initial weights; default sqrt(1/(3 hidden_size)) (arXiv 2201.11990)",
    )
    dropout: Probability = Field(0.0, description="of attention probabilities and hidden states")

    @model_validator(mode="after")
    def _heads_divide_hidden(self) -> Self:
        if self.hidden_size % self.num_attention_heads:
            raise contradiction(
                "num_attention_heads",
                f"{self.num_attention_heads} heads for hidden_size {self.hidden_size}",
                "a number of heads that divides hidden_size",
            )
        return self

    @property
    def ffn_width(self) -> int:
        """Feed-forward width with its default written out."""
        return self.ffn_hidden_size or 4 * self.hidden_size

    @property
    def weight_std(self) -> float:
        """Initial standard deviation with its default written out."""
        return self.init_std or math.sqrt(1.0 / (3.0 * self.hidden_size))


class LossScaleConfig(Section):
    """Dynamic loss scale of fp16: halved by an overflow, doubled after a window without one.

    Defaults are Megatron-LM's (`--initial-loss-scale`, `--loss-scale-window`, `--hysteresis`, `--min-loss-scale`).
    """

    initial_power: Annotated[int, Field(ge=0, le=64)] = Field(32, description="the first scale as a power of 2")
    window: PositiveInt = Field(1000, description="steps in a row without an overflow after which the scale doubles")
    hysteresis: PositiveInt = Field(2, description="overflows until the scale is halved")
    minimum: PositiveInt = Field(1, description="an overflow at the smallest scale ends the run")

    @model_validator(mode="after")
    def _begins_above_its_minimum(self) -> Self:
        if self.minimum > 2.0**self.initial_power:
            raise contradiction("minimum", str(self.minimum), f"at most the first scale, 2**{self.initial_power}")
        return self


class OptimizerConfig(GrowingSection):
    """Adam with decoupled weight decay; defaults are those of MT-NLG (arXiv 2201.11990)."""

    added = frozenset({"loss_scale"})

    peak_learning_rate: Annotated[float, Field(gt=0)]
    min_learning_rate: Annotated[float, Field(ge=0)]
    beta1: Probability = 0.9
    beta2: Probability = 0.95
    epsilon: Annotated[float, Field(gt=0)] = 1e-8
    weight_decay: Annotated[float, Field(ge=0)] = Field(0.1, description="not applied to biases and norms")
    gradient_clipping: Annotated[float, Field(gt=0)] = Field(1.0, description="largest global gradient norm")
    loss_scale: LossScaleConfig | None = Field(None, description="of fp16, with Megatron-LM's values where left out")

    @model_validator(mode="after")
    def _decays_downwards(self) -> Self:
        if self.min_learning_rate > self.peak_learning_rate:
            raise contradiction(
                "min_learning_rate",
                str(self.min_learning_rate),
                f"at most peak_learning_rate {self.peak_learning_rate}",
            )
        return self


_MOST_STAGES = 100_000


class RampConfig(Section):
    """Megatron's `--rampup-batch-size START INCREMENT SAMPLES`."""

    start: PositiveInt = Field(description="global batch size of the first step, in samples")
    increment: PositiveInt = Field(description="samples added by each stage")
    samples: PositiveInt = Field(description="consumed samples over which the ramp rises")


class ScheduleConfig(Section):
    """How much is read, and how batch size and learning rate move with it: all functions of consumed samples."""

    train_tokens: PositiveInt = Field(description="the run ends with the first step that has consumed as many")
    global_batch_size: PositiveInt = Field(description="samples of a step once the ramp is over")
    rampup: RampConfig | None = None
    batch_steps: str | None = Field(
        None, description="explicit batch stages by consumed tokens, like `0:768 250B:1536`; instead of rampup"
    )
    warmup_tokens: Annotated[int, Field(ge=0)] = Field(0, description="linear rise of the learning rate to its peak")
    decay_tokens: PositiveInt | None = Field(None, description="end of the cosine decay; default train_tokens")

    def contradictions(self) -> Iterator[Iterator[PydanticCustomError]]:
        """What does not fit together."""
        yield self._batch_rule()
        yield self._warmup()

    def _batch_rule(self) -> Iterator[PydanticCustomError]:
        if self.rampup and self.batch_steps:
            yield contradiction("batch_steps", "both rampup and batch_steps", "one of them")
        elif self.rampup:
            rise = self.global_batch_size - self.rampup.start
            if rise < 0 or rise % self.rampup.increment:
                yield contradiction(
                    "rampup.increment",
                    f"steps of {self.rampup.increment} from {self.rampup.start}",
                    f"steps that reach global_batch_size {self.global_batch_size} exactly",
                )
            elif rise // self.rampup.increment > _MOST_STAGES:
                yield contradiction(
                    "rampup.increment",
                    f"{rise // self.rampup.increment} batch sizes",
                    f"at most {_MOST_STAGES}: a batch schedule is a list of its sizes",
                )

    def _warmup(self) -> Iterator[PydanticCustomError]:
        if self.warmup_tokens >= (self.decay_tokens or self.train_tokens):
            yield contradiction(
                "warmup_tokens", str(self.warmup_tokens), f"less than the decay's end at {self.decay_end_tokens} tokens"
            )

    @property
    def decay_end_tokens(self) -> int:
        """End of the decay with its default written out."""
        return self.decay_tokens or self.train_tokens


Precision = Literal["fp32", "bf16", "fp16"]
