"""What is signed: an in-toto Statement v1, its subject a checkpoint's files, its predicate what made them.

Source: https://github.com/in-toto/attestation, spec/v1 (Statement, ResourceDescriptor, DigestSet). The predicate is
ours, described in docs/attestation.md. Its evidence is a pure function of the checkpoint, so a check builds it anew and
compares field by field; assurance, time and tool are what the signer says.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
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

import treering
from treering.audit.evidence.path import RecordedSegment
from treering.audit.report import UNSIGNED, AuditReport, Level, ReplayedSteps
from treering.config.canonical import DIGEST_PREFIX, canonical_json, digest_file, parse_json
from treering.config.model import Digest
from treering.config.resolve import CONFIG_FILE
from treering.errors import EvidenceError
from treering.runlog.directory import MANIFEST_FILE, CheckpointDirectory
from treering.runlog.journal import Evaluated
from treering.runlog.records import Evaluation

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
            EvidenceError: it is no statement of this kind.
        """
        try:
            return cls.model_validate(parse_json(payload))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in first["loc"])
            raise EvidenceError(
                f"{source}: no {PREDICATE_TYPE} in an in-toto Statement v1: {place}: {first['msg']}"
            ) from None
        except ValueError as error:
            raise EvidenceError(f"{source}: the payload is no JSON ({error})") from None

    def to_bytes(self) -> bytes:
        """The payload: canonical JSON."""
        return canonical_json(self.model_dump(mode="json", by_alias=True)).encode()


def subjects(checkpoint: CheckpointDirectory) -> tuple[Subject, ...]:
    """The checkpoint's files with the digests of its manifest, and the manifest's own bytes."""
    digests = {record.path: record.digest for record in checkpoint.manifest.files}
    digests[MANIFEST_FILE] = digest_file(checkpoint.manifest_file)
    return tuple(
        Subject(name=name, digest={"sha256": digest.removeprefix(DIGEST_PREFIX)})
        for name, digest in sorted(digests.items())
    )


def evidence(checkpoint: CheckpointDirectory, report: AuditReport, stretches: Sequence[RecordedSegment]) -> Evidence:
    """What the checkpoint and its run log show.

    Args:
        checkpoint: the checkpoint.
        report: its audit.
        stretches: the attempts that led to it.
    """
    resolved, manifest = checkpoint.run.resolved, checkpoint.manifest
    blend = resolved.blend
    return Evidence(
        run=RunIdentity(id=resolved.run_id, recipe=resolved.recipe.digest, experiment=resolved.experiment),
        checkpoint=Cut(
            manifest=checkpoint.digest,
            step=manifest.step,
            consumed_samples=manifest.consumed_samples,
            consumed_tokens=manifest.consumed_tokens,
            applied_steps=manifest.applied_steps,
        ),
        ring=manifest.ring,
        blend=Blend(
            digest=blend.digest,
            algorithm=blend.algorithm,
            seed=blend.seed,
            sequence_length=blend.sequence_length,
            components=tuple(
                Component(corpus=each.corpus, digest=each.digest, weight=each.weight) for each in blend.components
            ),
        ),
        consumed=tuple(
            Consumed(corpus=usage.corpus, digest=usage.digest, samples=usage.samples, tokens=usage.tokens)
            for usage in report.corpora
        ),
        ancestry=tuple(_segment(stretch) for stretch in stretches),
        records=tuple(
            RecordFile(name=name, digest=digest_file(path)) for name, path in record_files(stretches).items()
        ),
        tokenizer=manifest.tokenizer,
        code=manifest.code,
        environment=manifest.environment,
        upstream=manifest.upstream,
        evaluations=_evaluations(checkpoint),
    )


def _evaluations(checkpoint: CheckpointDirectory) -> tuple[EvaluationFact, ...]:
    """The evaluations of a checkpoint, each with its entry in the journal.

    Raises:
        EvidenceError: one of them, or the journal, does not hold.
    """
    run = checkpoint.run
    entries = {
        line.entry.evaluation: line.digest
        for line in run.evaluation_journal.lines()
        if isinstance(line.entry, Evaluated) and not line.entry.found
    }
    found = [Evaluation.read(path) for path in sorted(run.evaluations_folder.glob("step-*.json"))]
    return tuple(
        EvaluationFact(
            record=digest,
            harness=record.harness,
            tasks=record.tasks,
            scores=record.scores_digest,
            items=record.items_digest,
            entry=entries.get(digest),
        )
        for record, digest in found
        if record.checkpoint == checkpoint.digest
    )


def _segment(stretch: RecordedSegment) -> Segment:
    attempt = stretch.segment.attempt
    return Segment(
        run=stretch.segment.run.resolved.recipe.digest,
        attempt=attempt.number,
        first_step=stretch.first_step,
        last_step=stretch.last_step,
        header=attempt.header_digest,
        blend=stretch.blend.digest,
        code=attempt.header.code["digest"],
        environment=attempt.header.environment["digest"],
    )


def record_files(stretches: Sequence[RecordedSegment]) -> dict[str, Path]:
    """The records that a path stands on, by the names that a statement gives them."""
    files: dict[str, Path] = {}
    for stretch in stretches:
        run, attempt = stretch.segment.run, stretch.segment.attempt
        files[f"{run.id}/{CONFIG_FILE}"] = run.config_file
        files[f"{run.id}/{attempt.header_file.relative_to(run.path)}"] = attempt.header_file
    return files


def build(
    checkpoint: CheckpointDirectory, report: AuditReport, stretches: Sequence[RecordedSegment], at: str
) -> Statement:
    """The statement about an audited checkpoint.

    Args:
        checkpoint: the checkpoint.
        report: its audit, without findings.
        stretches: the attempts that led to it.
        at: time of signing, `YYYY-MM-DDThh:mm:ssZ`.
    """
    return Statement(
        subject=subjects(checkpoint),
        predicate=Predicate(
            evidence=evidence(checkpoint, report, stretches),
            assurance=Assurance(
                level=report.level,
                steps_recorded=report.steps_recorded,
                steps_content_bound=report.steps_content_bound,
                replay=report.replay and Replay(**asdict(report.replay)),
                not_proven=tuple(text for text in report.not_proven if text != UNSIGNED),
            ),
            attested_at=at,
            tool=Tool(version=treering.__version__),
        ),
    )


def differences(signed: Any, found: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two JSON values differ.

    Yields:
        Dotted path, what was signed and what was found; None stands for what one side lacks.
    """
    if isinstance(signed, dict) and isinstance(found, dict):
        for key in (*signed, *(key for key in found if key not in signed)):
            yield from differences(signed.get(key), found.get(key), f"{place}.{key}" if place else key)
    elif isinstance(signed, list) and isinstance(found, list):
        for number in range(max(len(signed), len(found))):
            one, other = (side[number] if number < len(side) else None for side in (signed, found))
            yield from differences(one, other, f"{place}[{number}]")
    elif signed != found or type(signed) is not type(found):
        yield place, signed, found
