"""The audit of a checkpoint: which data trained it, how often, and how much of that is proven."""

from collections.abc import Sequence

from treering.audit.content import Progress, check_batches, check_corpora, check_files, quiet
from treering.audit.lineage import check_lineage
from treering.audit.path import Recorded, Stretch, check_records, passed_over, read_path, stretches_to
from treering.audit.report import NOT_REPLAYED, UNSIGNED, AuditReport, Finding, Level
from treering.audit.shelf import Shelf, find_corpora
from treering.audit.usage import check_held_out, licence_totals, path_usage
from treering.project import Project
from treering.runlog.directory import CheckpointDirectory


def audit_checkpoint(
    checkpoint: CheckpointDirectory, project: Project, verify: bool = False, progress: Progress = quiet
) -> AuditReport:
    """Audits a checkpoint, of a run's folder or a published one.

    Re-derives the data order, checks the chain of rings and holds every ring's range against the schedule. With
    `verify`, digests corpora and checkpoint files again and recomputes every batch digest on the path.

    Args:
        checkpoint: what to audit.
        project: where corpora lie.
        verify: whether to read content.
        progress: told about the slow parts.

    Returns:
        The report; what does not hold stands in its findings.

    Raises:
        EvidenceError: config, header or manifest cannot be read or was changed, so that there is nothing to audit.
    """
    stretches = stretches_to(checkpoint)
    recorded = read_path(checkpoint, stretches)
    findings = [*recorded.findings, *check_records(checkpoint, recorded)]
    shelf = find_corpora(project, [stretch.blend for stretch in stretches])
    usage = path_usage(stretches, shelf)
    held_out, overlaps = check_held_out(project, shelf, usage)
    findings += overlaps
    findings += check_lineage(checkpoint, shelf, project, verify=verify)
    bound = None
    if verify:
        findings += shelf.missing.values()
        findings += check_files(checkpoint, progress)
        findings += check_corpora(stretches, shelf, progress)
        bound, different = check_batches(recorded, shelf, progress)
        findings += different

    manifest, resolved = checkpoint.manifest, checkpoint.run.resolved
    level = _level(stretches, recorded, findings, bound)
    return AuditReport(
        checkpoint=str(checkpoint.path),
        experiment=resolved.experiment,
        run=resolved.run_id,
        path=tuple(stretch.describe() for stretch in stretches),
        passed_over=tuple(passed_over(stretches)),
        step=manifest.step,
        consumed_samples=manifest.consumed_samples,
        consumed_tokens=manifest.consumed_tokens,
        applied_steps=manifest.applied_steps,
        digests={
            "checkpoint": checkpoint.digest,
            "ring": manifest.ring,
            "recipe": manifest.run,
            "blend": manifest.blend,
            "tokenizer": manifest.tokenizer,
            "code": manifest.code,
            "environment": manifest.environment,
            "upstream": manifest.upstream,
        },
        corpora=usage.corpora,
        licences=licence_totals(usage.corpora),
        held_out=held_out,
        level=level,
        verify=verify,
        steps_recorded=recorded.steps,
        steps_content_bound=bound,
        findings=tuple(findings),
        not_proven=tuple(_not_proven(level, shelf, stretches, verify=verify, bound=bound == manifest.step)),
    )


def _level(stretches: Sequence[Stretch], recorded: Recorded, findings: Sequence[Finding], bound: int | None) -> Level:
    """The highest level of which nothing is missing."""
    if any(stretch.blend.declared for stretch in stretches) or any(finding.kind == "record" for finding in findings):
        return Level.DECLARED
    if recorded.findings or recorded.steps != stretches[-1].last_step:
        return Level.REDERIVED
    if findings or bound != recorded.steps:
        return Level.RECORDED
    return Level.CONTENT_BOUND


def _not_proven(level: Level, shelf: Shelf, stretches: Sequence[Stretch], *, verify: bool, bound: bool) -> list[str]:
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
    open_ends += [finding.text for finding in shelf.missing.values()]
    if any(stretch.segment.attempt.header.continue_changed for stretch in stretches):
        open_ends.append("That one code and environment did all steps: an attempt went on after a change, as recorded.")
    open_ends.append(NOT_REPLAYED)
    open_ends.append(UNSIGNED)
    return open_ends
