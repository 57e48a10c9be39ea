"""The part of a run that a page draws, and the step that was clicked: kept in the address, as steps.

The address has `from` and `to` while a part is drawn, `at` while a step is open, and `log` and `linear` with the titles
of panels whose scale a visitor changed. Another run than the one before starts without them.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import streamlit as st

from treering.runlog.find import AnyRun
from treering_dashboard.frames.rings import RunFrames
from treering_dashboard.panels.address import check_address, whole
from treering_dashboard.panels.axis import Placement
from treering_dashboard.panels.board import Answers
from treering_dashboard.panels.charts import Panel

FROM: Final = "from"
TO: Final = "to"
AT: Final = "at"
SCALES: Final = {True: "log", False: "linear"}

_OF: Final = "window_of"


@dataclass(frozen=True, slots=True)
class Window:
    """What of a run is drawn.

    Attributes:
        steps: first and last step; None: all.
        at: the step that is open, None for none.
        log: titles of panels that a visitor wants logarithmic.
        linear: titles of those that a visitor wants linear.
    """

    steps: tuple[int, int] | None
    at: int | None
    log: frozenset[str]
    linear: frozenset[str]

    def scaled(self, panel: Panel) -> Panel:
        """The panel with the scale that the visitor chose."""
        if panel.title in self.log | self.linear:
            return replace(panel, log=panel.title in self.log)
        return panel


def begin_window(run: str) -> None:
    """Says that the address to come is about a run: its window is kept, whichever run was shown before."""
    st.session_state[_OF] = run


def window_of(run: AnyRun, last_step: int) -> Window:
    """What the address says.

    Args:
        run: that the page shows.
        last_step: its newest step.
    """
    if st.session_state.setdefault(_OF, run.path.name) != run.path.name:
        st.session_state[_OF] = run.path.name
        for name in (FROM, TO, AT, *SCALES.values()):
            st.query_params.pop(name, None)
    step = whole(1, max(1, last_step))
    check_address(**{FROM: step, TO: step, AT: step})
    asked = {name: int(st.query_params[name]) for name in (FROM, TO, AT) if name in st.query_params}
    steps = None
    if FROM in asked or TO in asked:
        first, last = asked.get(FROM, 1), asked.get(TO, last_step)
        steps = (min(first, last), max(first, last))
    titles = {log: frozenset(st.query_params.get_all(name)) for log, name in SCALES.items()}
    return Window(steps, asked.get(AT), titles[True], titles[False])


def answers(frames: RunFrames, x: Placement) -> Answers:
    """Puts what the browser answers into the address.

    Args:
        frames: of the run, the whole of it.
        x: the page's axis.
    """

    def steps_between(low: float, high: float) -> tuple[int, int]:
        places, steps = frames.path.fact(x.column) / x.divisor, frames.path.fact("step")
        first = min(int(np.searchsorted(places, low)), len(steps) - 1)
        last = max(int(np.searchsorted(places, high, "right")) - 1, first)
        return int(steps[first]), int(steps[last])

    def zoom(window: tuple[float, float] | None) -> None:
        if window is not None:
            first, last = steps_between(*window)
            st.query_params.update({FROM: str(first), TO: str(last)})
            return
        for name in (FROM, TO):
            st.query_params.pop(name, None)

    def pick(place: float) -> None:
        places, steps = frames.path.fact(x.column) / x.divisor, frames.path.fact("step")
        st.query_params[AT] = str(int(steps[int(np.abs(places - place).argmin())]))

    def scale(title: str, log: bool) -> None:
        for is_log, name in SCALES.items():
            left = [each for each in st.query_params.get_all(name) if each != title]
            st.query_params[name] = [*left, *([title] if is_log == log else [])]

    return Answers(zoom, pick, scale)
