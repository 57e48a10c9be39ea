"""The documents of a run: an attempt's header and end, a checkpoint's manifest, an evaluation."""

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ModelWrapValidatorHandler, ValidationError, computed_field, field_validator, model_validator

from treering.config.canonical import digest_json, said_otherwise
from treering.config.layout import Layout
from treering.config.model import Digest, GrowingSection, PositiveInt, Section, contradiction
from treering.config.operation import AttemptConfig, EvaluationConfig
from treering.errors import EvidenceError
from treering.runlog.document import document_text, parse_document, read_document, write_document

RunState = Literal["empty", "running", "finished", "interrupted", "failed", "broken"]


class Record(Section):
    """A document that is stored under its own digest."""

    def write(self, path: Path) -> str:
        """Writes it durably and returns its digest."""
        return write_document(path, self.model_dump(mode="json"))

    @classmethod
    def read(cls, path: Path) -> tuple[Self, str]:
        """Reads and checks it.

        Returns:
            The record and its digest.

        Raises:
            EvidenceError: it is missing, was changed, or has other fields than this version knows.
        """
        return cls._checked(*read_document(path), path)

    def text(self) -> tuple[str, str]:
        """What `write` writes, and its digest, for another place than a file."""
        return document_text(self.model_dump(mode="json"))

    @classmethod
    def parse(cls, text: bytes, path: Path) -> Self:
        """Checks what `text` made; `path` names it in errors.

        Raises:
            EvidenceError: as `read`.
        """
        return cls._checked(*parse_document(text, path), path)[0]

    @classmethod
    def _checked(cls, content: dict[str, Any], digest: str, path: Path) -> tuple[Self, str]:
        try:
            record = cls.model_validate(content)
        except ValidationError as error:
            first, *more = error.errors(include_url=False, include_context=True)
            place = ".".join(str(part) for part in first["loc"])
            others = f"; and {len(more)} more fields" if more else ""
            raise EvidenceError(
                f"{path}: {place}: {first['msg']}: not a {cls.__name__} of this version{others}",
                file=path,
                found=first["input"],
                expected=f"{place}: {first['msg']}",
            ) from error
        for field, expected, found in said_otherwise(record.model_dump(mode="json"), content):
            text = f"{path}: {field} is {found!r}, expected {expected!r}: a value of another type"
            raise EvidenceError(text, file=path, found=found, expected=expected)
        return record, digest


