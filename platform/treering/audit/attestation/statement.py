"""What is signed: an in-toto Statement v1, its subject a checkpoint's files, its predicate what made them.

Source: https://github.com/in-toto/attestation, spec/v1 (Statement, ResourceDescriptor, DigestSet). The predicate is
ours: evidence comes from the checkpoint and its run log (`audit.attestation.build`);
assurance, time and tool are what the signer states.

Fields of the predicate:

- `evidence.run`: id, digest of the recipe, name of the experiment
- `evidence.checkpoint`: digest of the manifest, step, samples and tokens consumed, steps applied
- `evidence.ring`: digest of the last ring: the head of the chain of all rings before it
- `evidence.blend`: digest, algorithm, seed, sequence length, and of each corpus digest and weight
- `evidence.consumed`: samples and tokens that the whole path read of each corpus
- `evidence.ancestry`: from the root on: run, attempt, first and last step, digests of header, blend, code, environment
- `evidence.records`: sha256 of `resolved.json` and each attempt's `header.json`, byte for byte
- `evidence.tokenizer`, `code`, `environment`, `upstream`: digests, as the checkpoint's manifest names them
- `evidence.evaluations`: of each evaluation of the checkpoint: digests of record, tasks, scores and results by item,
  harness, and its entry in the journal; left out by earlier versions
- `assurance`: the level that the signer's audit reached, steps recorded and content-bound, what was replayed, what is
  not proven
- `attestedAt`, `tool`: time by the signer's clock (UTC), and the version of Treering
"""

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic.alias_generators import to_camel

from treering.audit.report import Level, ReplayedSteps
from treering.config.canonical import canonical_json, parse_json
from treering.config.model import Digest
from treering.errors import EvidenceError

StatementType = Literal["https://in-toto.io/Statement/v1"]


PredicateType = Literal["urn:treering:attestation:training:v1"]


STATEMENT_TYPE: StatementType = "https://in-toto.io/Statement/v1"


PREDICATE_TYPE: PredicateType = "urn:treering:attestation:training:v1"


class Part(BaseModel):
    """A part of a statement: JSON in camel case, as in-toto asks for; fields that it does not know are an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


class Subject(Part):
    """One file of the checkpoint, by its path in the checkpoint's folder."""

    name: str
    digest: dict[Literal["sha256"], str]


class RunIdentity(Part):
    """The run that the checkpoint belongs to."""

    id: str
    recipe: Digest
    experiment: str


class Cut(Part):
    """Where in the run the checkpoint was cut; `manifest` is its identity."""

    manifest: Digest
    step: int
    consumed_samples: int
    consumed_tokens: int
    applied_steps: int


class Component(Part):
    """One corpus of the blend."""

    corpus: str
    digest: Digest | None
    weight: str


class Blend(Part):
    """The data order of the run."""

    digest: Digest
    algorithm: str
    seed: int
    sequence_length: int
    components: tuple[Component, ...]


class Consumed(Part):
    """What the whole path read of one corpus."""

    corpus: str
    digest: Digest | None
    samples: int
    tokens: int


class Segment(Part):
    """Steps of one attempt on the path, from the root on."""

    run: Digest
    attempt: int
    first_step: int
    last_step: int
    header: Digest
    blend: Digest
    code: str = Field(description="as the header says, in whatever form")
    environment: str


class RecordFile(Part):
    """A record of the run log, byte for byte; the rings need none, `ring` chains them."""

    name: str = Field(description="<run id>/<path in the run's folder>")
    digest: Digest


class EvaluationFact(Part):
    """One evaluation of the checkpoint."""

    record: Digest = Field(description="digest of the evaluation")
    harness: str
    tasks: dict[str, Digest]
    scores: Digest = Field(description="digest of all scores")
    items: Digest | None = Field(description="digest of the results by item")
    entry: Digest | None = Field(description="its entry in the journal of evaluations; None where it is not anchored")


class Evidence(Part):
    """What a checkpoint and its run log show: the same for everyone who has them."""

    run: RunIdentity
    checkpoint: Cut
    ring: Digest
    blend: Blend
    consumed: tuple[Consumed, ...]
    ancestry: tuple[Segment, ...]
    records: tuple[RecordFile, ...]
    tokenizer: Digest | None
    code: Digest
    environment: Digest
    upstream: Digest | None
    evaluations: tuple[EvaluationFact, ...] | None = Field(
        None, description="those that were there when it was signed; left out in statements of earlier versions"
    )

    @model_serializer(mode="wrap")
    def _without_missing_evaluations(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Statements of earlier versions stay what they were, to the byte."""
        return {name: value for name, value in handler(self).items() if name != "evaluations" or value is not None}


class Replay(Part):
    """Steps that the signer's audit had trained again."""

    seed: int = Field(description="of the random choice")
    picked: tuple[int, ...] = Field(description="the steps that were chosen")
    replayed: int = Field(description="how many ran again, those between a checkpoint and a chosen step included")
    identical: int = Field(description="how many came out the same to the last bit")
    changed: tuple[str, ...] = Field(description="what was not as when they were trained, in words")

    @property
    def steps(self) -> ReplayedSteps:
        """As an audit tells it."""
        return ReplayedSteps(**self.model_dump())


class Assurance(Part):
    """What the signer's audit found at the time of signing."""

    level: Level
    steps_recorded: int
    steps_content_bound: int | None = Field(description="None if the corpora were not read")
    replay: Replay | None = Field(None, description="left out where nothing was replayed")
    not_proven: tuple[str, ...]

    @model_validator(mode="after")
    def _level_has_its_replay(self) -> Self:
        if self.level is Level.REPLAYED and (self.replay is None or self.replay.identical != self.replay.replayed):
            raise ValueError("level replayed without steps that all came out the same")
        return self

    @model_serializer(mode="wrap")
    def _without_an_empty_replay(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Statements without a replay are what they were before there was one, to the byte."""
        return {name: value for name, value in handler(self).items() if name != "replay" or value is not None}


class Tool(Part):
    """What made the statement."""

    name: Literal["treering"] = "treering"
    version: str


class Predicate(Part):
    """How the checkpoint came about."""

    evidence: Evidence
    assurance: Assurance
    attested_at: str = Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$", description="UTC, by the signer's clock")
    tool: Tool


class Statement(Part):
    """The statement."""

    type_: StatementType = Field(STATEMENT_TYPE, alias="_type")
    subject: tuple[Subject, ...]
    predicate_type: PredicateType = PREDICATE_TYPE
    predicate: Predicate

    @classmethod
    def parse(cls, payload: bytes, source: str) -> Self:
        """Reads the payload of an envelope.

        Raises:
            EvidenceError: it is not a statement of this kind.
        """
        try:
            return cls.model_validate(parse_json(payload))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in first["loc"])
            raise EvidenceError(
                f"{source}: not a {PREDICATE_TYPE} in an in-toto Statement v1: {place}: {first['msg']}",
                file=Path(source),
                found=first.get("input"),
                expected=first["msg"],
            ) from None
        except ValueError as error:
            raise EvidenceError(f"{source}: the payload is not JSON ({error})", file=Path(source)) from None

    def to_bytes(self) -> bytes:
        """The payload: canonical JSON."""
        return canonical_json(self.model_dump(mode="json", by_alias=True)).encode()
