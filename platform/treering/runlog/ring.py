"""The ring: one record an optimizer step, and the chain that binds it to all rings before it.

Standard library only, so that a training process that appends rings imports nothing else.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

from treering.config.canonical import canonical_json
from treering.runlog.chained_line import ChainedLine, of_other_kinds, parse_ring, refuse

RINGS_FILE = "rings.jsonl"

_NAMING = ("NaN", "Infinity", "\\")
"""Without any of these a line holds no name of a number that is not finite, not even an escaped one."""
_NAMED_FLOATS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


@dataclass(frozen=True, slots=True)
class Ring(ChainedLine):
    """What one optimizer step read, did and cost.

    Attributes:
        step: 1-based position in the schedule.
        sample_start: first sample of the step's range in the data order.
        sample_end: end of that range, exclusive.
        consumed_samples: samples read on this path up to and with this step.
        consumed_tokens: the same in tokens.
        applied: whether the optimizer moved the weights.
        loss: mean cross-entropy of the global batch in nats a token.
        grad_norm: global gradient norm before clipping.
        learning_rate: what the optimizer used.
        global_batch_size: samples of this step.
        loss_scale: dynamic loss scale of fp16, None for other precisions.
        time_s: seconds of the whole step (`step`) and of its measured parts, on the process that writes the ring; the
            metric catalog has each as `time/…`.
        tokens_per_second: tokens of the step over its time, all devices together.
        tflops_per_device: by `flops_formula`, None where it cannot be said.
        flops_formula: name of the formula.
        ended_at: when the step ended, Unix seconds of the writer's clock.
        validation: `loss` (blend-weighted) and `by_corpus`, where held-out loss was measured after this step.
        batch_digest: digest of the tokens that were fed.
        prev: digest of the ring before, or of the attempt's header.
        digest: digest of this ring without this field.
    """

    consecutive: ClassVar[bool] = True

    step: int
    sample_start: int
    sample_end: int
    consumed_samples: int
    consumed_tokens: int
    applied: bool
    loss: float
    grad_norm: float
    learning_rate: float
    global_batch_size: int
    loss_scale: float | None
    time_s: dict[str, float]
    tokens_per_second: float
    tflops_per_device: float | None
    flops_formula: str | None
    ended_at: float
    validation: dict[str, Any] | None
    batch_digest: str
    prev: str
    digest: str

    @property
    def validation_loss(self) -> float | None:
        """Blend-weighted held-out loss after this step, None where none was measured."""
        return None if self.validation is None else self.validation["loss"]

    def to_line(self) -> str:
        """The line of `rings.jsonl`, without its newline."""
        return canonical_json(asdict(self))

    @classmethod
    def from_line(cls, line: str, where: str) -> Self:
        """Parses a line and checks its digest.

        Args:
            line: one line of `rings.jsonl`.
            where: file and line number, for errors.

        Raises:
            EvidenceError: the line is not a ring, or its content does not give the digest in it.
        """
        content = parse_ring(line, where, _KINDS)
        if any(mark in line for mark in _NAMING):
            content = named_floats(content)
        refuse(content, where, of_other_kinds(content, _KINDS))
        refuse(content, where, _wrong_inside(content))
        return cls(**content)


def _wrong_inside(content: dict[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """Fields of the ring's objects that are not what they must be: name, value, what was expected."""
    for name in ("step", "sample_start", "global_batch_size"):
        if content[name] < (0 if name == "sample_start" else 1):
            yield name, content[name], "a positive number"
    for part, seconds in content["time_s"].items():
        if type(seconds) not in _NUMBER:
            yield f"time_s.{part}", seconds, "a number"
    if "step" not in content["time_s"]:
        yield "time_s", content["time_s"], "the seconds of the whole step as `step`"
    validation = content["validation"]
    if validation is None:
        return
    if type(validation.get("loss")) not in _NUMBER:
        yield "validation.loss", validation.get("loss"), "a number"
    by_corpus = validation.get("by_corpus")
    if not isinstance(by_corpus, dict):
        yield "validation.by_corpus", by_corpus, "a loss for each corpus"
    else:
        yield from (
            (f"validation.by_corpus.{corpus}", loss, "a number")
            for corpus, loss in by_corpus.items()
            if type(loss) not in _NUMBER
        )


_NUMBER = (float, int)
_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("step", "sample_start", "sample_end", "consumed_samples", "consumed_tokens"), (int,)),
    **dict.fromkeys(("loss", "grad_norm", "learning_rate", "tokens_per_second", "ended_at"), _NUMBER),
    **dict.fromkeys(("loss_scale", "tflops_per_device"), (*_NUMBER, type(None))),
    **dict.fromkeys(("batch_digest", "prev", "digest"), (str,)),
    "applied": (bool,),
    "global_batch_size": (int,),
    "time_s": (dict,),
    "flops_formula": (str, type(None)),
    "validation": (dict, type(None)),
}


def named_floats(value: Any) -> Any:
    """Turns the names of non-finite numbers back into floats."""
    if isinstance(value, str):
        return _NAMED_FLOATS.get(value, value)
    if isinstance(value, dict):
        return {key: named_floats(item) for key, item in value.items()}
    return value
