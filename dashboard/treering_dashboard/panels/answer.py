"""What a page shows beside an answer: an error, the command with the same answer, what was not searched."""

from collections.abc import Sequence
from typing import Final

import streamlit as st

from treering.errors import EvidenceError, TreeringError
from treering_dashboard.panels.foreign import block, say

_ASKED: Final = "asked"
_LONGEST_INPUT: Final = 1000  # characters


def error_box(title: str, error: TreeringError | str) -> None:
    """What does not hold, or what is missing, and the error's own text, which names the place and the remedy.

    Args:
        title: what has no answer, in a sentence.
        error: the error, or the text of broken evidence.
    """
    if isinstance(error, str | EvidenceError):
        st.error(title, icon=":material/gpp_bad:")
    else:
        st.warning(title, icon=":material/help:")
    block(str(error))


def command(line: str) -> None:
    """The command that gives the same answer in a terminal, to copy."""
    st.caption("The same in a terminal, in the project's folder; `--json` for machines")
    block(line, "bash")


def on_input(line: str, text: str) -> str:
    """A command whose last argument is a file, on a text: as its input, or as a file's name where it is long."""
    if len(text) > _LONGEST_INPUT or "END" in text.splitlines():
        return f"{line} FILE"
    return f"{line} /dev/stdin <<'END'\n{text.strip()}\nEND"


def open_ends(title: str, texts: Sequence[str]) -> None:
    """What an answer leaves open, one line each; nothing where there is nothing."""
    if not texts:
        return
    st.markdown(f"###### {title}")
    say(*(f"·  {text.replace('`', '')}" for text in texts))


def asked(question: str, label: str, *, costly: bool) -> bool:
    """Whether to answer now: at once, or where it costs more than a second, once the visitor has pressed a button.

    Args:
        question: what is asked, and of what; another one has a button again.
        label: of the button.
        costly: whether the answer takes long.
    """
    questions: set[str] = st.session_state.setdefault(_ASKED, set())
    if costly and question not in questions:
        st.button(label, icon=":material/search:", key=f"ask {question}", on_click=questions.add, args=(question,))
        return False
    return True
