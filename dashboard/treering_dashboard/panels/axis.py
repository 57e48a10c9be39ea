"""The one x that all panels of a page are drawn over."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import pandas as pd
import streamlit as st

from treering_dashboard.frames.curves import Curves
from treering_dashboard.frames.rings import RunFrames
from treering_dashboard.panels.address import among, check_address

_SPANS = ((2 * 86_400.0, 86_400.0, "d"), (2 * 3_600.0, 3_600.0, "h"), (120.0, 60.0, "min"))


@dataclass(frozen=True, slots=True)
class XAxis:
    """A choice of x.

    Attributes:
        key: as in the URL.
        column: of the frames.
        title: as on the axis.
        span: whether it is a time span in seconds, drawn in the unit that fits.
    """

    key: str
    column: str
    title: str
    span: bool = False


AXES: Final = {
    axis.key: axis
    for axis in (
        XAxis("tokens", "tokens", "Consumed tokens"),
        XAxis("step", "step", "Step"),
        XAxis("samples", "samples", "Consumed samples"),
        XAxis("wall clock", "wall_s", "Wall clock since the start", span=True),
        XAxis("process time", "process_s", "Time spent in steps", span=True),
    )
}


@dataclass(frozen=True, slots=True)
class Placement:
    """An axis with its unit and extent, fixed for all panels of a page.

    Attributes:
        axis: the choice.
        divisor: seconds of one unit for a time span, else 1.
        title: with its unit.
        unit: of a time span, else empty.
        extent: smallest and largest x.
        window: the same of what is drawn, where that is a part.
    """

    axis: XAxis
    divisor: float
    title: str
    unit: str
    extent: tuple[float, float]
    window: tuple[float, float] | None = None

    @classmethod
    def of(cls, axis: XAxis, curves: Sequence[Curves]) -> "Placement":
        """Fits the unit and the extent to the curves that will be drawn."""
        low, high = _extent(axis, curves)
        divisor, unit, title = 1.0, "", axis.title
        if axis.span:
            found = ((size, unit) for at_least, size, unit in _SPANS if high >= at_least)
            divisor, unit = next(found, (1.0, "s"))
            title = f"{axis.title} ({unit})"
        return cls(axis, divisor, title, unit, (low / divisor, high / divisor))

    def within(self, curves: Sequence[Curves]) -> "Placement":
        """The same axis, of which a part is drawn."""
        low, high = _extent(self.axis, curves)
        return replace(self, window=(low / self.divisor, high / self.divisor))

    @property
    def column(self) -> str:
        """The fact that the axis shows."""
        return self.axis.column

    def place(self, frame: pd.DataFrame) -> pd.Series:
        """The x of every row."""
        return frame[self.axis.column].astype(float) / self.divisor


def _extent(axis: XAxis, curves: Sequence[Curves]) -> tuple[float, float]:
    found = [each.extent(axis.column) for each in curves if len(each)]
    return (min(low for low, _ in found), max(high for _, high in found)) if found else (0.0, 1.0)


def axes_of(curves: Sequence[RunFrames]) -> list[str]:
    """The axes that all of some runs have: another trainer reports no samples, and not always tokens."""
    facts = {"step", "wall_s", "process_s"}
    if all(each.path.has_tokens for each in curves):
        facts.add("tokens")
    if not any(each.recorded for each in curves):
        facts.add("samples")
    return [key for key, axis in AXES.items() if axis.column in facts]


WINDOWS: Final = {"all steps": None, "last 1000": 1000, "last 100": 100}


def choose_window() -> int | None:
    """How many of the newest steps are drawn, None for all: each choice is downsampled anew."""
    check_address(steps=among(WINDOWS))
    chosen = st.selectbox(
        "Steps",
        list(WINDOWS),
        required=True,
        key="steps",
        bind="query-params",
        label_visibility="collapsed",
        width=115,
    )
    return WINDOWS[chosen or "all steps"]


def choose_axis(curves: Sequence[RunFrames]) -> XAxis:
    """The page's switch; its state is in the URL.

    Args:
        curves: of the runs that are drawn.
    """
    check_address(x=among(AXES))
    keys = axes_of(curves)
    if st.session_state.get("x", keys[0]) not in keys or ("x" not in st.session_state and not_there(keys)):
        st.session_state["x"] = keys[0]
    chosen = st.segmented_control(
        "Horizontal axis",
        keys,
        default=None if "x" in st.session_state else keys[0],
        required=True,
        key="x",
        bind="query-params",
        label_visibility="collapsed",
    )
    return axis_of(chosen or keys[0], curves)


def axis_of(key: str, curves: Sequence[RunFrames]) -> XAxis:
    """An axis; the title of the tokens says where they are those of rank 0 alone."""
    axis = AXES[key]
    parts = [not each.all_ranks for each in curves]
    if key != "tokens" or not any(parts):
        return axis
    return replace(axis, title=f"{axis.title}, of {'' if all(parts) else 'some runs of '}rank 0 alone")


def not_there(keys: Sequence[str]) -> bool:
    """Whether the address asks for an axis that the runs do not have."""
    return st.query_params.get("x", keys[0]) not in keys
