"""Colours of marks and lines, by theme: each differs from the page by a contrast of at least 3 to 1 (WCAG 1.4.11).

Okabe and Ito's palette in its fixed order; the tones that are too light for a white page are darkened there.
"""

from typing import TYPE_CHECKING, Final, Literal, TypeVar

import streamlit as st

if TYPE_CHECKING:
    import altair as alt

Theme = Literal["light", "dark"]
PALETTE: Final[dict[Theme, tuple[str, ...]]] = {
    "light": ("#0072B2", "#B07800", "#008A64", "#B5558A", "#2A88C0", "#C85200", "#757575"),
    "dark": ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#2A88C0", "#D55E00", "#949494"),
}
INK: Final[dict[Theme, str]] = {"light": "#14171C", "dark": "#FAFAFA"}
"""Text in charts, and of axes a tone that is quieter and still has 4.5 to 1: Streamlit's own has less on white."""
QUIET: Final[dict[Theme, str]] = {"light": "#5B616B", "dark": "#C9D1D9"}

C = TypeVar("C", "alt.LayerChart", "alt.Chart")


def theme() -> Theme:
    """The theme of the visitor's page."""
    return "dark" if st.context.theme.type == "dark" else "light"


def legible(chart: C, of: Theme) -> C:
    """A chart whose axes and legend can be read on the page."""
    quiet = QUIET[of]
    axes: C = chart.configure_axis(labelColor=quiet, titleColor=quiet)
    drawn: C = axes.configure_legend(labelColor=quiet, titleColor=quiet)
    return drawn
