"""How `treering audit` prints the report or the summary of a checkpoint."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from treering.cli.gaps import print_gaps
from treering.cli.output import console, print_table
from treering.config.canonical import short

if TYPE_CHECKING:
    from treering.audit.report import AttemptOnPath, AuditReport
    from treering.audit.summary import CheckpointSummary
    from treering.data.blend.joins import CorpusJoin


def print_report(report: "AuditReport") -> None:
    """Prints the report of an audit."""
    _print_path(report)
    console.print()
    print_table(
        ("corpus", "samples", "tokens", "epochs planned", "realised", "documents touched"),
        [
            [
                usage.corpus,
                f"{usage.samples:,}",
                f"{usage.tokens:,}",
                f"{usage.planned_epochs:.4f}",
                f"{usage.realised_epochs:.4f}",
                _touched(usage.documents_touched, usage.num_documents),
            ]
            for usage in report.corpora
        ],
        numbers=("samples", "tokens", "epochs planned", "realised", "documents touched"),
    )
    console.print()
    print_table(
        ("corpus", "licence", "digest"),
        [
            [usage.corpus, usage.licence or "missing", short(usage.digest, 24) if usage.digest else "declared"]
            for usage in report.corpora
        ],
    )
    total = sum(report.licences.values())
    shares = ", ".join(f"{name} {tokens:,} ({tokens / total:.1%})" for name, tokens in report.licences.items())
    console.print("", f"licences     {shares} (tokens read, by each document's licence)")
    if report.held_out is not None:
        read = report.held_out.overlapping or "none"
        console.print(f"held out     {report.held_out.documents:,} documents, {read} of them read")
    for usage in report.corpora:
        if usage.curation:
            steps = ", ".join(f"{step.step} -{step.dropped:,}" for step in usage.curation if step.dropped)
            kept = usage.curation[-1].kept
            console.print(f"curation     {usage.corpus}: {steps or 'nothing dropped'}; {kept:,} kept")
    tails = ", ".join(f"{usage.corpus} {usage.unread_tokens:,}" for usage in report.corpora if usage.unread_tokens)
    console.print("", f"unread tail  {tails or 'none'} (tokens after the last whole sample of a corpus)")
    if report.replay is not None:
        console.print("", f"replayed     {report.replay.text}")
    console.print("", f"assurance    {' → '.join(report.levels)}")
    if report.attestation is not None:
        signed = report.attestation
        console.print(f"attested     {signed.at} by key {signed.key}, at level {signed.signed_level}; {signed.file}")
        if signed.signed_replay is not None:
            console.print(f"{'':<12} replayed before it was signed: {signed.signed_replay.text}")
    console.print("not proven")
    failed = [finding.text for finding in report.findings]
    for text in report.not_proven:
        if not any(each in text for each in failed):  # is printed below
            console.print(f"  - {text}")
    for finding in report.findings:
        console.print(f"FAILED       {finding.text}")
    print_gaps(report.gaps)
    console.print("", report.verdict)


def print_summary(found: "CheckpointSummary") -> None:
    """Prints the summary of a checkpoint."""
    _print_path(found)
    console.print()
    print_table(
        ("corpus", "samples", "tokens", "epochs planned", "realised"),
        [
            [
                usage.corpus,
                f"{usage.samples:,}",
                f"{usage.tokens:,}",
                f"{usage.planned_epochs:.4f}",
                f"{usage.realised_epochs:.4f}",
            ]
            for usage in found.corpora
        ],
        numbers=("samples", "tokens", "epochs planned", "realised"),
    )
    console.print("", f"not checked: {found.not_looked_into}")
    for finding in found.findings:
        console.print(f"FAILED       {finding.text}")
    console.print("", found.verdict)


def print_joins(joins: "Sequence[CorpusJoin]") -> None:
    """Prints for each run that starts from another run which corpora do not continue where that run stopped."""
    from treering.data.blend.joins import join_lines

    for line in join_lines(joins):
        console.print(line)


def _print_path(report: "AuditReport | CheckpointSummary") -> None:
    console.print(f"checkpoint   {report.checkpoint}")
    console.print(f"experiment   {report.experiment}")
    console.print(f"run          {report.run}")
    for number, attempt in enumerate(report.path):
        console.print(f"{'' if number else 'path':<12} {_attempt(attempt, report.run)}")
    for skipped in report.passed_over:
        console.print(
            f"skipped      samples {skipped.sample_start:,} to {skipped.sample_end:,} before step {skipped.step:,} "
            f"of run {skipped.run}: neither read nor applied"
        )
    print_joins(report.joins)
    console.print(f"step         {report.step:,}, of which {report.applied_steps:,} applied")
    console.print(f"consumed     {report.consumed_samples:,} samples, {report.consumed_tokens:,} tokens", "")
    for name, digest in report.digests.items():
        console.print(f"{name:<12} {digest or 'none'}")


def _attempt(attempt: "AttemptOnPath", run: str) -> str:
    other = "" if attempt.run == run else f" of run {attempt.run}"
    changed = f", changed before it: {'; '.join(attempt.changed)}" if attempt.changed else ""
    return f"attempt {attempt.attempt}{other}: steps {attempt.first_step:,} to {attempt.last_step:,}{changed}"


def _touched(touched: int | None, held: int | None) -> str:
    return f"{'unknown' if touched is None else f'{touched:,}'} of {'unknown' if held is None else f'{held:,}'}"
