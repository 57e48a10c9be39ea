"""Builds the statement about a checkpoint from the checkpoint, its run log and its audit.

The evidence is a pure function of checkpoint and run log, so a check builds it again and compares field by field.
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import treering
from treering.audit.attestation.statement import (
    Assurance,
    Blend,
    Component,
    Consumed,
    Cut,
    EvaluationFact,
    Evidence,
    Predicate,
    RecordFile,
    Replay,
    RunIdentity,
    Segment,
    Statement,
    Subject,
    Tool,
)
from treering.audit.evidence.segments import RecordedSegment
from treering.audit.report import UNSIGNED, AuditReport
from treering.config.canonical import DIGEST_PREFIX, digest_file
from treering.config.resolved import CONFIG_FILE
from treering.runlog.directory import MANIFEST_FILE, CheckpointDirectory
from treering.runlog.journal import Evaluated
from treering.runlog.records import Evaluation


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
    """The records of a path, by the names that a statement gives them."""
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
