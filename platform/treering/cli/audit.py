"""`treering audit` and `treering batch`: from a checkpoint, or a step, to the documents."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from treering.cli.megatron import audit_megatron
from treering.cli.output import (
    JsonOption,
    NamedCheckpoint,
    PublicKeyOption,
    console,
    print_json,
    print_table,
    project,
    trusted_keys,
)
from treering.config.canonical import short
from treering.foreign import shown

if TYPE_CHECKING:
    from treering.audit.corpora.content import Progress
    from treering.audit.documents.batch import StepBatch
    from treering.audit.report import AttemptOnPath, AuditReport, Shortfall
    from treering.audit.summary import CheckpointSummary
    from treering.data.order.continuation import CorpusJoin
    from treering.errors import TreeringError
    from treering.runlog.directory import CheckpointDirectory

RankOption = Annotated[
    int | None, typer.Option("--rank", min=0, help="Only the samples that this rank's data-parallel replica read.")
]
MegatronRunOption = Annotated[
    Path | None,
    typer.Option(
        "--megatron-run",
        metavar="PATH",
        help="A checkpoint or save folder of Megatron or GPT-NeoX, a description (YAML), a YAML file of GPT-NeoX, or a"
        " launch script.",
    ),
]
DataRootOption = Annotated[
    list[str] | None,
    typer.Option(
        "--data-root", metavar="OLD=NEW", help="Of a Megatron run: where a folder of it lies today; repeatable."
    ),
]
LineageOption = Annotated[
    str | None,
    typer.Option(
        "--lineage",
        metavar="NAME",
        help="Of a Megatron run: whose data order it followed, as megatron-core-0.12, bigscience or gpt-neox.",
    ),
]
StepOption = Annotated[int | None, typer.Option("--step", min=1, help="Of a Megatron run: the documents of a step.")]
DocumentOption = Annotated[
    str | None,
    typer.Option("--document", metavar="PREFIX:NUMBER", help="Of a Megatron run: what read a document."),
]
ReplayOption = Annotated[
    int | None,
    typer.Option(
        "--replay", min=1, metavar="K", help="Also train K random steps again, from the checkpoint before each."
    ),
]
VerifyOption = Annotated[
    bool, typer.Option("--verify", help="Read content: digest the corpora again, recompute every batch digest.")
]
DocumentsOption = Annotated[
    Path | None,
    typer.Option(
        "--documents", metavar="FILE", help="Also write every document that was read, and how much of it, as Parquet."
    ),
]
AttestationOption = Annotated[
    Path | None, typer.Option("--attestation", metavar="FILE", help="Default: the one beside the checkpoint.")
]


SummaryOption = Annotated[
    bool, typer.Option("--summary", help="Samples, tokens and epochs by the records alone, within milliseconds.")
]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("audit")(audit)
    app.command("batch")(batch)


def audit(
    checkpoint: NamedCheckpoint = "",
    *,
    verify: VerifyOption = False,
    replay: ReplayOption = None,
    summary: SummaryOption = False,
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

    Of an exported folder, it audits the checkpoint that it was made from. With `--public-key` it checks the attestation
    beside the checkpoint, and what was signed raises the level of assurance. `--replay` verifies, then has the trainer
    run random steps again in a copy of the run; one that does not come out the same to the last bit does not hold.

    With `--megatron-run` it audits a checkpoint of a run that Megatron trained without Treering, by the arguments
    inside the checkpoint, or by files that say how it was launched; `--step` and `--document` ask of that.
    Programs order the same data in several ways; `--lineage` says whose way it was where the arguments fit several.

    Where a record is missing it says what helps, and answers at a lower level what is known without it.

    `--documents FILE` lists every document that was read: corpus, number, id, source, licence, tokens, tokens read.

    `--summary` reads neither rings nor corpora: what was read of each corpus, by records and data order, and whether
    the records fit each other.

    Ends with exit code 3 where something does not hold, is missing, or is not bound.

    Example: `treering audit runs/0123456789abcdef/checkpoints/step-00000300 --verify`
    """
    from treering.audit.attestation.check import attested
    from treering.errors import EvidenceError

    _check_usage(checkpoint, megatron_run, (step, document, data_root, lineage), documents)
    try:
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
            if not holds:
                raise typer.Exit(EvidenceError.exit_code)
            return
        found, report = _audited(checkpoint, verify=verify or replay is not None)
        report, unreplayed = (report, None) if replay is None else _replayed(report, found, replay)
        report = attested(report, found, trusted_keys(public_key), attestation)
        listed = _list_documents(found, documents)
    except EvidenceError as error:
        if json:  # a machine gets its verdict even where there is nothing left to audit
            finding = {"kind": "record", "text": str(error)}
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
    if not report.holds:
        raise typer.Exit(EvidenceError.exit_code)


