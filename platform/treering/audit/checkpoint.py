"""The audit of a checkpoint: which data trained it, how often, and how much of that is proven."""

from collections.abc import Sequence

from treering.audit.corpora.catalog import Catalog
from treering.audit.corpora.content import check_batches, check_corpora, check_files
from treering.audit.corpora.heldout import HeldOutDocuments
from treering.audit.corpora.usage import licence_totals, path_documents
from treering.audit.dvc.lineage import check_lineage
from treering.audit.evidence.record_fields import check_records
from treering.audit.evidence.recovery import RecoveredAncestry
from treering.audit.evidence.rings import Recorded, read_path
from treering.audit.evidence.segments import Piece, RecordedSegment, passed_over, path_joins
from treering.audit.recovered import CheckpointEvidence, recover_evidence
from treering.audit.report import NOT_REPLAYED, UNSIGNED, AuditReport, Finding, Level, lowest
from treering.progress import Progress, quiet
from treering.project import Project
from treering.runlog.directory import CheckpointDirectory
from treering.runlog.mirror import NOT_MIRRORED


def audit_checkpoint(
    checkpoint: CheckpointDirectory, project: Project, verify: bool = False, progress: Progress = quiet
) -> AuditReport:
    """Audits a checkpoint, of a run's folder or a published one.

    Re-derives the data order, checks the chain of rings and compares every ring's range with the schedule. With
    `verify`, digests corpora and checkpoint files again and recomputes every batch digest on the path.

    Args:
        checkpoint: what to audit.
        project: where corpora are.
        verify: whether to read content.
        progress: is called with the state of the slow parts.

    Returns:
        The report, with what does not hold in its findings. Where a record is missing, the report has what is known
        without the record, at a lower level, and names the record among its gaps.

    Raises:
        EvidenceError: neither manifest nor config can be read, so nothing can be audited.
    """
    return audit_evidence(recover_evidence(checkpoint, project), project, verify, progress)


def audit_evidence(
    evidence: CheckpointEvidence, project: Project, verify: bool = False, progress: Progress = quiet
) -> AuditReport:
    """`audit_checkpoint` for evidence that was read before.

    Args:
        evidence: from `recover_evidence`.
        project: where corpora are.
        verify: whether to read content.
        progress: is called with the state of the slow parts.

    Raises:
        EvidenceError: a record changed since the evidence was read.
    """
    ancestry, catalog, pieces = evidence.ancestry, evidence.catalog, evidence.pieces
    checkpoint, findings = ancestry.checkpoint, list(evidence.findings)
    doubt = checkpoint.run.mirror_doubt  # a mirror has no weights
    recorded = Recorded(pieces)
    if pieces:
        recorded = read_path(checkpoint, pieces)
        findings = [*recorded.findings, *findings, *check_records(checkpoint, recorded)]
    changed = check_corpora(pieces, catalog, progress) if verify else []  # first: no damaged index is asked below
    read = path_documents(pieces, catalog, HeldOutDocuments.of(project), progress)
    findings += read.overlaps
    if pieces and ancestry.manifest is not None:
        findings += check_lineage(checkpoint, pieces[-1], catalog, project, verify=verify)
    bound = None
    if verify:
        findings += catalog.missing.values()
        findings += check_files(checkpoint, progress) if ancestry.manifest is not None and not doubt else ()
        findings += changed
        bound, different = check_batches(recorded, catalog, progress)
        findings += different
    else:
        findings += [*catalog.damaged.values(), *read.damages]
    level = lowest(_level(pieces, recorded, findings, bound, lacking=bool(ancestry.gaps)), ancestry.gaps)
    findings = [*(each.finding() for each in ancestry.gaps), *findings]
    step, samples, tokens, applied = _progress(ancestry, recorded)
    return AuditReport(
        checkpoint=str(checkpoint.path),
        experiment=checkpoint.run.resolved.experiment if pieces else "unknown",
        run=ancestry.run_id,
        path=tuple(piece.describe() for piece in pieces if isinstance(piece, RecordedSegment)),
        passed_over=tuple(passed_over(pieces)),
        step=step,
        consumed_samples=samples,
        consumed_tokens=tokens,
        applied_steps=applied,
        digests=_digests(ancestry),
        corpora=read.corpora,
        licences=licence_totals(read.corpora),
        held_out=read.held_out,
        level=level,
        verify=verify,
        steps_recorded=recorded.steps,
        steps_content_bound=bound,
        findings=tuple(findings),
        not_proven=(
            *_not_proven(level, catalog, pieces, verify=verify, bound=bound == step),
            *([NOT_MIRRORED.format(doubt)] if doubt else ()),
        ),
        gaps=tuple(each for each in (*ancestry.gaps, recorded.gap) if each is not None),
        joins=tuple(path_joins(pieces)),
    )


def _progress(ancestry: RecoveredAncestry, recorded: Recorded) -> tuple[int, int, int, int]:
    """Steps, samples and tokens by the manifest, or by the schedule where it is gone; and steps applied."""
    if ancestry.manifest is not None:
        said = ancestry.manifest
        return said.step, said.consumed_samples, said.consumed_tokens, said.applied_steps
    resolved, step = ancestry.checkpoint.run.resolved, ancestry.checkpoint.step
    return step, resolved.consumed_samples(step), resolved.consumed_tokens(step), recorded.applied_steps


def _digests(ancestry: RecoveredAncestry) -> dict[str, str | None]:
    manifest = ancestry.manifest
    if manifest is None:
        recipe = ancestry.checkpoint.run.resolved.recipe
        return {"recipe": recipe.digest, "blend": recipe.blend, "tokenizer": recipe.tokenizer}
    return {
        "checkpoint": ancestry.checkpoint.digest,
        "ring": manifest.ring,
        "recipe": manifest.run,
        "blend": manifest.blend,
        "tokenizer": manifest.tokenizer,
        "code": manifest.code,
        "environment": manifest.environment,
        "upstream": manifest.upstream,
    }


def _level(
    pieces: Sequence[Piece], recorded: Recorded, findings: Sequence[Finding], bound: int | None, *, lacking: bool
) -> Level:
    """The highest level that nothing contradicts; `lacking` tells whether a record is missing."""
    if not pieces or any(piece.blend.declared for piece in pieces):
        return Level.DECLARED
    if any(finding.kind == "record" for finding in findings):
        return Level.DECLARED
    if recorded.findings or recorded.steps != pieces[-1].last_step:
        return Level.REDERIVED
    if findings or lacking or bound != recorded.steps:
        return Level.RECORDED
    return Level.CONTENT_BOUND


def _not_proven(level: Level, catalog: Catalog, pieces: Sequence[Piece], *, verify: bool, bound: bool) -> list[str]:
    open_ends = []
    if level is Level.DECLARED:
        open_ends.append("The data order: the records contradict each other or name no content.")
    if level in (Level.DECLARED, Level.REDERIVED):
        open_ends.append("The rings do not show that the run followed the order; see the findings.")
    if not bound:
        open_ends.append(
            "That the tokens fed were those of the corpora: "
            + ("see the findings." if verify else "batch digests were not recomputed; `--verify` does it.")
        )
    open_ends += [finding.text for finding in catalog.missing.values()]
    headers = [piece.attempt.header for piece in pieces if isinstance(piece, RecordedSegment)]
    if any(header.continue_changed for header in headers):
        open_ends.append("That one code and environment did all steps: an attempt went on after a change, as recorded.")
    open_ends.append(NOT_REPLAYED)
    open_ends.append(UNSIGNED)
    return open_ends
