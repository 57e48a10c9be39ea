"""What a checkpoint read, by licence, and what curation had dropped before: tables of the pages Data and Audit."""

import pandas as pd
import streamlit as st

from treering.audit.report import AuditReport
from treering_dashboard.panels.tables import table
from treering_dashboard.panels.text import NOTHING, count


def licence_table(report: AuditReport) -> None:
    """Tokens read by licence of their documents."""
    st.markdown("###### Licences, by document")
    share = st.column_config.ProgressColumn(format="%.1f %%", min_value=0.0, max_value=100.0, width=130)
    table(licences_frame(report), "Tokens read by licence", numbers=("Tokens",), rows=10, columns={"Share": share})


def curation_table(report: AuditReport) -> None:
    """Documents that each step of curation dropped, by corpus."""
    st.markdown("###### Curation: documents dropped by each step")
    frame = curation_frame(report)
    if frame.empty:
        st.caption("No corpus is available, or none was curated.")
        return
    table(frame, "Documents that curation dropped and kept", numbers=[str(name) for name in frame][1:], rows=10)


def licences_frame(report: AuditReport) -> pd.DataFrame:
    """One row a licence, most tokens first, `unknown` for corpora that are not available; shares in percent."""
    total = sum(report.licences.values())
    held = {usage.corpus: {"unknown"} if usage.licences is None else usage.licences for usage in report.corpora}
    return pd.DataFrame(
        [
            {
                "Licence": licence,
                "Tokens": count(tokens),
                "Share": 100 * tokens / total,
                "Corpora": ", ".join(corpus for corpus, licences in held.items() if licence in licences),
            }
            for licence, tokens in report.licences.items()
        ]
    )


def curation_frame(report: AuditReport) -> pd.DataFrame:
    """One row a corpus: documents before curation, those that each step dropped, those that were kept."""
    curated = [usage for usage in report.corpora if usage.curation]
    decisions = [step for usage in curated for step in usage.curation]
    dropping = {step.step for step in decisions if step.dropped}
    steps = [name for name in dict.fromkeys(step.step for step in decisions) if name in dropping]
    rows = []
    for usage in curated:
        dropped = {step.step: step.dropped for step in usage.curation}
        first, last = usage.curation[0], usage.curation[-1]
        rows.append(
            {
                "Corpus": usage.corpus,
                "Before": count(first.kept + first.dropped),
                **{step: count(dropped[step]) if step in dropped else NOTHING for step in steps},
                "Kept": count(last.kept),
            }
        )
    return pd.DataFrame(rows)
