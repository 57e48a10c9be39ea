"""How sure an audit is: its verdict, what does not hold, the ladder of levels."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pandas as pd
import streamlit as st

from treering.audit.report import AuditReport, Finding, Level
from treering_dashboard.frames.cached import from_root
from treering_dashboard.panels.foreign import block, label, say
from treering_dashboard.panels.state import Colour, state_column
from treering_dashboard.panels.tables import table
from treering_dashboard.panels.text import NOTHING, count, plural

LADDER: Final = {
    Level.DECLARED: ("records name the data", "the run's records"),
    Level.REDERIVED: ("the data order, recomputed from the blend", "treering audit"),
    Level.RECORDED: ("the chain of rings holds and follows the schedule", "treering audit"),
    Level.CONTENT_BOUND: ("every batch digest, from the corpora's bytes", "treering audit --verify"),
    Level.REPLAYED: ("random steps, trained again to the last bit", "treering audit --replay 3"),
    Level.ATTESTED: ("a trusted key signed what the records say", "treering attest --key"),
}
"""What each level shows, and what reaches it."""

_REACHED, _SIGNED, _NEXT, _HELD, _OPEN = "✔ reached", "◆ signed", "▶ next", "✖ held back", "○ open"
_SHOWN: Final = 20


def verdict_line(level: Level, verdict: str, *, holds: bool) -> None:
    """The level as a badge, and the verdict in words."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if holds:
            st.badge(label(level), icon=":material/verified:", color="green")
        else:
            st.badge("does not hold", icon=":material/gpp_bad:", color="red")
        say(verdict)


def findings(found: Sequence[Finding]) -> None:
    """What does not hold, by kind, with its place; then in the audit's own words."""
    if not found:
        return
    ordered = sorted(found, key=lambda each: each.kind)
    kinds = Counter(each.kind for each in ordered)
    st.markdown("###### What does not hold")
    st.caption(", ".join(f"{label(kind)} {count(number)}" for kind, number in kinds.items()))
    table(findings_frame(ordered), "Findings by kind with their place", numbers=("Line", "Step"), rows=10)
    block("\n\n".join(each.text for each in ordered[:_SHOWN]))
    if len(ordered) > _SHOWN:
        st.caption(f"{_SHOWN} of {plural(len(ordered), 'finding')}; the command below prints all.")


def findings_frame(found: Sequence[Finding]) -> pd.DataFrame:
    """One row a finding; places that none of them has are left out."""
    rows = [
        {
            "Kind": each.kind,
            "File": NOTHING if each.file is None else from_root(Path(each.file)),
            "Line": "" if each.line is None else count(each.line),
            "Bytes": "" if each.start is None or each.end is None else f"{count(each.start)} to {count(each.end)}",
            "Corpus": each.corpus or "",
            "Document": each.document or "",
            "Step": "" if each.step is None else count(each.step),
        }
        for each in found
    ]
    frame = pd.DataFrame(rows)
    return frame[[name for name in frame if name in ("Kind", "File") or frame[name].any()]]


def ladder(report: AuditReport) -> None:
    """Every level, whether it is reached, and what reaches it; levels of a signer's own audit are marked apart."""
    colours: dict[str, Colour] = {_REACHED: "green", _SIGNED: "violet", _NEXT: "blue", _HELD: "red", _OPEN: "gray"}
    table(
        ladder_frame(report),
        "Levels of assurance",
        widths={"Level": 100, "Reached by": 165},
        columns={"State": state_column(colours, 110)},
    )
    if report.attestation is not None and report.attestation.signed_replay is not None:
        say(f"Replayed before it was signed: {report.attestation.signed_replay.text}")


def ladder_frame(report: AuditReport) -> pd.DataFrame:
    """One row a level."""
    following = next((level for level in Level if level not in report.levels), None)
    signed = list(Level)[: list(Level).index(report.attestation.signed_level) + 1] if report.attestation else []

    def state(level: Level) -> str:
        if level in report.levels:
            return _REACHED
        if level in signed:
            return _SIGNED
        return _OPEN if level is not following else _NEXT if report.holds else _HELD

    return pd.DataFrame(
        [
            {"Level": str(level), "State": [state(level)], "Shows": shows, "Reached by": by}
            for level, (shows, by) in LADDER.items()
        ]
    )
