"""`treering audit`: which data trained a checkpoint."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treering.cli.audit_report import print_report, print_summary
from treering.cli.megatron import audit_megatron
from treering.cli.options import (
    JsonOption,
    NamedCheckpoint,
    PublicKeyOption,
    ReplayOption,
    VerifyOption,
    project,
    trusted_keys,
)
from treering.cli.output import console, print_json
from treering.cli.recorded import blend_content, print_recorded_audit
from treering.progress import progress_bars

if TYPE_CHECKING:
    from treering.audit.recorded.content import Content
    from treering.audit.recorded.feed import StepFeed
    from treering.audit.recovered import CheckpointEvidence
    from treering.audit.report import AuditReport
    from treering.errors import TreeringError
    from treering.runlog.directory import CheckpointDirectory
    from treering.runlog.recorded_directory import RecordedRunDirectory, RecordedSegment


MegatronRunOption = Annotated[
    Path | None,
    typer.Option(
        "--megatron-run",
        metavar="PATH",
        help="A checkpoint or save folder of Megatron or GPT-NeoX, a description in YAML, a config of GPT-NeoX, or a "
        "launch script.",
    ),
]
DataRootOption = Annotated[
    list[str] | None,
    typer.Option("--data-root", metavar="OLD=NEW", help="Megatron run: the folder OLD is now at NEW; repeatable."),
]
LineageOption = Annotated[
    str | None,
    typer.Option(
        "--lineage",
        metavar="NAME",
        help="Megatron run: the fork whose data order it has, like megatron-core-0.12, bigscience or gpt-neox.",
    ),
]
StepOption = Annotated[
    int | None,
    typer.Option("--step", metavar="STEP", min=1, help="Megatron run: show the documents that this step read."),
]
DocumentOption = Annotated[
    str | None,
    typer.Option("--document", metavar="PREFIX:NUMBER", help="Megatron run: show the steps that read this document."),
]
DocumentsOption = Annotated[
    Path | None,
    typer.Option(
        "--documents",
        metavar="FILE",
        help="Also write every document that was read, and how much of it, to this Parquet file.",
    ),
]
AttestationOption = Annotated[
    Path | None,
    typer.Option(
        "--attestation", metavar="FILE", help="The attestation to check; default: the file beside the checkpoint."
    ),
]
SummaryOption = Annotated[
    bool, typer.Option("--summary", help="Only show samples, tokens and epochs by the records, within milliseconds.")
]
RestartsOption = Annotated[
    bool, typer.Option("--restarts", help="Only say for each restart of a run whether it changed anything.")
]


def audit(
    checkpoint: NamedCheckpoint = "",
    *,
    verify: VerifyOption = False,
    replay: ReplayOption = None,
    summary: SummaryOption = False,
    restarts: RestartsOption = False,
    documents: DocumentsOption = None,
    public_key: PublicKeyOption = None,
    attestation: AttestationOption = None,
    megatron_run: MegatronRunOption = None,
    data_root: DataRootOption = None,
    lineage: LineageOption = None,
    step: StepOption = None,
    document: DocumentOption = None,
    json: JsonOption = False,
) -> None:
    """Show which data trained a checkpoint, and how much of that is proven.

    CHECKPOINT may also be an exported folder: then the checkpoint that it was made from is audited. Where a record is
    missing, the audit answers what is known without it, at a lower level, and names what helps.

    `--verify` digests the corpora and recomputes every batch digest. `--replay K` also trains K random steps again in a
    copy of the run, and compares every bit. With `--public-key`, the attestation beside the checkpoint is checked, and
    what was signed raises the level of assurance.

    For a run of another trainer, recorded with `treering.start`, it shows what each restart repeated or skipped. Beside
    such a run, `--megatron-run PATH` recomputes every sample by Megatron's order.

    `--documents FILE` lists every document that was read: corpus, number, id, source, licence, tokens, tokens read.
    `--summary` reads neither rings nor corpora: it shows what was read of each corpus by the records and the data
    order, and whether the records fit each other.

    `--megatron-run PATH` audits a checkpoint of a run that Megatron trained without Treering, by the arguments in the
    checkpoint, or by files that say how it was launched. `--step` and `--document` then ask about a step or a document.
    Megatron's forks order the same data in different ways; where the arguments fit several forks, `--lineage` names the
    fork.

    Exit codes:
        0: everything holds
        3: something does not hold, is missing, or is not bound
        6: with `--restarts`, a restart changed something

    Examples:
        treering audit published --verify
        treering audit --restarts 0123
        treering audit 0123 --documents read.parquet
        treering audit --megatron-run checkpoints/iter_0005000 --step 4711
        treering audit 0123 --megatron-run checkpoints/iter_0005000

    Raises:
        EvidenceError: nothing can be audited, and the answer is not JSON.
        Exit: something does not hold.
    """
    from treering.audit.attestation.check import attested
    from treering.audit.report import Finding
    from treering.errors import EvidenceError

    if restarts:
        from treering.cli.restarts import print_restarts

        of_megatron = (megatron_run, data_root, lineage, step, document)
        alone = not any((verify, replay, summary, documents, public_key, attestation, *of_megatron))
        print_restarts(checkpoint, alone=alone, json=json)
        return
    try:
        own_alone = (summary, replay, documents, public_key, attestation, step, document)
        content = partial(_recomputed, megatron_run=megatron_run, data_root=data_root or (), lineage=lineage)
        recompute = verify or megatron_run is not None
        if checkpoint and _audit_recorded(checkpoint, own_alone, content if recompute else None, json=json):
            return
        _check_usage(checkpoint, megatron_run, (step, document, data_root, lineage), documents)
        if summary:
            others = (verify, replay, documents, public_key, attestation, megatron_run)
            _summarize(checkpoint, alone=not any(others), json=json)
            return
        if megatron_run is not None:
            holds = audit_megatron(
                megatron_run,
                data_root=data_root or (),
                lineage=lineage,
                step=step,
                document=document,
                verify=verify,
                json=json,
            )
            _exit_unless(holds=holds)
            return
        found, evidence, report = _audited(checkpoint, verify=verify or replay is not None)
        report, unreplayed = (report, None) if replay is None else _replayed(report, found, replay)
        report = attested(report, found, trusted_keys(public_key), attestation)
        listed = _list_documents(evidence, documents)
    except EvidenceError as error:
        if json:  # a program gets a verdict even if nothing can be audited
            finding = asdict(Finding.from_error(error, "record"))
            asked = checkpoint or str(megatron_run)
            print_json({"verdict": f"FAILED: {error}", "holds": False, "checkpoint": asked, "findings": [finding]})
            raise typer.Exit(error.exit_code) from None
        raise
    if json:
        print_json(report.to_json())
    else:
        print_report(report)
        if listed:
            console.print(*listed)
    if unreplayed is not None:
        raise unreplayed
    _exit_unless(holds=report.holds)


def _exit_unless(*, holds: bool) -> None:
    from treering.errors import EvidenceError

    if not holds:
        raise typer.Exit(EvidenceError.exit_code)


def _check_usage(
    checkpoint: str, megatron_run: Path | None, of_megatron: "Sequence[object]", documents: Path | None
) -> None:
    """Checks that the options of the audit fit together.

    Raises:
        UserError: the options do not fit together.
    """
    from treering.errors import UserError

    if (megatron_run is None) == (not checkpoint) or (megatron_run is None and any(of_megatron)):
        raise UserError(
            "audit: expected a CHECKPOINT, or --megatron-run PATH, to which --step, --document, --data-root and "
            "--lineage belong; both together for a recorded run alone"
        )
    if megatron_run is not None and documents is not None:
        raise UserError("audit: --documents belongs to a CHECKPOINT of Treering's own trainer")


def _recomputed(
    run: "RecordedRunDirectory",
    segments: "Sequence[RecordedSegment]",
    by_segment: "Sequence[Sequence[StepFeed]]",
    *,
    megatron_run: Path | None,
    data_root: "Sequence[str]",
    lineage: str | None,
) -> "Content":
    """The samples of a path of a recorded run, recomputed from the project's corpora, or by Megatron's order.

    Raises:
        UserError: the run has no data order.
        EvidenceError: a corpus is missing.
    """
    from treering.errors import UserError

    if megatron_run is not None:
        from treering.audit.megatron.moved import parse_moved
        from treering.audit.megatron.run import AuditedRun
        from treering.audit.recorded.megatron_content import check_megatron_content

        megatron = AuditedRun.open(megatron_run, verify=True, moved=parse_moved(data_root), lineage=lineage)
        return check_megatron_content(run, by_segment, megatron)
    if not run.blend_file.exists():
        raise UserError(
            f"audit: run {run.id} reports its samples and no data order, so --verify has nothing to recompute; read "
            "the samples through treering.BlendDataset, and pass it as treering.start(data=...), or, where Megatron "
            "trained, name its checkpoint with --megatron-run"
        )
    return blend_content(run, segments, by_segment)


def _audit_recorded(
    checkpoint: str,
    others: "Sequence[object]",
    content: "Callable[..., Content] | None",
    *,
    json: bool,
) -> bool:
    """Prints the audit of a run of another trainer, and returns whether it is one.

    Raises:
        UserError: an option was given that such a run does not have.
    """
    from treering.audit.recorded.report import audit_recorded
    from treering.errors import UserError
    from treering.runlog.find import find_recorded

    recorded = find_recorded(project().runs, checkpoint)
    if recorded is None:
        return False
    if any(others):
        raise UserError(
            f"audit: run {recorded[0].id} was recorded by another trainer; its audit takes --verify, --json, and "
            "--megatron-run with --data-root and --lineage, and no other option"
        )
    found = audit_recorded(*recorded, None if content is None else partial(content, recorded[0]))
    if json:
        print_json(found.to_json())
    else:
        print_recorded_audit(found)
    _exit_unless(holds=found.holds)
    return True


def _list_documents(evidence: "CheckpointEvidence", file: Path | None) -> list[str]:
    """Writes the documents that a checkpoint read, if `file` is given; returns the lines to print."""
    from treering.audit.documents.training import documents_of

    if file is None:
        return []
    documents = documents_of(evidence)
    return ["", f"documents    {documents.write(file):,} written to {file}, at most level {documents.level}"]


def _summarize(checkpoint: str, *, alone: bool, json: bool) -> None:
    """Prints the summary of a checkpoint.

    Raises:
        UserError: another option was given.
        Exit: something does not hold.
    """
    from treering.audit.summary import summarize
    from treering.errors import UserError
    from treering.runlog.find import named_checkpoint

    if not alone:
        raise UserError(
            "audit: found --summary with another option, expected it alone or with --json: it only reads records"
        )
    found = summarize(named_checkpoint(project().runs, checkpoint))
    if json:
        print_json(found.to_json())
    else:
        print_summary(found)
    _exit_unless(holds=found.holds)


def _audited(checkpoint: str, *, verify: bool) -> "tuple[CheckpointDirectory, CheckpointEvidence, AuditReport]":
    """The evidence and the audit of a checkpoint of a run's folder, of a published or of an exported one."""
    from dataclasses import replace

    from treering.audit.checkpoint import audit_evidence
    from treering.audit.export import exported_checkpoint
    from treering.audit.recovered import recover_evidence
    from treering.runlog.export import EXPORT_RECORD
    from treering.runlog.find import named_checkpoint

    here, folder = project(), Path(checkpoint)
    found, gaps = (
        exported_checkpoint(folder, here)
        if (folder / EXPORT_RECORD).exists()
        else (named_checkpoint(here.runs, checkpoint), ())
    )
    with progress_bars() as progress:
        evidence = recover_evidence(found, here)
        report = audit_evidence(evidence, here, verify, progress)
    findings = (*(each.finding() for each in gaps), *report.findings)
    return found, evidence, replace(report, findings=findings, gaps=(*gaps, *report.gaps))


def _replayed(
    report: "AuditReport", checkpoint: "CheckpointDirectory", count: int
) -> "tuple[AuditReport, TreeringError | None]":
    """Adds a replay to the report; if the replay is impossible, returns the report unchanged, and the error."""
    from treering.audit.replay import replay_steps, replayed
    from treering.errors import TreeringError

    try:
        return replayed(report, replay_steps(checkpoint, count)), None
    except TreeringError as error:
        return report, error
