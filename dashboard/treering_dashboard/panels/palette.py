"""Colours of marks and lines, by theme: each differs from the page by a contrast of at least 3 to 1 (WCAG 1.4.11).

Okabe and Ito's palette in its fixed order; the tones that are too light for a white page are darkened there.
"""

from typing import Final, Literal

import streamlit as st

Theme = Literal["light", "dark"]
PALETTE: Final[dict[Theme, tuple[str, ...]]] = {
    "light": ("#0072B2", "#B07800", "#008A64", "#B5558A", "#2A88C0", "#C85200", "#757575"),
    "dark": ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#2A88C0", "#D55E00", "#949494"),
}


def theme() -> Theme:
    """The theme of the visitor's page."""
    return "dark" if st.context.theme.type == "dark" else "light"
