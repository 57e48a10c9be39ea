"""Panels as files: their numbers as CSV, their pictures as SVG. A file is made when it is asked for."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pandas as pd
import streamlit as st

from treering_dashboard.panels.foreign import label

if TYPE_CHECKING:
    import altair as alt


@dataclass(frozen=True, slots=True)
class Download:
    """A panel that can be downloaded.

    Attributes:
        title: of the panel.
        frame: makes its numbers.
        chart: makes its picture; None where the panel is a table.
    """

    title: str
    frame: Callable[[], pd.DataFrame]
    chart: "Callable[[], alt.TopLevelMixin] | None" = None


def download_menu(name: str, panels: Sequence[Download]) -> None:
    """A menu with each panel as CSV and SVG.

    Args:
        name: of the files, before the panel's title; tells the menus of a page apart.
        panels: what is drawn.
    """
    with st.popover("Download", icon=":material/download:", type="tertiary"):
        for panel in panels:
            file = "-".join([name, *"".join(c if c.isalnum() else " " for c in panel.title).lower().split()])
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                _button("CSV", panel, f"{file}.csv", partial(_csv, panel.frame))
                if panel.chart is not None:
                    _button("SVG", panel, f"{file}.svg", partial(_svg, panel.chart))


def _button(kind: str, panel: Download, file: str, content: Callable[[], bytes]) -> None:
    st.download_button(
        f"{kind} of {label(panel.title)}",
        content,
        file_name=file,
        mime="text/csv" if kind == "CSV" else "image/svg+xml",
        key=f"download {file}",
        on_click="ignore",
        type="tertiary",
    )


def _csv(frame: Callable[[], pd.DataFrame]) -> bytes:
    return csv(frame())


def _svg(chart: "Callable[[], alt.TopLevelMixin]") -> bytes:
    return svg(chart())


def csv(frame: pd.DataFrame) -> bytes:
    """A table as CSV; no cell begins a formula, which a spreadsheet would compute."""
    return frame.map(_cell).to_csv(index=False).encode()


def _cell(value: object) -> object:
    text = " ".join(map(str, value)) if isinstance(value, list) else value
    return f"'{text}" if isinstance(text, str) and text.startswith(("=", "+", "-", "@", "\t")) else text


def svg(chart: "alt.TopLevelMixin") -> bytes:
    """A chart as a picture on white."""
    import vl_convert  # noqa: PLC0415 - a picture is asked for seldom

    return str(vl_convert.vegalite_to_svg({"background": "white", **json.loads(chart.to_json())})).encode()
