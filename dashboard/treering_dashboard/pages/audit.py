"""What trained a checkpoint: samples, tokens, epochs and documents by corpus, and how much of that is proven.

The table of levels says what each shows and what reaches it: ✔ reached, ◆ signed (reached by the signer's audit, left
out by this one), ▶ next, ○ open. Beside it are what is not proven and the commands for higher levels.
"""

import pandas as pd
import streamlit as st

from treering.audit.attestation.place import find_attestation
from treering.audit.report import AuditReport, Level
from treering.config.canonical import short
from treering.data.blend.joins import join_lines
from treering.errors import EvidenceError, UserError
from treering.runlog.directory import CheckpointDirectory
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering_dashboard.frames import cached
from treering_dashboard.frames.audits import KEYS_VARIABLE, audit_of, trusted_keys
from treering_dashboard.panels.answer import command, error_box, open_ends
from treering_dashboard.panels.assurance import findings, ladder, verdict_line
from treering_dashboard.panels.choice import (
    all_runs_or_stop,
    checkpoint_of,
    choose_run,
    recorded_checkpoint_of,
    stop_without_checkpoint,
)
from treering_dashboard.panels.corpora import curation_table, licence_table
from treering_dashboard.panels.foreign import block, figure
from treering_dashboard.panels.recorded_audit import recorded_audit
from treering_dashboard.panels.tables import table
from treering_dashboard.panels.text import NOTHING, count, number, plural

NUMBERS = (
    "Weight",
    "Samples",
    "Tokens",
    "Epochs planned",
    "Epochs realised",
    "Documents touched",
    "Documents held",
    "Unread tail",
)


def page() -> None:
    """Draws the structural audit of the chosen checkpoint, or of a recorded run."""
    runs = all_runs_or_stop()
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        run = choose_run(runs)
        if isinstance(run, RecordedRunDirectory):
            recorded = recorded_checkpoint_of(run)
        else:
            checkpoint = checkpoint_of(run)
    try:
        if isinstance(run, RecordedRunDirectory):
            recorded_audit(run, recorded)
        else:
            _audit(checkpoint or stop_without_checkpoint())
    except EvidenceError as error:
        error_box("There is nothing to audit: a record that the audit needs does not hold.", error)


def _audit(checkpoint: CheckpointDirectory) -> None:
    keys = trusted_keys()
    try:
        report = audit_of(checkpoint, keys)
    except UserError as error:  # a key; what needs none is shown
        error_box(f"A key that {KEYS_VARIABLE} names cannot be read, so no signature was checked.", error)
        keys, report = (), audit_of(checkpoint)
    where = cached.quoted(checkpoint.path)
    line = " ".join([f"treering audit {where}", *(f"--public-key {cached.quoted(key)}" for key in keys)])
    verdict_line(report.level, report.verdict, holds=report.holds)
    _numbers(report, _attestation(report, checkpoint, checked=bool(keys)))
    findings(report.findings)
    open_ends("Answered all the same", [f"{each.answered} (level {each.level})" for each in report.gaps])
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown("###### Levels of assurance")
        ladder(report)
    with right:
        open_ends("Not proven", report.not_proven)
        _way_up(report, checkpoint, line)
    st.markdown("###### What was read of each corpus")
    table(corpora_frame(report), "Samples, tokens, epochs and documents by corpus", numbers=NUMBERS, rows=20)
    left, right = st.columns(2, gap="medium")
    with left:
        licence_table(report)
        st.markdown("###### Path from the root")
        table(path_frame(report), "Attempts that led to the checkpoint")
        for gap in report.passed_over:
            samples = f"{count(gap.sample_start)} to {count(gap.sample_end)}"
            st.caption(f"Samples {samples} before step {count(gap.step)} were skipped: neither read nor applied.")
        open_ends("Corpora that do not go on where they stopped", join_lines(report.joins))
    with right:
        curation_table(report)
        st.markdown("###### Identities")
        digests = {name: short(value, 24) if value else NOTHING for name, value in report.digests.items()}
        table(pd.DataFrame({"Part": list(digests), "Digest": list(digests.values())}), "Digests", rows=10)
    command(line)


def _numbers(report: AuditReport, attestation: tuple[str, str]) -> None:
    held_out = report.held_out
    overlap = ("not looked for", "no held-out corpus is available")
    if held_out is not None:
        read = count(held_out.overlapping) if held_out.overlapping else "none"
        overlap = (read, f"of {plural(held_out.documents, 'held-out document')} read")
    cells = st.columns(5, gap="small")
    for cell, (title, value, detail) in zip(
        cells,
        (
            ("Steps", count(report.step), f"{count(report.applied_steps)} applied"),
            ("Consumed tokens", number(report.consumed_tokens), f"{count(report.consumed_samples)} samples"),
            ("Rings on record", count(report.steps_recorded), f"of {plural(report.step, 'step')}"),
            ("Held-out overlap", *overlap),
            ("Attestation", *attestation),
        ),
        strict=True,
    ):
        with cell:
            figure(title, value, detail)


def _attestation(report: AuditReport, checkpoint: CheckpointDirectory, *, checked: bool) -> tuple[str, str]:
    """Whether there is one and whether it holds, in a word and with what says so."""
    file = find_attestation(checkpoint)
    if file is None:
        return "none", "is beside the checkpoint"
    if report.attestation is not None:
        return "holds", f"key {report.attestation.key[:8]}, {report.attestation.at[:10]}"
    if not checked:
        return "not checked", "no trusted key is configured"
    return "not compared" if report.gaps else "does not hold", file.name


def _way_up(report: AuditReport, checkpoint: CheckpointDirectory, line: str) -> None:
    """The commands that reach the levels above; this page reads no content."""
    if not report.holds or Level.RECORDED not in report.levels:
        st.caption("The levels above need these findings to be mended.")
        return
    way = [f"{line} --verify", f"{line} --replay 3"]
    if find_attestation(checkpoint) is None:
        way.append(f"treering attest {cached.quoted(checkpoint.path)} --key signer.pem")
    elif report.attestation is None:
        way.append(f"{line} --public-key signer.pub.pem")
    st.markdown("###### The way up")
    block("\n".join(way), "bash")


def corpora_frame(report: AuditReport) -> pd.DataFrame:
    """One row a corpus."""
    return pd.DataFrame(
        [
            {
                "Corpus": usage.corpus,
                "Licence": usage.licence or NOTHING,
                "Weight": usage.weight,
                "Samples": count(usage.samples),
                "Tokens": count(usage.tokens),
                "Epochs planned": f"{usage.planned_epochs:.4f}",
                "Epochs realised": f"{usage.realised_epochs:.4f}",
                "Documents touched": _documents(usage.documents_touched, "corpus not available"),
                "Documents held": _documents(usage.num_documents, NOTHING),
                "Unread tail": count(usage.unread_tokens),
                "Digest": short(usage.digest, 12) if usage.digest else "declared",
            }
            for usage in report.corpora
        ]
    )


def _documents(value: int | None, otherwise: str) -> str:
    return otherwise if value is None else count(value)


def path_frame(report: AuditReport) -> pd.DataFrame:
    """One row an attempt on the way to the checkpoint."""
    return pd.DataFrame(
        [
            {
                "Run": part.run[:8],
                "Attempt": str(part.attempt),
                "Steps": f"{count(part.first_step)} to {count(part.last_step)}",
                "Code": short(part.code, 12),
                "Environment": short(part.environment, 12),
                "Changed": ", ".join(part.changed) or "nothing",
            }
            for part in report.path
        ]
    )
