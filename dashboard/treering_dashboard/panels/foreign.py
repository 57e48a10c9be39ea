"""How pages print text: nothing that Treering did not write itself is ever read as Markdown, LaTeX or HTML.

Ids, licences, sources, names, descriptions, log lines and messages of errors are foreign, and may hold any markup or
characters that are not seen. Pages print text with `say` and `block`, and cells of tables with `panels.tables`. What
Streamlit reads as Markdown (captions, headings, badges, boxes, labels of buttons and links) is written here, in the
source; a foreign word in it goes through `label`.
"""

import re
from pathlib import Path

import pandas as pd
import streamlit as st

from treering.files import read_text
from treering.foreign import markdown, shown

_SHORTCODE = re.compile(r":(?=[\w/+-])")


def say(*lines: object, stretch: bool = False) -> None:
    """Prints lines of text as they are written; an end of a line inside one of them is shown escaped."""
    st.text("\n".join(shown(line) for line in lines), width="stretch" if stretch else "content")


def block(text: object, language: str | None = None) -> None:
    """Prints text in a box, as it is written, to be read or copied; long lines are wrapped.

    Args:
        text: the text.
        language: whose words are coloured; None for foreign text.
    """
    st.code(shown(text, lines=True), language=language, wrap_lines=True)


def figure(title: str, value: object, detail: object) -> None:
    """A large number with its title and a detail below; a value may be foreign.

    Args:
        title: what it is.
        value: the number, or a word.
        detail: a few words, nothing where they are empty.
    """
    st.metric(label(title), label(value), delta_description=shown(detail) or None)


def style(sheet: Path) -> None:
    """Applies a style sheet that is part of the dashboard."""
    st.html(sheet)


def program(file: Path) -> None:
    """Runs a program in the browser that is part of the dashboard; the style sheet hides it."""
    with st.container(key="program"):
        st.html(f"<script>{read_text(file)}</script>", unsafe_allow_javascript=True)


def label(text: object) -> str:
    """Foreign text for a place that Streamlit reads as Markdown: it reads as it is written.

    Besides Markdown, Streamlit reads `:smile:`, `:material/home:` and `:red[…]`; an invisible joiner ends such a name.
    """
    return _SHORTCODE.sub(":\u2060", str(markdown(text)))


def shown_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """A table whose cells and titles hold no invisible character; Streamlit never reads cells as Markdown."""
    frame = frame.rename(columns=str).rename(columns=shown)
    texts = [name for name in frame if frame[name].dtype == object or pd.api.types.is_string_dtype(frame[name].dtype)]
    return frame.assign(**{str(name): frame[name].map(_cell) for name in texts})


def _cell(value: object) -> object:
    if isinstance(value, str):
        return shown(value)
    return [shown(each) for each in value] if isinstance(value, list) else value
