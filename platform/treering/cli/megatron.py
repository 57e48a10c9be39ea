"""`treering audit --megatron-run`: prints the answers about a Megatron run."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treering.cli.output import console, print_json, print_table

if TYPE_CHECKING:
    from treering.audit.megatron.report import MegatronReport, ReadSample, Unbound


def audit_megatron(
    path: Path,
    *,
    data_root: Sequence[str],
    lineage: str | None,
    step: int | None,
    document: str | None,
    verify: bool,
    json: bool,
) -> bool:
    """Answers one question about a Megatron run: of the checkpoint, a step, or a document.

    Raises:
        UserError: a data root is not `OLD=NEW`, or the lineage is unknown.

    Returns:
        Whether everything holds and every input is bound.
    """
    from treering.audit.megatron.moved import parse_moved
    from treering.audit.megatron.run import AuditedRun

    run = AuditedRun.open(path, verify=verify, moved=parse_moved(data_root), lineage=lineage)
    if step is None and document is None:
        report = run.report()
        if json:
            print_json(report.to_json())
        else:
            _print_report(report)
        return report.holds and not report.unbound
    about = step if document is None else None
    samples = [
        *(run.step(step) if step is not None else ()),
        *(run.exposures(document) if document is not None else ()),
    ]
    alternatives = [
        *(run.alternatives(step) if step is not None else ()),
        *(run.exposure_alternatives(document) if document is not None else ()),
    ]
    unbound, level = run.unbound_at(about, alternatives), run.level(about, alternatives)
    if json:
        print_json(
            {
                "source": str(run.source),
                "level": level,
                "unbound": [asdict(each) for each in unbound],
                "lineage": run.lineage,
                "alternatives": [asdict(alternative) for alternative in alternatives],
                "samples": [asdict(sample) for sample in samples],
                "findings": [asdict(finding) for finding in run.findings],
            }
        )
    else:
        _print_unbound(unbound)
        _print_samples(samples)
        for finding in run.findings:
            console.print(f"FAILED       {finding.text}")
        console.print(f"{len(samples):,} samples, {level}")
    return not run.findings and not unbound


def _print_unbound(unbound: "Sequence[Unbound]") -> None:
    """Prints the inputs that lower the level, before the answer."""
    for each in unbound:
        console.print(f"NOT BOUND    {each.text}")


def _print_report(report: "MegatronReport") -> None:
    from treering.audit.megatron.saved import LATEST

    _print_unbound(report.unbound)
    console.print(f"run          {report.source}")
    for setting in report.settings:
        if setting.origin != "description":
            origins = {"checkpoint": "by the checkpoint", "launch": "by the launch", "tracker": LATEST}
            said = setting.argument or origins.get(setting.origin, "default")
            console.print(f"  {setting.name:<20} {_shown(setting.value)}  ({said})")
    console.print(f"step         {report.iteration:,}")
    for launch in report.launches[1:]:
        console.print(
            f"resumed      from step {launch.first_step:,} on with other arguments: {'; '.join(launch.changed)}"
        )
    console.print(f"consumed     {report.consumed_samples:,} samples, {report.consumed_tokens:,} tokens", "")
    numbers = ("weight", "samples", "tokens", "epochs", "documents touched")
    print_table(
        ("corpus", *numbers),
        [
            [
                usage.corpus,
                f"{usage.weight:.6f}",
                f"{usage.samples:,}",
                f"{usage.tokens:,}",
                f"{usage.epochs:.4f}{' mixed' if usage.mixed_epochs else ''}",
                f"{usage.documents_touched:,} of {usage.num_documents:,}",
            ]
            for usage in report.corpora
        ],
        numbers=numbers,
    )
    if report.skipped_steps:
        steps = ", ".join(f"{step:,}" for step in report.skipped_steps)
        console.print(f"skipped      {steps} (steps whose samples were counted and not trained on)")
    if any(usage.mixed_epochs for usage in report.corpora):
        console.print("mixed: Megatron shuffled several epochs together; the epoch of a sample is undefined")
    for name in report.indices_read:
        console.print(f"index read   {name}")
    for text in report.bound:
        console.print(f"bound        {text}")
    console.print("", f"assurance    {report.level}")
    console.print("not proven")
    for text in report.not_proven:
        console.print(f"  - {text}")
    for finding in report.findings:
        console.print(f"FAILED       {finding.text}")
    console.print("", report.verdict)


def _shown(value: Any) -> str:
    """A value on one line; of data paths their number, since a table names each."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return f"{len(value)} data path{'s' if len(value) > 1 else ''}"
    if isinstance(value, dict):
        return " ".join(f"{name} {each:,}" for name, each in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _print_samples(samples: "list[ReadSample]") -> None:
    for sample in samples:
        epoch = "epoch undefined" if sample.epoch is None else f"epoch {sample.epoch}"
        skipped = " (skipped)" if sample.skipped else ""
        console.print(f"sample {sample.g:,}  step {sample.step:,}{skipped}  {sample.corpus}  {epoch}", style="bold")
        for part in sample.documents:
            named = "" if part.id is None else f"  {part.id}  {part.source}  {part.licence}"
            console.print(
                f"  document {part.number:,}  tokens {part.start:,} to {part.end:,} of {part.num_tokens:,}{named}",
            )
