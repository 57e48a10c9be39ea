"""From documents, sources, a licence or a text to every step that read them and the verdict on every checkpoint."""

import shlex
from typing import Final

import streamlit as st

from treering.audit.documents.selection import Selector
from treering.audit.documents.text_match import TextMatch
from treering.data.ngram_index.index import NGRAM_WORDS
from treering.errors import TreeringError
from treering_dashboard import links
from treering_dashboard.frames import answers
from treering_dashboard.panels.address import among, check_address, text
from treering_dashboard.panels.answer import command, error_box, on_input
from treering_dashboard.panels.exposure import (
    checkpoint_table,
    choose_document,
    choose_limit,
    exposure_table,
    limit_option,
    verdict,
)
from treering_dashboard.panels.text import count, plural

SOURCE: Final = "source"
LICENCE: Final = "licence"
TEXT: Final = "text"

_HINTS: Final = {
    links.BY_DOCUMENT: "Name a document as CORPUS:ID or CORPUS:#NUMBER. Every step of every run that read a part is "
    "looked for.",
    SOURCE: "Give a shell pattern over the addresses of source files, like *django*; every document of theirs counts.",
    LICENCE: "Choose a licence; every document whose row in the document table names it counts.",
    TEXT: f"Paste {NGRAM_WORDS} words or more; they are looked up in the index that `treering index` builds.",
}


def page() -> None:
    """Draws the form, and the answer to the question in it or in the URL."""
    check_address(by=among((links.BY_DOCUMENT, SOURCE, LICENCE, TEXT)), document=text, source=text)
    by = st.segmented_control(
        "Look for",
        (links.BY_DOCUMENT, SOURCE, LICENCE, TEXT),
        default=links.BY_DOCUMENT,
        required=True,
        key="by",
        bind="query-params",
        label_visibility="collapsed",
    )
    with st.form("trace", border=False), st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        asked = _question(by)
        limit = choose_limit()
        st.form_submit_button("Trace", type="primary", icon=":material/search:")
    if not asked:
        st.info(_HINTS[by], icon=":material/travel_explore:")
        return
    try:
        if by == TEXT:
            _text(asked, limit)
        else:
            _documents(by, asked, limit)
    except TreeringError as error:
        error_box("This cannot be traced.", error)


def _question(by: str) -> str:
    """The input that fits; each has its own place in the URL but the text, which may be long."""
    if by == TEXT:
        return st.text_area("Text", key="text", height=120, width="stretch").strip()
    if by == LICENCE:
        licences = answers.licences()
        check_address(licence=among(licences, "licence"))
        return st.selectbox("Licence", licences, index=None, key=LICENCE, bind="query-params", width=420) or ""
    label, example = ("Document", "CORPUS:ID") if by == links.BY_DOCUMENT else ("Source", "*pattern*")
    return st.text_input(label, placeholder=example, key=by, bind="query-params", width=420).strip()


def _documents(by: str, asked: str, limit: int) -> None:
    selector = Selector.parse(asked) if by == links.BY_DOCUMENT else Selector.parse(f"{by}={asked}")
    found = answers.documents_trace(selector, limit)
    verdict(found.checkpoints, found.unanswered, plural(found.num_documents, "document"))
    left, right = st.columns([4, 3], gap="medium")
    with left:
        chosen = choose_document(found.documents, found.num_documents, key=str(selector))
    with right:
        links.open_checkpoint(checkpoint_table(found.checkpoints, key=str(selector)))
        links.open_exposure(exposure_table(chosen))
    command(f"treering trace --{by} {shlex.quote(asked)}{limit_option(limit)}")


def _text(asked: str, limit: int) -> None:
    found = answers.text_trace(asked)
    runs = f"{plural(found.num_ngrams, 'run')} of {NGRAM_WORDS} words"
    verdict(found.checkpoints, found.unanswered, f"{plural(len(found.matches), 'document')} with one of its {runs}")
    shown = found.matches[:limit]
    more = {
        "Holds": [_holds(each.match, found.num_ngrams) for each in shown],
        "At tokens": [_spans(each.match) for each in shown],
    }
    left, right = st.columns([4, 3], gap="medium")
    with left:
        chosen = choose_document([each.document for each in shown], len(found.matches), key=asked, more=more)
    with right:
        links.open_checkpoint(checkpoint_table(found.checkpoints, key=asked))
        links.open_exposure(exposure_table(chosen))
    command(on_input(f"treering trace{limit_option(limit)} --text", asked))


def _holds(match: TextMatch, num_ngrams: int) -> str:
    return "the whole text" if match.exact else f"{count(match.ngrams)} of {count(num_ngrams)} runs"


def _spans(match: TextMatch) -> str:
    return ", ".join(f"{count(start)} to {count(end)}" for start, end in match.spans)
