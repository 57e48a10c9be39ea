"""The panels of a board for the menu of downloads: the drawn numbers, and the same as a picture."""

from functools import partial
from typing import TYPE_CHECKING

import pandas as pd

from treering.foreign import shown
from treering_dashboard.panels.axis import Placement
from treering_dashboard.panels.charts import Board, Line, Panel
from treering_dashboard.panels.download import Download

if TYPE_CHECKING:
    import altair as alt

_WIDTH, _HEIGHT = 640, 260


def downloads(board: Board, x: Placement) -> list[Download]:
    """Every panel of a board.

    Args:
        board: that is drawn.
        x: the page's axis.
    """
    return [
        Download(panel.title, partial(numbers_of, panel, x), partial(picture_of, panel, x)) for panel in board.panels
    ]


def numbers_of(panel: Panel, x: Placement) -> pd.DataFrame:
    """The drawn numbers of a panel: `curve`, the page's x, `last`, `lowest`, `highest`, `bad`, `step`, `segment`."""
    names = {"x": x.title, "y": "last", "lo": "lowest", "hi": "highest"}
    parts = [
        line.data.drop(columns=["value"], errors="ignore").rename(columns=names).assign(curve=_name(line, panel))
        for line in panel.lines
    ]
    frame = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame({"curve": []})
    return frame[["curve", *(name for name in frame if name != "curve")]]


def _name(line: Line, panel: Panel) -> str:
    return shown(line.label or (f"{panel.title} (replaced or raw)" if line.muted else panel.title))


def picture_of(panel: Panel, x: Placement) -> "alt.LayerChart":
    """The curves of a panel with their bands."""
    import altair as alt  # noqa: PLC0415 - a picture is asked for seldom

    data = numbers_of(panel, x).rename(columns={x.title: "x"})
    data = data[(data["last"] > 0) if panel.log else data["last"].notna()]
    curves = [_name(line, panel) for line in panel.lines]
    colour = alt.Color(
        "curve:N", title=None, scale=alt.Scale(domain=curves, range=[line.colour for line in panel.lines])
    )
    scale = alt.Scale(type="log") if panel.log else alt.Scale(zero=panel.zero)
    across = alt.X("x:Q", title=x.title, axis=alt.Axis(format="~s" if not x.axis.span else "~g", grid=False))
    up = alt.Y("last:Q", title=shown(panel.unit) or None, scale=scale)
    layers = [alt.Chart(data).mark_line().encode(x=across, y=up, color=colour, detail="segment:N")]
    if "lowest" in data:
        band = alt.Chart(data).mark_area(opacity=0.25)
        layers.insert(0, band.encode(x=across, y=alt.Y("lowest:Q"), y2="highest:Q", color=colour, detail="segment:N"))
    return alt.LayerChart(layer=layers, title=shown(panel.title), width=_WIDTH, height=_HEIGHT)