class AttemptLayout(Layout):
    """The layout of an attempt, and what its ranks ran on."""

    device: str = Field(description="cpu or cuda")
    backend: str = Field(description="gloo or nccl")

    @computed_field  # type: ignore[prop-decorator]  # as pydantic documents it
    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return super().world_size

    @model_validator(mode="wrap")
    @classmethod
    def _world_size_follows(cls, values: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        """Takes the number of ranks out of a document, and compares it with the sizes."""  # noqa: DOC501 the error is made by a function
        if not isinstance(values, dict) or "world_size" not in values:
            return validate(values)
        layout = validate({name: value for name, value in values.items() if name != "world_size"})
        if values["world_size"] != layout.world_size:
            expected = f"tensor x pipeline x data = {layout.world_size}"
            raise contradiction("world_size", str(values["world_size"]), expected)
        return layout


class Kernel(Section):
    """One operation's implementation: what was asked for, what ran, and why they differ."""

    operation: str
    requested: str
    used: str
    reason: str = ""


class Parent(Section):
    """The checkpoint that an attempt went on from."""

    run: Digest
    attempt: PositiveInt
    step: PositiveInt
    ring: Digest
    checkpoint: Digest


class HookSource(Section):
    """Where a hook's code comes from: it runs beside training and is not part of the code's digest."""

    name: str
    object: str = Field(description="module and class, as the package's entry point names them")
    distribution: str
    version: str


class NondeterministicOperation(Section):
    """An operation that may give other bits when it is repeated."""

    operation: str
    why: str


class KnownNondeterminism(Section):
    """The operations of an attempt that are known not to be deterministic."""

    operations: tuple[NondeterministicOperation, ...] = ()
    reason: str = Field(description="how it is known, or why none is")


class RandomStates(Section):
    """The random streams of all ranks at the beginning of an attempt, by digest."""

    saved: Digest | None = Field(
        description="that the next step of the run's checkpoint draws from, by its manifest; None in older manifests, "
        "and where the attempt does not continue"
    )
    begun: Digest = Field(description="that the attempt's first step draws from, read back on every rank after loading")


class AttemptHeader(Record, GrowingSection):
    """What an attempt was started with; its digest is `prev` of the attempt's first ring."""

    added = frozenset({"hooks", "random_states", "nondeterminism"})

    attempt: PositiveInt
    run: Digest
    blend: Digest
    parent: Parent | None
    origin: Literal["start", "resume", "restart"] = Field(description="restart: code or environment changed")
    changed: tuple[str, ...] = Field(description="what differs from the attempt before, in words")
    continue_changed: bool = Field(description="whether it went on although something had changed")
    started_at: float = Field(description="Unix seconds")
    host: str
    process: int
    config: AttemptConfig
    layout: AttemptLayout
    code: dict[str, Any] = Field(
        description="digest, rule of the digest (absent in older headers: by bytes), sources, commit, dirty, diff"
    )
    environment: dict[str, Any] = Field(description="digest, python, packages, variables, drivers")
    devices: tuple[dict[str, Any], ...]
    kernels: tuple[Kernel, ...]
    corpora: dict[str, Digest] = Field(description="corpus name to digest, recomputed from the bytes when opened")
    upstream: Digest | None = Field(description="dvc.lock's entry of the stages above, None outside DVC")
    nodes: tuple[dict[str, Any], ...] | None = Field(
        None, description="under an outer launcher each node: host, first rank, devices, driver, kernel, memory"
    )
    launch: dict[str, Any] | None = Field(
        None, description="what started the ranks, if not Treering alone: launcher, Slurm job and restarts, script"
    )
    converted: Digest | None = Field(
        None, description="the parent checkpoint's conversion, which was loaded because the layout had changed"
    )
    journal: Digest | None = Field(
        None, description="the run's journal when the attempt started: digest of its last entry; None in older headers"
    )
    hooks: tuple[HookSource, ...] = Field((), description="of the hooks that the config names")
    random_states: RandomStates | None = Field(
        None, description="None where no step draws a random number (dropout 0), and in older headers"
    )
    nondeterminism: KnownNondeterminism | None = Field(
        None, description="operations known not to be deterministic; None in older headers"
    )

    @field_validator("code", "environment")
    @classmethod
    def _has_digest(cls, value: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(value.get("digest"), str):
            raise contradiction("digest", repr(value.get("digest")), "a digest")
        return value


class AttemptEnd(Record):
    """How an attempt ended; missing while it runs and for ever if it was killed."""

    status: Literal["finished", "interrupted", "failed"]
    reason: str
    step: int = Field(ge=0, description="last step with a ring")
    ended_at: float


class FileRecord(Section):
    """One file of a checkpoint."""

    path: str
    size: int = Field(ge=0)
    digest: Digest


class CheckpointManifest(Record, GrowingSection):
    """What a checkpoint is: where in the run it was cut, under which identities, and every file's digest."""

    added = frozenset({"random_states"})

    run: Digest
    attempt: PositiveInt
    step: PositiveInt
    consumed_samples: PositiveInt
    consumed_tokens: PositiveInt
    applied_steps: int = Field(ge=0)
    ring: Digest
    blend: Digest
    tokenizer: Digest | None
    code: Digest
    environment: Digest
    upstream: Digest | None
    layout: AttemptLayout
    created_at: float
    files: tuple[FileRecord, ...]
    validation_loss: float | None = Field(
        None, description="held-out loss of the run's newest ring that has one, at or before the step"
    )
    journal: Digest | None = Field(
        None, description="the run's journal when the checkpoint was saved: digest of its last entry"
    )
    random_states: Digest | None = Field(
        None,
        description="of the random streams that the next step draws from, over all ranks; None where no step draws "
        "a random number (dropout 0), and in older manifests",
    )


class ConversionManifest(Record):
    """What a conversion is: a checkpoint of one layout once more, in DeepSpeed's universal form, which any can load."""

    run: Digest
    step: PositiveInt
    source: Digest = Field(description="the checkpoint that it was made from")
    layout: AttemptLayout = Field(description="of that checkpoint")
    converter: str = Field(description="program and version that made it")
    created_at: float
    files: tuple[FileRecord, ...]


LOG_LIKELIHOOD = "log_likelihood"
"""Beside the metrics in an evaluation's `items`: the log-likelihood of each item's right answer."""


EXAMPLES = "examples"
"""Beside the fields of the items in an evaluation's `fields`: the labels of the examples in each item's prompt."""


class TaskDefinition(Section):
    """What the scores of a task depend on beside the checkpoint."""

    version: str | None = Field(None, description="of the definition of a task of lm-eval")
    files: dict[str, Digest] = Field({}, description="digest of the user's file by split")
    prompts: dict[str, Digest] = Field(description="number of shots -> digest of all prompts and answers")


class Evaluation(Record, GrowingSection):
    """Scores of one checkpoint.

    `scores` maps task -> number of shots (as text) -> metric -> value; a metric has its `<metric>_stderr` beside it
    where the harness gives one, and its filter behind a dot where lm-eval names one (`exact_match.strict-match`).
    Three numbers are no metrics: `items` scored, `examples` that stood in the prompt on average (the shots that the
    sequence really held), `truncated` items whose context was cut on the left.

    An item of a task of lm-eval is called `line N`, after its line in the user's file. For tasks whose definition lists
    them, `fields` repeats what a breakdown of the scores needs, with the same task, shots and ids as `items`; for HANS
    `heuristic`, `subcase` and `label` (0 entailment, 1 not), and `examples`: the labels of the examples that the model
    read in the prompt, in their order, separated by a space; the last one is next to the question.
    """

    added = frozenset({"anchored", "device", "definitions", "fields"})

    run: Digest
    step: PositiveInt
    consumed_tokens: PositiveInt
    checkpoint: Digest
    harness: str = Field(description="name and version of the evaluation harness")
    settings: EvaluationConfig | None = Field(None, description="shots and limits")
    tasks: dict[str, Digest] = Field(description="digest of each task's items")
    corpora: dict[str, Digest] = Field(default_factory=dict, description="digest of each held-out corpus")
    scores: dict[str, dict[str, dict[str, float]]]
    items: dict[str, dict[str, dict[str, dict[str, float]]]] | None = Field(
        None,
        description="task -> number of shots -> metric, or log_likelihood (of the right answer, nats) -> id of the "
        "item -> value, where the harness gives them",
    )
    fields: dict[str, dict[str, dict[str, dict[str, str]]]] = Field(
        {}, description="task -> number of shots -> field, or examples -> id of the item -> text"
    )
    definitions: dict[str, TaskDefinition] = Field({}, description="by task; empty in older records")
    perplexity: dict[str, dict[str, float]] = Field(
        description="held-out corpus -> loss and unigram_entropy (nats a token), perplexity, tokens"
    )
    validation_loss: float = Field(description="blend-weighted held-out loss, nats a token")
    unigram_entropy: float = Field(description="of the same held-out tokens, same weights, nats a token")
    device: str | None = Field(None, description="what computed the scores: cpu, cuda:0 …; None in older records")
    anchored: bool = Field(False, description="whether it has an entry in the journal of evaluations")

    def prompts_of(self, task: str, shots: int | None) -> str | None:
        """Digest of the prompts behind a score; None in older records."""
        definition = self.definitions.get(task)
        return None if definition is None else definition.prompts.get(str(shots))

    @property
    def scores_digest(self) -> str:
        """Digest of all scores: of the tasks, and the held-out losses."""
        return digest_json(
            {
                "scores": self.scores,
                "perplexity": self.perplexity,
                "validation_loss": self.validation_loss,
                "unigram_entropy": self.unigram_entropy,
            }
        )

    @property
    def items_digest(self) -> str | None:
        """Digest of the results by item; None where there are none."""
        return None if self.items is None else digest_json(self.items)
