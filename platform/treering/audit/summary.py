"""What a checkpoint read of each corpus, within milliseconds: by its records and the data order alone.

Neither rings nor corpora are opened, so the cost does not grow with steps, samples or documents.
"""

from dataclasses import asdict, dataclass
from typing import Any

from treering.audit.corpora.usage import path_usage
from treering.audit.evidence.record_fields import check_records
from treering.audit.evidence.rings import Recorded
from treering.audit.evidence.segments import passed_over, path_joins, recorded_segments_to
from treering.audit.report import AttemptOnPath, CorpusUsage, Finding, Judged, Level, PassedOver
from treering.data.blend.joins import CorpusJoin
from treering.runlog.directory import CheckpointDirectory


@dataclass(frozen=True, slots=True)
class CheckpointSummary(Judged):
    """What a checkpoint read, by its records.

    Attributes:
        checkpoint: its folder.
        experiment: name of the experiment.
        run: id of its run.
        path: the attempts that led to it, from the root on.
        passed_over: samples that the path skipped on purpose.
        joins: where each corpus goes on at the places of the path where a run starts from another run.
        step: steps on the path.
        consumed_samples: samples read.
        consumed_tokens: tokens read.
        applied_steps: steps that moved the weights.
        digests: of checkpoint, ring, recipe and blend.
        corpora: samples, tokens and epochs of each corpus; nothing of its documents.
        findings: records that contradict each other.
        not_looked_into: what an audit reads beyond this.
    """

    checkpoint: str
    experiment: str
    run: str
    path: tuple[AttemptOnPath, ...]
    passed_over: tuple[PassedOver, ...]
    joins: tuple[CorpusJoin, ...]
    step: int
    consumed_samples: int
    consumed_tokens: int
    applied_steps: int
    digests: dict[str, str]
    corpora: tuple[CorpusUsage, ...]
    findings: tuple[Finding, ...]
    not_looked_into: str = "rings, documents, licences, held-out documents; `treering audit` without --summary does"

    @property
    def level(self) -> Level:
        """The level of assurance: the data order is derived again, the rings are not read."""
        return Level.REDERIVED if self.holds else Level.DECLARED

    @property
    def verdict(self) -> str:
        """One line."""
        counted = f"{self.level}: {self.step:,} steps"
        return counted if self.holds else self.failed(counted)

    def to_json(self) -> dict[str, Any]:
        """The summary as JSON values, the verdict with it."""
        return {"verdict": self.verdict, "holds": self.holds, "level": self.level, **asdict(self)}


def summarize(checkpoint: CheckpointDirectory) -> CheckpointSummary:
    """What a checkpoint read, with its records compared with each other and with the schedule.

    Raises:
        EvidenceError: config, header or manifest is missing or was changed: `audit_checkpoint` answers what is left.
    """
    path = recorded_segments_to(checkpoint)
    manifest, resolved, file = checkpoint.manifest, checkpoint.run.resolved, str(checkpoint.manifest_file)
    findings = check_records(checkpoint, Recorded(path))
    read = [(stretch, stretch.sample_range) for stretch in path]
    samples = sum(hi - lo for _, (lo, hi) in read)
    tokens = sum((hi - lo) * stretch.blend.sequence_length for stretch, (lo, hi) in read)
    for name, said, expected in (
        ("consumed_samples", manifest.consumed_samples, samples),
        ("consumed_tokens", manifest.consumed_tokens, tokens),
    ):
        if said != expected:
            text = f"{file}: {name} is {said}, expected {expected} by the schedule"
            findings.append(Finding("record", text, file=file))
    return CheckpointSummary(
        checkpoint=str(checkpoint.path),
        experiment=resolved.experiment,
        run=resolved.run_id,
        path=tuple(stretch.describe() for stretch in path),
        passed_over=tuple(passed_over(path)),
        joins=tuple(path_joins(path)),
        step=manifest.step,
        consumed_samples=manifest.consumed_samples,
        consumed_tokens=manifest.consumed_tokens,
        applied_steps=manifest.applied_steps,
        digests={
            "checkpoint": checkpoint.digest,
            "ring": manifest.ring,
            "recipe": manifest.run,
            "blend": manifest.blend,
        },
        corpora=path_usage(path),
        findings=tuple(findings),
    )
