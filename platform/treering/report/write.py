"""Stage `report`: audits the published checkpoint and writes page, chart and metrics."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from treering.audit.checkpoint import audit_checkpoint
from treering.audit.report import AuditReport
from treering.errors import EvidenceError, UserError
from treering.files import write_durably
from treering.metrics.alarms import NON_FINITE, RULES, SPIKE
from treering.progress import Progress, quiet
from treering.project import Project
from treering.report.chart import loss_chart, write_chart
from treering.report.facts import Facts, Missing
from treering.report.page import render_page

METRICS = "report.json"
"""File below `metrics/` that holds the documents' counts and the audit's numbers."""

CHART = "loss.svg"


def write_report(facts: Facts, project: Project, progress: Progress = quiet) -> AuditReport:
    """Writes `report.md`, `plots/loss.svg` and `metrics/report.json`.

    Args:
        facts: what the stages left.
        project: where it goes.
        progress: called during the slow parts of the audit.

    Returns:
        The audit of the published checkpoint.

    Raises:
        UserError: a stage has not run yet.
        EvidenceError: the audit has findings; the report is written all the same and lists them.
    """
    if facts.missing:
        first = facts.missing[0]
        raise UserError(f"report: stage {first.stage} is missing: {first.reason}")
    if isinstance(facts.training, Missing) or isinstance(facts.evaluations, Missing):
        raise UserError("report: there is no training to report on; `dvc repro evaluate` trains and evaluates")
    audit = audit_checkpoint(facts.training.checkpoint, project, verify=True, progress=progress)
    chart = write_chart(project.plots / CHART, loss_chart(facts.training, facts.evaluations[-1].unigram_entropy))
    write_durably(project.report, render_page(facts, audit, project, chart=chart))
    project.metrics.mkdir(exist_ok=True)
    text = json.dumps(report_metrics(facts, audit), indent=2) + "\n"
    write_durably(project.metrics / METRICS, text)
    if not audit.holds:
        finding = audit.findings[0]
        raise EvidenceError(
            f"audit of the published checkpoint {audit.verdict}; first: {finding.text}",
            file=None if finding.file is None else Path(finding.file),
            line=finding.line,
            step=finding.step,
            found=audit.verdict,
        )
    return audit


def report_metrics(facts: Facts, audit: AuditReport) -> dict[str, Any]:
    """What DVC compares between pipelines; no clock, no digest of a record that holds one."""
    metrics: dict[str, Any] = {"run": audit.run, "step": audit.step}
    if not isinstance(facts.documents, Missing):
        total = facts.documents[-1]
        metrics["documents"] = {
            "taken": total.taken,
            **{f"dropped_by_{step}": count for step, count in total.dropped.items()},
            "train": total.train,
            "heldout": total.heldout,
        }
    if not isinstance(facts.tokens, Missing):
        metrics["tokens"] = {row.corpus: row.train for row in facts.tokens}
    metrics["audit"] = {
        "verdict": audit.verdict,
        "steps": audit.step,
        "steps_content_bound": audit.steps_content_bound,
        "findings": len(audit.findings),
    }
    if not isinstance(facts.training, Missing):
        raised = Counter(alarm.rule for alarm in facts.training.alarms)
        metrics["spikes"] = raised[SPIKE] + raised[NON_FINITE]
        metrics["alarms"] = {rule: raised[rule] for rule in RULES}
    return metrics
