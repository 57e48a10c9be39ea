"""What an audit says: levels of assurance, findings, and what a checkpoint read of each corpus."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, Self

from treering.data.blend.joins import CorpusJoin
from treering.errors import EvidenceError


class Level(StrEnum):
    """How much is shown, each level holding the ones before it."""

    DECLARED = "declared"
    """Records name it; nothing was recomputed."""
    REDERIVED = "re-derived"
    """The data order was recomputed from the blend."""
    RECORDED = "recorded"
    """The chain of rings holds, and every ring's range is the schedule's."""
    CONTENT_BOUND = "content-bound"
    """Every batch digest was recomputed from the corpora's bytes."""
    REPLAYED = "replayed"
    """Random steps were trained again from the checkpoint before them and came out the same to the last bit."""
    ATTESTED = "attested"
    """A trusted key signed what the records say; what was signed is still what they say."""


FindingKind = Literal["record", "ring", "batch", "corpus", "checkpoint", "attestation", "lineage"]

NOT_REPLAYED = "That the weights follow from these steps: nothing was replayed."
"""What an audit leaves open until steps are trained again."""

UNSIGNED = "That nobody trained outside the log or rewrote all of it consistently: the checkpoint is not signed."
"""What every audit leaves open until an attestation holds."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that does not hold.

    Attributes:
        kind: what it is about: a record (header, manifest, config), a ring, a batch's content, a corpus, a file of the
            checkpoint, an attestation, what DVC says it was made from.
        text: what failed, where, found, expected, and what helps.
        file: the file concerned.
        line: line of `file`, from 1.
        corpus: name of the corpus.
        document: id of the document.
        step: step of the ring; for a document, the first step that read it, None if this checkpoint never did.
        start: first byte of the damaged chunk of `file`.
        end: byte after its last one.
    """

    kind: FindingKind
    text: str
    file: str | None = None
    line: int | None = None
    corpus: str | None = None
    document: str | None = None
    step: int | None = None
    start: int | None = None
    end: int | None = None

    @classmethod
    def from_error(
        cls, error: Exception, kind: FindingKind, file: Path | None = None, *, corpus: str | None = None
    ) -> Self:
        """The finding that an error reports.

        Line and step are filled for a ring alone: any other record is read whole, and its text names the line.

        Args:
            error: the error.
            kind: what it is about.
            file: the file concerned; default the one that the error names.
            corpus: name of the corpus concerned.
        """
        if not isinstance(error, EvidenceError):
            return cls(kind, str(error), file=None if file is None else str(file), corpus=corpus)
        place = error.file if file is None else file
        line, step = (error.line, error.step) if kind == "ring" else (None, None)
        return cls(kind, str(error), file=None if place is None else str(place), line=line, corpus=corpus, step=step)


class Judged:
    """What the reports of all audits have: findings, and whether there are none."""

    __slots__ = ()
    findings: tuple[Finding, ...]

    @property
    def holds(self) -> bool:
        """Whether nothing was found that does not hold."""
        return not self.findings

    def failed(self, reached: str) -> str:
        """The verdict where something was found, in a line that ends with what was reached."""
        return f"FAILED with {len(self.findings)} finding{'' if len(self.findings) == 1 else 's'}; {reached}"


@dataclass(frozen=True, slots=True)
class Gap:
    """Evidence that an answer needs and that is missing or wrong, with what is answered without it.

    Every answer of the audit names its gaps in this form: a person and a program read what is missing, what helps,
    and how far the rest of the answer can be trusted.

    Attributes:
        missing: what, where, found, expected, and the command that helps.
        answered: what is answered without it, in words.
        level: the level that this part of the answer still reaches.
        file: the file concerned.
        corpus: name of the corpus concerned.
    """

    missing: str
    answered: str
    level: Level
    file: str | None = None
    corpus: str | None = None

    @classmethod
    def from_error(
        cls,
        error: Exception,
        answered: str,
        level: Level,
        file: Path | None = None,
        *,
        corpus: str | None = None,
        helps: str = "",
    ) -> Self:
        """The gap that an error reports.

        Args:
            error: the error.
            answered: what is answered without what the error is about, in words.
            level: the level that this part of the answer still reaches.
            file: the file concerned.
            corpus: name of the corpus concerned.
            helps: what helps, to follow the error's text.
        """
        missing = f"{error}; {helps}" if helps else str(error)
        return cls(missing, answered, level, None if file is None else str(file), corpus)

    @property
    def text(self) -> str:
        """Both in one line."""
        return f"{self.missing}; still answered ({self.level}): {self.answered}"

    def finding(self) -> Finding:
        """The same as a finding: what is missing does not hold."""
        return Finding("record" if self.corpus is None else "corpus", self.missing, file=self.file, corpus=self.corpus)


