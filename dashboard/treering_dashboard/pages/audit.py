"""What trained a checkpoint: samples, tokens, epochs and documents by corpus, and how much of that is proven."""

from pathlib import Path

import pandas as pd
import streamlit as st
from streamlit.navigation.page import StreamlitPage

from treering.audit.report import AuditReport
from treering.config.canonical import short
from treering.errors import TreeringError
from treering.runlog.directory import CheckpointDirectory
from treering_dashboard.frames import cached
from treering_dashboard.panels.answer import command, error_box
from treering_dashboard.panels.choice import choose_checkpoint, no_checkpoint, no_runs
from treering_dashboard.panels.tables import table
from treering_dashboard.panels.text import NOTHING, count, number

NUMBERS = ("Weight", "Samples", "Tokens", "Epochs planned", "Epochs realised", "Documents touched", "Documents held")


def link() -> StreamlitPage:
    """The page's place in the navigation."""
    return st.Page(page, title="Audit", url_path="audit", icon=":material/fact_check:")


def page() -> None:
    """Draws the structural audit of the chosen checkpoint."""
    runs = cached.runs()
    if not runs:
        no_runs()
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        checkpoint = choose_checkpoint(runs)
    if checkpoint is None:
        no_checkpoint()
        return
    _audit(checkpoint)


def _audit(checkpoint: CheckpointDirectory) -> None:
    try:
        report = cached.audit(checkpoint)
    except TreeringError as error:
        error_box("There is nothing to audit: a record that the audit stands on does not hold.", error)
        return
    _verdict(report)
    st.markdown("###### What was read of each corpus")
    table(corpora_frame(report), "Samples, tokens, epochs and documents by corpus", numbers=NUMBERS, rows=20)
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown("###### Path from the root")
        table(path_frame(report), "Attempts that led to the checkpoint")
        st.markdown("###### Not proven")
        for text in report.not_proven:
            st.text(f"·  {text.replace('`', '')}")
    with right:
        st.markdown("###### Identities")
        digests = {name: short(value, 24) if value else NOTHING for name, value in report.digests.items()}
        table(pd.DataFrame({"Part": list(digests), "Digest": list(digests.values())}), "Digests", rows=10)
        st.markdown("###### Prove the content")
        where = Path(report.checkpoint).relative_to(cached.project().root)
        command(f"treering audit {where} --verify")


def _verdict(report: AuditReport) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if report.holds:
            st.badge(str(report.level.value), icon=":material/verified:", color="green")
        else:
            st.badge("does not hold", icon=":material/gpp_bad:", color="red")
        st.text(report.verdict)
    cells = st.columns(4, gap="small")
    for cell, (label, value, detail) in zip(
        cells,
        (
            ("Level of assurance", str(report.level.value), "content is digested only by --verify"),
            ("Steps", count(report.step), f"{count(report.applied_steps)} applied"),
            ("Consumed tokens", number(report.consumed_tokens), f"{count(report.consumed_samples)} samples"),
            ("Rings on record", count(report.steps_recorded), f"of {count(report.step)} steps"),
        ),
        strict=True,
    ):
        with cell:
            st.metric(label, value, delta_description=detail)
    if report.findings:
        st.code("\n".join(finding.text for finding in report.findings), language=None, wrap_lines=True)


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
                "Documents touched": _documents(usage.documents_touched, "corpus not at hand"),
                "Documents held": _documents(usage.num_documents, NOTHING),
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