def _check_usage(
    checkpoint: str, megatron_run: Path | None, of_megatron: "Sequence[object]", documents: Path | None
) -> None:
    from treering.errors import UserError

    if (megatron_run is None) == (not checkpoint) or (megatron_run is None and any(of_megatron)):
        raise UserError(
            "audit: expected a CHECKPOINT, or --megatron-run PATH, to which --step, --document, --data-root and "
            "--lineage belong"
        )
    if megatron_run is not None and documents is not None:
        raise UserError("audit: --documents belongs to a CHECKPOINT of Treering's own trainer")


def _list_documents(checkpoint: "CheckpointDirectory", file: Path | None) -> list[str]:
    """Writes the documents that a checkpoint read, if there is a file to write; returns the lines about it."""
    from treering.audit.documents.training import training_documents

    if file is None:
        return []
    documents = training_documents(checkpoint, project())
    return ["", f"documents    {documents.write(file):,} written to {file}, at most level {documents.level}"]


def _summarize(checkpoint: str, *, alone: bool, json: bool) -> None:
    """Prints the summary of a checkpoint."""
    from treering.audit.summary import summarize
    from treering.errors import EvidenceError, UserError
    from treering.runlog.find import named_checkpoint

    if not alone:
        raise UserError("audit: --summary reads records alone and goes with no other option but --json")
    found = summarize(named_checkpoint(project().runs, checkpoint))
    if json:
        print_json(found.to_json())
    else:
        _print_summary(found)
    if not found.holds:
        raise typer.Exit(EvidenceError.exit_code)


def _print_summary(found: "CheckpointSummary") -> None:
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
    console.print("", f"not looked into: {found.not_looked_into}")
    for finding in found.findings:
        console.print(f"FAILED       {finding.text}")
    console.print("", found.verdict)


def _audited(checkpoint: str, *, verify: bool) -> "tuple[CheckpointDirectory, AuditReport]":
    """The audit of a checkpoint, of a run's folder, of a published or of an exported one."""
    from dataclasses import replace

    from treering.audit.checkpoint import audit_checkpoint
    from treering.audit.export import exported_checkpoint
    from treering.runlog.export import EXPORT_RECORD
    from treering.runlog.find import named_checkpoint

    here, folder = project(), Path(checkpoint)
    found, shortfalls = (
        exported_checkpoint(folder, here)
        if (folder / EXPORT_RECORD).exists()
        else (named_checkpoint(here.runs, checkpoint), ())
    )
    with progress_bars() as progress:
        report = audit_checkpoint(found, here, verify, progress)
    findings = (*(each.finding() for each in shortfalls), *report.findings)
    return found, replace(report, findings=findings, shortfalls=(*shortfalls, *report.shortfalls))


def _replayed(
    report: "AuditReport", checkpoint: "CheckpointDirectory", count: int
) -> "tuple[AuditReport, TreeringError | None]":
    """The report with a replay; where that cannot be done the report as it is, which stands all the same, and why."""
    from treering.audit.replay import replay_steps, replayed
    from treering.errors import TreeringError

    try:
        return replayed(report, replay_steps(checkpoint, count)), None
    except TreeringError as error:
        return report, error