def json_fields(answer: Any) -> dict[str, Any]:
    """The fields of an answer as JSON values. In JSON the field `gaps` is named `shortfalls`."""
    return {"shortfalls" if name == "gaps" else name: value for name, value in asdict(answer).items()}


def lowest(level: Level, gaps: Iterable[Gap]) -> Level:
    """The level of an answer: the lowest of its own level and the levels of its gaps."""
    return min((level, *(each.level for each in gaps)), key=list(Level).index)


def messages(gaps: Iterable[Gap], notes: Iterable[str] = ()) -> tuple[str, ...]:
    """What an answer could not look into, each once: evidence that is missing, and other notes."""
    return tuple(dict.fromkeys((*notes, *(each.text for each in gaps))))


@dataclass(frozen=True, slots=True)
class AttemptOnPath:
    """A stretch of steps that one attempt did on the way to the checkpoint.

    Attributes:
        run: id of the run that the attempt belongs to.
        attempt: its number.
        first_step: first step of the stretch.
        last_step: last step of the stretch.
        code: digest of the code.
        environment: digest of the environment.
        changed: what differed from the attempt before, in words.
        path: the attempt's folder.
    """

    run: str
    attempt: int
    first_step: int
    last_step: int
    code: str
    environment: str
    changed: tuple[str, ...]
    path: str


@dataclass(frozen=True, slots=True)
class PassedOver:
    """Samples of a data order that a run skipped: neither read nor applied.

    Attributes:
        run: id of the run.
        step: its first step, before which they would have been read.
        sample_start: the first of them.
        sample_end: end of their range, exclusive.
    """

    run: str
    step: int
    sample_start: int
    sample_end: int


@dataclass(frozen=True, slots=True)
class CurationStep:
    """What one step of curation decided about a corpus.

    Attributes:
        step: its name.
        kept: documents that it kept.
        dropped: documents that it dropped.
    """

    step: str
    kept: int
    dropped: int


@dataclass(frozen=True, slots=True)
class HeldOut:
    """What was held out of training.

    Attributes:
        documents: held-out documents that are available.
        overlapping: held-out documents that were read, equal token by token; 0 is expected.
    """

    documents: int
    overlapping: int


@dataclass(frozen=True, slots=True)
class CorpusUsage:
    """What the checkpoint read of one corpus.

    Attributes:
        corpus: name.
        digest: identity; None if it is only declared.
        licence: licence by its manifest, None if the corpus is missing.
        weight: share of the samples, decimal string.
        samples: samples read.
        tokens: samples x sequence length.
        planned_epochs: epochs that the weight asks for.
        realised_epochs: epochs really read.
        documents_touched: distinct documents of which at least one token was read; None if the corpus is missing.
        num_documents: documents held.
        unread_tokens: tokens after its last whole sample, which no epoch reads.
        path: where the corpus was found, None if nowhere.
        licences: tokens read by licence of their documents, most first; None if the corpus is missing.
        curation: decisions of curation about the corpus, by step; empty if the corpus is missing.
    """

    corpus: str
    digest: str | None
    licence: str | None
    weight: str
    samples: int
    tokens: int
    planned_epochs: float
    realised_epochs: float
    documents_touched: int | None
    num_documents: int | None
    unread_tokens: int
    path: str | None
    licences: dict[str, int] | None
    curation: tuple[CurationStep, ...]


