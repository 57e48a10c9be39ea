"""Draws a board: uPlot in the browser, numbers from the server.

`board/` holds uPlot 1.6.32 as its authors publish it, with their licence, and the program that drives it. Both go to
the browser with the page: a wheel needs no npm, and a page asks no other server. The browser answers with a window of
x, with the x of a step, and with the scale of a panel.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import streamlit as st

from treering.files import read_text
from treering_dashboard.panels.axis import Placement
from treering_dashboard.panels.charts import Board, on_page
from treering_dashboard.panels.palette import theme
from treering_dashboard.panels.wire import Sent, board_head, encoded

PROGRAM: Final = Path(__file__).parent / "board"

_SENT: Final = "board_sent"
_OPENED: Final = "board_opened"
_SETTLED_S: Final = 5.0
"""After a page is opened: a browser that gets two messages at once draws the last alone, so both must be whole."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What a page does with the browser's answers.

    Attributes:
        zoom: gets the window of x, None for all of it.
        pick: gets the x that was clicked.
        scale: gets a panel's title and whether its scale is logarithmic.
    """

    zoom: Callable[[tuple[float, float] | None], None]
    pick: Callable[[float], None]
    scale: Callable[[str, bool], None]


@cache
def _component() -> Any:
    program = "\n".join(read_text(PROGRAM / name) for name in ("uPlot.iife.min.js", "board.js"))
    style = "\n".join(read_text(PROGRAM / name) for name in ("uPlot.min.css", "board.css"))
    return st.components.v2.component("treering.board", js=program, css=style)


def send_whole(key: str) -> None:
    """Has the next board sent whole: a page that is opened, or opened again, has a browser that lacks what it had.

    Args:
        key: of the board.
    """
    st.session_state.setdefault(_OPENED, {})[key] = time.monotonic()


def draw_board(board: Board, x: Placement, *, key: str, answers: Answers | None = None) -> None:
    """Draws panels over the page's x.

    Args:
        board: what is drawn, with at least one panel.
        x: the page's axis.
        key: stable name of the element, so that a refresh keeps the crosshair.
        answers: what the page does with zoom and click; None: the browser zooms in what it has. Such a page sends
            what is new alone, until `send_whole`.
    """
    head, arrays = board_head(on_page(board, theme()), x)
    sent: dict[str, Sent] = st.session_state.setdefault(_SENT, {})
    opened = st.session_state.get(_OPENED, {}).get(key, 0.0)
    news_alone = answers is not None and time.monotonic() - opened > _SETTLED_S
    before = sent.get(key) if news_alone else None
    sent[key] = encoded({**head, "asks": answers is not None}, arrays, before)

    def answer(name: str) -> Any:
        return st.session_state[key][name]["value"]

    def zoomed() -> None:
        window = answer("zoom")
        if answers is not None:
            answers.zoom(None if window is None else (float(window[0]), float(window[1])))

    def picked() -> None:
        if answers is not None:
            answers.pick(float(answer("pick")))

    def scaled() -> None:
        if answers is not None:
            answers.scale(str(answer("scale")["title"]), bool(answer("scale")["log"]))

    _component()(
        key=key,
        data=sent[key].data,
        on_zoom_change=zoomed,
        on_pick_change=picked,
        on_scale_change=scaled,
        on_resync_change=lambda: sent.pop(key, None),
    )
