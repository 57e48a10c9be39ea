"""From a list of documents that must go to the checkpoints that saw one of them or a recorded near-duplicate."""

from typing import Final

import pandas as pd
import streamlit as st

from treering.audit.documents.takedown import Entry, Takedown, parse_list
from treering.errors import TreeringError, UserError
from treering_dashboard import links
from treering_dashboard.frames import answers
from treering_dashboard.panels import exposure
from treering_dashboard.panels.answer import command, error_box, on_input
from treering_dashboard.panels.foreign import block
from treering_dashboard.panels.tables import table
from treering_dashboard.panels.text import count, plural

_EXAMPLE: Final = """\
code:django/urls/base.py      # a document: CORPUS:ID
source=*pubmed20n0014*        # every document of these sources
licence=BSD-3-Clause          # every document of a licence
"""


def page() -> None:
    """Draws the form, and the answer to the list in it."""
    with st.form("takedown", border=False):
        left, right = st.columns([3, 1], gap="medium")
        with left:
            pasted = st.text_area(
                "What must go, one entry a line", key="list", height=177, placeholder="CORPUS:ID\nsource=PATTERN"
            )
        with right:
            uploaded = st.file_uploader("or a file", key="file")
            with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
                limit = exposure.choose_limit()
                st.form_submit_button("Find", type="primary", icon=":material/search:")
    if not pasted.strip() and uploaded is None:
        st.info(
            "Name what must go: found is every checkpoint that saw it, or what curation recorded as a near-duplicate.",
            icon=":material/playlist_remove:",
        )
        block(_EXAMPLE)
        return
    try:
        if pasted.strip() or uploaded is None:
            name, text = "list", pasted
        else:
            name, text = uploaded.name, _decoded(uploaded.name, uploaded.getvalue())
        asked = tuple(str(selector) for selector in parse_list(text, name))
        _answer(answers.takedown_of(asked, limit))
    except TreeringError as error:
        error_box("The list cannot be looked up.", error)
        return
    command(on_input(f"treering takedown{exposure.limit_option(limit)}", text))


def _decoded(name: str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{name}: found an unreadable file ({error}), expected a list of documents") from None


def _answer(found: Takedown) -> None:
    exposure.verdict(
        found.checkpoints, found.unanswered, f"{plural(found.num_documents, 'document')} of training corpora must go"
    )
    more = {
        "As": ["near-duplicate of" if each.near_duplicate else "named by" for each in found.documents],
        "Entry": [each.asked for each in found.documents],
    }
    documents, key = [each.document for each in found.documents], " ".join(entry.asked for entry in found.entries)
    left, right = st.columns([4, 3], gap="medium")
    with left:
        st.markdown("###### Entries")
        numbers, widths = ("Documents", "Near-duplicates", "Raw"), {"Entry": 180, "Curation": 270}
        table(entries_frame(found.entries), "Entries of the list", numbers=numbers, rows=12, widths=widths)
        chosen = exposure.choose_document(documents, found.num_documents, key=key, more=more)
        exposure.decision_table(found.decisions, found.num_decisions)
    with right:
        links.open_checkpoint(exposure.checkpoint_table(found.checkpoints, key=key))
        links.open_exposure(exposure.exposure_table(chosen))


def entries_frame(entries: tuple[Entry, ...]) -> pd.DataFrame:
    """One row for each fate of an entry's raw documents; the first row has what concerns the whole entry."""
    rows = []
    for entry in entries:
        nothing = "no record" if entry.known else "unknown to every available corpus and to curation"
        for place, (words, number) in enumerate(entry.fate.items() or [(nothing, 0)]):
            rows.append(
                {
                    "Entry": "" if place else entry.asked,
                    "Documents": "" if place else count(entry.documents),
                    "Near-duplicates": "" if place else count(entry.near_duplicates),
                    "Raw": count(number) if number else "",
                    "Curation": words,
                }
            )
    return pd.DataFrame(rows)