@dataclass(frozen=True, slots=True)
class ReplayedSteps:
    """Steps of the path that were trained again.

    Attributes:
        seed: of the random choice.
        picked: the steps that were chosen.
        replayed: how many ran again, those between a checkpoint and a chosen step included.
        identical: how many of them came out the same to the last bit.
        changed: what was not as when they were trained, in words.
    """

    seed: int
    picked: tuple[int, ...]
    replayed: int
    identical: int
    changed: tuple[str, ...]

    @property
    def text(self) -> str:
        """One line."""
        picked = ", ".join(f"{step:,}" for step in self.picked)
        count = f"{self.identical:,} of {self.replayed:,} steps that ran again are the same to the last bit"
        return f"steps {picked} (seed {self.seed}): {count}" + "".join(f"; {each}" for each in self.changed)


@dataclass(frozen=True, slots=True)
class SignedStatement:
    """The attestation that holds for a checkpoint.

    Attributes:
        file: the attestation's file.
        key: id of the trusted key that signed it.
        at: when, by the signer's clock, UTC.
        signed_level: level that the signer's audit had reached.
        level: level that this audit reached without it.
        signed_replay: what the signer's audit had replayed, None if nothing.
    """

    file: str
    key: str
    at: str
    signed_level: Level
    level: Level
    signed_replay: ReplayedSteps | None = None


@dataclass(frozen=True, slots=True)
class AuditReport(Judged):
    """The audit of one checkpoint.

    Attributes:
        checkpoint: its folder.
        experiment: name of the experiment.
        run: id of its run.
        path: the attempts that led to it, from the root on.
        passed_over: samples that the path skipped on purpose, as around a loss spike.
        step: steps on the path.
        consumed_samples: samples read.
        consumed_tokens: tokens read.
        applied_steps: steps that moved the weights.
        digests: of checkpoint, ring, recipe, blend, tokenizer, code, environment, upstream; None where there is none.
        corpora: what was read of each corpus.
        licences: tokens read by licence, most first.
        held_out: what was held out, None without a held-out corpus.
        level: level of assurance reached.
        verify: whether content was asked to be verified.
        steps_recorded: steps whose ring is in the chain with the schedule's range.
        steps_content_bound: steps whose batch digest was recomputed and is equal; None if not asked for.
        findings: what does not hold; empty if all does.
        not_proven: what remains open, in words.
        attestation: the attestation that holds; None if none was found, or no trusted key was given.
        replay: what was trained again, None if nothing was.
        gaps: what is missing on the way to the checkpoint, and what is answered without it; findings too.
        joins: where each corpus goes on at the places of the path where a run starts from another run.
    """

    checkpoint: str
    experiment: str
    run: str
    path: tuple[AttemptOnPath, ...]
    passed_over: tuple[PassedOver, ...]
    step: int
    consumed_samples: int
    consumed_tokens: int
    applied_steps: int
    digests: dict[str, str | None]
    corpora: tuple[CorpusUsage, ...]
    licences: dict[str, int]
    held_out: HeldOut | None
    level: Level
    verify: bool
    steps_recorded: int
    steps_content_bound: int | None
    findings: tuple[Finding, ...]
    not_proven: tuple[str, ...]
    attestation: SignedStatement | None = None
    replay: ReplayedSteps | None = None
    gaps: tuple[Gap, ...] = ()
    joins: tuple[CorpusJoin, ...] = ()

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels reached, in order; a signature does not bring those that this audit left out."""
        own, order = self.level if self.attestation is None else self.attestation.level, list(Level)
        signed = () if self.attestation is None else (Level.ATTESTED,)
        return (*order[: order.index(own) + 1], *signed)

    @property
    def verdict(self) -> str:
        """One line: `content-bound: 300 of 300 steps`, `recorded: 300 of 300 steps`, `attested; …`, or `FAILED …`."""
        steps = self.steps_recorded if self.steps_content_bound is None else self.steps_content_bound
        name = Level.RECORDED if self.steps_content_bound is None else Level.CONTENT_BOUND
        counted = f"{name}: {steps:,} of {self.step:,} steps"
        if self.holds:
            return counted if self.attestation is None else f"{Level.ATTESTED}; {counted}"
        return self.failed(counted)

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values, the verdict with it."""
        return {"verdict": self.verdict, "holds": self.holds, **json_fields(self)}
