"""Tables of what read some documents: the documents, the exposures of one, and the verdict on every checkpoint."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pandas as pd
import streamlit as st

from treering.audit.documents.curated import CuratedDocument
from treering.audit.documents.exposure import CheckpointExposure, Exposure, TracedDocument
from treering.runlog.directory import CheckpointDirectory
from treering_dashboard.frames import cached
from treering_dashboard.panels.address import check_address, whole
from treering_dashboard.panels.answer import open_ends
from treering_dashboard.panels.foreign import say
from treering_dashboard.panels.state import state_column
from treering_dashboard.panels.tables import choose_row, clicked_row, table
from treering_dashboard.panels.text import count, known, plural

_CLEAN: Final = "✔ clean"
_SEEN: Final = "● seen"
_LIMIT: Final = 20  # as the command's
_MOST: Final = 1000
_EXPOSURE_NUMBERS: Final = ("Attempt", "Step", "Tokens", "Replica", "Micro-batch", "In batch", "Sample", "Epoch")
_CHECKPOINT_NUMBERS: Final = ("Step", "Documents", "Exposures", "Steps")


def choose_limit() -> int:
    """How many documents are shown one by one; counts are of all."""
    check_address(limit=whole(1, _MOST))
    return st.number_input(
        "Documents shown",
        min_value=1,
        max_value=_MOST,
        value=_LIMIT,
        step=10,
        key="limit",
        bind="query-params",
        width=140,
    )


def limit_option(limit: int) -> str:
    """The same for a command."""
    return "" if limit == _LIMIT else f" --limit {limit}"


def verdict(checkpoints: Sequence[CheckpointExposure], unanswered: Sequence[str], what: str) -> None:
    """How many checkpoints saw something, as a badge and a sentence, and what that leaves open.

    Args:
        checkpoints: all that were asked.
        unanswered: what could not be looked into.
        what: the subject of the sentence, as "230 documents".
    """
    seen, every = sum(not checkpoint.clean for checkpoint in checkpoints), plural(len(checkpoints), "checkpoint")
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if not checkpoints:
            st.badge("no checkpoint", icon=":material/hourglass_empty:", color="gray")
            say(f"{what}; no checkpoint in any run yet")
        elif seen:
            st.badge("seen", icon=":material/visibility:", color="orange")
            say(f"{what}; {count(seen)} of {every} read a part")
        else:
            st.badge("clean", icon=":material/check_circle:", color="green")
            say(f"{what}; none of {every} read a part")
    open_ends("Not looked into; the verdicts do not speak of it", unanswered)


def checkpoint_table(checkpoints: Sequence[CheckpointExposure], *, key: str) -> CheckpointDirectory | None:
    """One row a checkpoint: clean or seen, how often, when, and what only left attempts read.

    Args:
        checkpoints: all that were asked.
        key: names the question that they answer.

    Returns:
        The one whose row was clicked, unless it is superseded or its run is gone: the audit's page shows neither.
    """
    st.markdown("###### Checkpoints")
    if not checkpoints:
        st.caption("None in any run yet.")
        return None
    verdicts = state_column({_CLEAN: "green", _SEEN: "orange"}, 90)
    left = st.column_config.TextColumn(
        alignment="right", help="Exposures by attempts, or steps of them, that a restart or a rewind left"
    )
    row = clicked_row(
        checkpoints_frame(checkpoints),
        "What every checkpoint saw",
        key=f"checkpoints {key}",
        numbers=_CHECKPOINT_NUMBERS,
        rows=12,
        columns={"Verdict": verdicts, "Off its path": left},
    )
    st.caption("A click opens the audit.")
    if row is None or checkpoints[row].superseded:
        return None
    clicked = CheckpointDirectory(Path(checkpoints[row].path))
    return clicked if clicked.run.path.parent == cached.project().runs else None


def checkpoints_frame(checkpoints: Sequence[CheckpointExposure]) -> pd.DataFrame:
    """One row a checkpoint; its steps are those that read."""
    return pd.DataFrame(
        [
            {
                "Verdict": [_CLEAN if each.clean else _SEEN],
                "Run": each.run[:8],
                "Step": count(each.step) + (" superseded" if each.superseded else ""),
                "Documents": count(each.documents),
                "Exposures": count(each.exposures),
                "Steps": _range(each.first_step, each.last_step),
                "Off its path": count(each.off_path) if each.off_path else "",
            }
            for each in checkpoints
        ]
    )


def choose_document(
    documents: Sequence[TracedDocument], total: int, *, key: str, more: Mapping[str, Sequence[str]] | None = None
) -> TracedDocument | None:
    """A table of documents, of which one is chosen.

    Args:
        documents: those that are shown.
        total: how many there are.
        key: names the question that they answer.
        more: further columns by title, a cell for each document; they are the first columns.

    Returns:
        The chosen one, None where there are none.
    """
    st.markdown("###### Documents")
    if not documents:
        st.caption("None.")
        return None
    row = choose_row(
        documents_frame(documents, more or {}),
        "Documents and how often they were read",
        key=f"documents {key}",
        numbers=("Tokens", "Exposures", "Steps"),
        rows=20,
        widths={"Steps": 95},
    )
    if len(documents) < total:
        st.caption(f"{count(len(documents))} of {plural(total, 'document')}; checkpoints are judged by all.")
    return documents[row]


def documents_frame(documents: Sequence[TracedDocument], more: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """One row a document."""
    rows = []
    for each in documents:
        steps = [exposure.step for exposure in each.exposures]
        rows.append(
            {
                "Document": f"{each.corpus}:{each.document}",
                "Exposures": count(len(steps)),
                "Steps": _range(min(steps, default=None), max(steps, default=None)),
                "Tokens": count(each.num_tokens),
                "Licence": each.licence,
                "Source": each.source,
            }
        )
    frame = pd.DataFrame(rows)
    for place, (title, cells) in enumerate(more.items()):
        frame.insert(place, title, list(cells))
    return frame


def decision_table(decisions: Sequence[CuratedDocument], total: int) -> None:
    """What curation decided about documents and their near-duplicates, and what was kept instead.

    Args:
        decisions: those that are shown.
        total: how many there are.
    """
    if not decisions:
        return
    st.markdown("###### Decisions of curation")
    table(
        decisions_frame(decisions),
        "Raw documents, what became of them, and what was kept instead",
        numbers=("Readings", "Read in steps"),
        rows=12,
    )
    if len(decisions) < total:
        st.caption(f"{count(len(decisions))} of {plural(total, 'raw document')}.")


def decisions_frame(decisions: Sequence[CuratedDocument]) -> pd.DataFrame:
    """One row a raw document."""
    return pd.DataFrame(
        [
            {
                "Raw document": each.document,
                "Decision": each.decision,
                "Kept instead": _instead(each),
                "Stands for": ", ".join(each.stands_for),
                "Found as": f"{'near-duplicate of' if each.near_duplicate else 'named by'} {each.asked}",
                "Readings": "" if each.exposures is None else count(each.exposures),
                "Read in steps": _range(each.first_step, each.last_step),
            }
            for each in decisions
        ]
    )


def exposure_table(document: TracedDocument | None) -> Exposure | None:
    """What read a document; the exposure that was clicked just now."""
    if document is None:
        return None
    st.markdown("###### Exposures of the chosen document")
    say(f"{document.corpus}:{document.document}")
    if not document.exposures:
        st.caption("No step of any run read it.")
        return None
    row = clicked_row(
        exposures_frame(document.exposures),
        "Every sample that held a part of the document",
        key=f"exposures of {document.corpus_digest} {document.number}",
        numbers=_EXPOSURE_NUMBERS,
        rows=15,
    )
    st.caption("A click opens the micro-batch.")
    return None if row is None else document.exposures[row]


def exposures_frame(exposures: Sequence[Exposure]) -> pd.DataFrame:
    """One row an exposure."""
    return pd.DataFrame(
        [
            {
                "Run": each.run[:8],
                "Attempt": known(each.attempt),
                "Step": count(each.step),
                "Tokens": f"{count(each.start)} to {count(each.end)}",
                "Replica": known(each.replica),
                "Micro-batch": known(each.micro_batch),
                "In batch": count(each.position),
                "Sample": count(each.sample),
                "Epoch": str(each.epoch),
            }
            for each in exposures
        ]
    )


def _instead(decision: CuratedDocument) -> str:
    if decision.preferred is not None and decision.kept_instead is None:
        return f"none: {decision.preferred} was {decision.preferred_decision}"
    return decision.kept_instead or ""


def _range(first: int | None, last: int | None) -> str:
    if first is None or last is None:
        return ""
    return count(first) if first == last else f"{count(first)} to {count(last)}"