def batch(
    run: Annotated[str, typer.Argument(help="Any unique prefix of a run's id, or its folder.")],
    step: Annotated[int, typer.Argument(min=1, help="The step, from 1.")],
    rank: RankOption = None,
    json: JsonOption = False,
) -> None:
    """Show the documents of a step's batch with their text, of the whole batch or of one rank's replica.

    What is not at hand is named: without a corpus its samples are shown without documents, without a ring what schedule
    and blend give the step.

    Ends with exit code 3 where the corpora do not give the batch digest that the ring recorded, or one is missing.

    Example: `treering batch 0123 120`
    """
    from treering.audit.documents.batch import step_batch
    from treering.errors import EvidenceError
    from treering.runlog.find import find_run

    here = project()
    found = step_batch(find_run(here.runs, run), step, here, rank)
    if json:
        print_json(found.to_json())
    else:
        _print_batch(found)
    if not found.content_bound or found.shortfalls:
        raise typer.Exit(EvidenceError.exit_code)


@contextmanager
def progress_bars() -> "Iterator[Progress]":
    """A bar for each slow part on standard error, nothing where nobody watches."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    terminal = Console(stderr=True)
    with Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal) as bars:
        tasks: dict[str, Any] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(shown(what), total=total)
            bars.update(tasks[what], completed=done)

        yield show


def print_report(report: "AuditReport") -> None:
    """Prints an audit for people."""
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
            [usage.corpus, usage.licence or "not at hand", short(usage.digest, 24) if usage.digest else "declared"]
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
        if not any(each in text for each in failed):  # said once, below
            console.print(f"  - {text}")
    for finding in report.findings:
        console.print(f"FAILED       {finding.text}")
    print_shortfalls(report.shortfalls)
    console.print("", report.verdict)


def print_joins(joins: "Sequence[CorpusJoin]") -> None:
    """Prints where corpora do not go on where they stopped, for each run that starts from another run."""
    from treering.data.order.continuation import join_lines

    for line in join_lines(joins):
        console.print(line)


def print_shortfalls(shortfalls: "Iterable[Shortfall]", *, missing: bool = False) -> None:
    """Prints what is answered although something is missing, and with `missing` what that is."""
    for each in shortfalls:
        if missing:
            console.print(f"missing      {each.missing}")
        console.print(f"answered     {each.answered} (level {each.level})")


def _print_path(report: "AuditReport | CheckpointSummary") -> None:
    console.print(f"checkpoint   {report.checkpoint}")
    console.print(f"experiment   {report.experiment}")
    console.print(f"run          {report.run}")
    for number, attempt in enumerate(report.path):
        console.print(f"{'' if number else 'path':<12} {_attempt(attempt, report.run)}")
    for gap in report.passed_over:
        console.print(
            f"passed over  samples {gap.sample_start:,} to {gap.sample_end:,} before step {gap.step:,} of run "
            f"{gap.run}: neither read nor applied"
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


def _print_batch(found: "StepBatch") -> None:
    whose = "" if found.rank is None else f" of rank {found.rank}"
    attempt = "no attempt on record" if found.attempt is None else f"attempt {found.attempt}"
    console.print(f"run {found.run}, {attempt}, step {found.step}: {len(found.samples)} samples{whose}")
    if found.recorded_digest is None:
        console.print("batch digest not on record")
    elif found.recomputed_digest is None:
        console.print(f"batch digest {found.recorded_digest} is the ring's; not recomputed")
    else:
        equal = "equals" if found.content_bound else "DIFFERS FROM"
        console.print(f"batch digest {found.recomputed_digest}", f"             {equal} the ring's")
        if not found.content_bound:
            console.print(f"ring's       {found.recorded_digest}")
    console.print(f"assurance    {found.level}")
    print_shortfalls(found.shortfalls, missing=True)
    for sample in found.samples:
        place = "" if sample.replica is None else f", replica {sample.replica}, micro-batch {sample.micro_batch}"
        console.heading(
            f"sample {sample.g:,}: {sample.corpus}, epoch {sample.epoch}, index {sample.index:,}, tokens "
            f"{sample.first_token:,} to {sample.end_token:,}{place}"
        )
        for part in sample.documents:
            console.print(
                f"{part.document}  tokens {part.start:,} to {part.end:,} of {part.num_tokens:,}  {part.source}  "
                f"{part.licence}",
                style="bold",
            )
            if part.text is not None:
                console.print_text(part.text)
