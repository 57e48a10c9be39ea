"""Heat maps of many cells, drawn by ECharts on a canvas; every cell says its numbers when it is pointed at.

Colours differ from the page by a contrast of 3 to 1 in both themes, from the lowest to the highest. Values far outside
the others are drawn in the colour of the limit, and the caption says how many: one dead device must not hide the rest.
"""

from dataclasses import dataclass
from typing import Any, Final

import altair as alt
import numpy as np
import pandas as pd
import streamlit as st

from treering_dashboard.panels.download import Download, download_menu
from treering_dashboard.panels.palette import QUIET, Theme, theme
from treering_dashboard.panels.text import number, plural

RAMP: Final[dict[Theme, tuple[str, ...]]] = {
    "light": ("#7C96B2", "#2F6DA8", "#3B0F4F"),
    "dark": ("#4F6D8F", "#56B4E9", "#FFE08A"),
}
"""From low to high."""
_USUAL: Final = 12.0
"""Usual distances from the median within which colours differ."""


@dataclass(frozen=True, slots=True)
class HeatMap:
    """A heat map.

    Attributes:
        name: of its files and its element.
        frame: columns `x`, `y` (texts), `value`, and others that a cell says when it is pointed at.
        x: title of the horizontal axis.
        y: of the vertical one.
        unit: of the values, empty for pure numbers.
        low: the value of the lowest colour.
        high: of the highest.
        tooltip: ECharts' template, of the columns of the frame in `{@column}`.
        height: pixels.
    """

    name: str
    frame: pd.DataFrame
    x: str
    y: str
    unit: str
    low: float
    high: float
    tooltip: str
    height: int

    @property
    def outside(self) -> int:
        """How many values lie outside the colours."""
        values = self.frame["value"]
        return int(((values < self.low) | (values > self.high)).sum())


def limits(values: np.ndarray) -> tuple[float, float]:
    """Lowest and highest colour: the extremes, but no farther from the median than twelve usual distances."""
    known = values[np.isfinite(values)]
    if not len(known):
        return 0.0, 1.0
    low, high, middle = float(known.min()), float(known.max()), float(np.median(known))
    reach = _USUAL * 1.4826 * float(np.median(np.abs(known - middle)))
    if reach > 0:
        low, high = max(low, middle - reach), min(high, middle + reach)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def draw(heat_map: HeatMap, alt_text: str, file: str) -> None:
    """Draws a heat map, and says what its colours cut.

    Args:
        heat_map: what is drawn.
        alt_text: the same for readers who do not see it.
        file: how the names of its downloads begin.
    """
    st.echarts_chart(
        option(heat_map, theme()), height=heat_map.height, width="stretch", key=heat_map.name, alt=alt_text
    )
    if heat_map.outside:
        st.caption(
            f"Colours end at {number(heat_map.low, heat_map.unit)} and {number(heat_map.high, heat_map.unit)}; "
            f"{plural(heat_map.outside, 'cell')} beyond."
        )
    download_menu(file, [Download(heat_map.name, lambda: numbers(heat_map), lambda: chart(heat_map))])


def option(heat_map: HeatMap, of: Theme) -> dict[str, Any]:
    """What ECharts draws."""
    factor, prefix = scale(heat_map)
    frame = heat_map.frame.assign(colour=heat_map.frame["value"].clip(heat_map.low, heat_map.high) / factor)
    places = {name: list(dict.fromkeys(frame[name])) for name in ("x", "y")}
    return {
        "animation": False,
        "dataset": {"source": frame},
        "grid": {"left": 24, "right": 4, "top": 40, "bottom": 20, "containLabel": True},
        "tooltip": {"formatter": heat_map.tooltip, "confine": True},
        "xAxis": {**_axis(heat_map.x, places["x"], of), "nameGap": 26},
        "yAxis": {
            **_axis(heat_map.y, places["y"], of),
            "nameTextStyle": {"align": "left", "color": QUIET[of]},
            "nameLocation": "start",
            "nameGap": 8,
            "inverse": True,
        },
        "visualMap": {
            "type": "continuous",
            "dimension": list(frame).index("colour"),
            "min": heat_map.low / factor,
            "max": heat_map.high / factor,
            "precision": _digits(heat_map.high / factor - heat_map.low / factor),
            "formatter": f"{{value}} {prefix}{heat_map.unit}".rstrip(),
            "inRange": {"color": list(RAMP[of])},
            "calculable": True,
            "orient": "horizontal",
            "right": 0,
            "top": 0,
            "itemWidth": 10,
            "textStyle": {"color": QUIET[of]},
            "itemHeight": 160,
        },
        "series": [
            {
                "type": "heatmap",
                "encode": {"x": "x", "y": "y", "value": "colour"},
                "progressive": 0,
                "emphasis": {"itemStyle": {"borderColor": "#D55E00", "borderWidth": 1}},
            }
        ],
    }


def _axis(title: str, names: list[str], of: Theme) -> dict[str, Any]:
    return {
        "type": "category",
        "data": names,
        "name": title,
        "nameLocation": "middle",
        "nameTextStyle": {"color": QUIET[of]},
        "axisLabel": {"color": QUIET[of]},
        "splitArea": {"show": False},
        "splitLine": {"show": False},
        "axisTick": {"show": False},
    }


def scale(heat_map: HeatMap) -> tuple[float, str]:
    """What values are divided by beside the colours, and the letter of its unit."""
    size = max(abs(heat_map.low), abs(heat_map.high))
    return next(((factor, prefix) for factor, prefix in ((1e9, "G"), (1e6, "M")) if size >= factor), (1.0, ""))


def _digits(span: float) -> int:
    return max(0, min(6, 2 - int(np.floor(np.log10(span))))) if span > 0 else 2


def numbers(heat_map: HeatMap) -> pd.DataFrame:
    """The cells, one row each."""
    return heat_map.frame.rename(columns={"x": heat_map.x, "y": heat_map.y})


def chart(heat_map: HeatMap) -> alt.Chart:
    """The same for a file."""
    title = f"{heat_map.name} ({heat_map.unit})" if heat_map.unit else heat_map.name
    domain = np.linspace(heat_map.low, heat_map.high, len(RAMP["light"]))
    colour = alt.Scale(domain=domain.tolist(), range=list(RAMP["light"]), clamp=True)
    records: Any = (
        heat_map.frame[["x", "y", "value"]].dropna().to_dict("records")
    )  # Altair refuses frames of 5,000 rows
    orders = {name: list(dict.fromkeys(heat_map.frame[name])) for name in ("x", "y")}
    drawn: alt.Chart = (
        alt.Chart(alt.InlineData(values=records), width=1200, height=max(heat_map.height - 80, 120))
        .mark_rect()
        .encode(
            x=alt.X("x:N", title=heat_map.x, sort=orders["x"], axis=alt.Axis(labelOverlap=True)),
            y=alt.Y("y:N", title=heat_map.y, sort=orders["y"], axis=alt.Axis(labelOverlap=True)),
            color=alt.Color("value:Q", title=title, scale=colour),
        )
    )
    return drawn
