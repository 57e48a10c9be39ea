"""Panels: small charts of one unit each, stacked over one x with ticks on the lowest.

A panel shows the last value of every bucket as its line and minimum to maximum as a band; restarts cut the line.
Okabe-Ito colours in a fixed order, so that a colour means the same on every page.

- The server cuts a curve into at most 1000 buckets. Each keeps minimum, maximum, last value and how many values were no
  numbers. The steps at the end of a curve ("last 1000", "last 100") are cut anew.
- A restart is a dashed rule and ends the line. Steps that it did again are grey and off by default ("Replaced steps").
- Alarms are triangles on the metric that shows them, with the rule's name in their tooltip, and thin rules through loss
  and gradient norm. NaN, and zero or below on a log axis, are crosses under the axis.
- Incidents are diamonds at the upper edge of every panel, at the last step before each, those of attempts off the path
  too; their table is below the curves.
- Scores are points with a band of one standard error up and down.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import altair as alt
import numpy as np
import pandas as pd
import streamlit as st

from treering.foreign import shown
from treering_dashboard.panels.axis import Placement

OKABE_ITO: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C8C8C")
_ON_DARK = {"#0072B2": "#56B4E9", "#56B4E9": "#0072B2"}

SPIKE: Final = "#D55E00"
GREY: Final = "#8C8C8C"
PANEL_HEIGHT: Final = 110

PLAIN: Final = ".3~g"
"""Ticks of plain numbers."""

_HOVER = "hover"
_HEADER_STEP, _HEADER_ROW, _HEADER_COLUMNS = 96, 13, 3
_GUTTER = 46
"""Pixels at the left of a panel that hold its ticks."""


class Stroke(NamedTuple):
    """How a curve is drawn among others."""

    colour: str
    dashed: bool


@dataclass(frozen=True, slots=True)
class Line:
    """One curve.

    Attributes:
        data: columns x, y, step, tokens and segment; lo and hi where there is a band; bad where values may be no
            numbers; value where the curve is the upper edge of a layer, from lo to hi, that is as thick as value.
        label: in the panel's header; empty for the only curve of a panel.
        latest: its newest value as text.
        colour: of line and label.
        points: whether each row is drawn as a point as well.
        muted: drawn thin, without header and tooltip.
        dashed: distinguishes curves that share a colour.
    """

    data: pd.DataFrame
    label: str
    latest: str
    colour: str = OKABE_ITO[0]
    points: bool = False
    muted: bool = False
    dashed: bool = False

    @property
    def has_numbers(self) -> bool:
        """Whether a point of it can be drawn."""
        return bool(self.data["y"].notna().any())


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart of a stack.

    Attributes:
        title: what is drawn.
        unit: of the y axis, empty for pure numbers.
        lines: its curves.
        log: logarithmic y.
        spikes: flagged points, columns x, y, step, rule, value, background.
        alarms: x of every flagged step of the run, drawn as thin rules through panels that belong together.
        y_format: d3 format of the ticks.
        zero: whether y starts at zero.
    """

    title: str
    unit: str
    lines: tuple[Line, ...]
    log: bool = False
    spikes: pd.DataFrame | None = None
    alarms: pd.DataFrame | None = None
    y_format: str = "~s"
    zero: bool = False
    height: int = field(default=PANEL_HEIGHT)


@dataclass(frozen=True, slots=True)
class Marks:
    """What happened to a run beside its numbers, drawn through all panels of a stack.

    Attributes:
        restarts: columns x and label; a dashed rule each.
        incidents: columns x and label; a diamond at the panel's upper edge each.
    """

    restarts: pd.DataFrame
    incidents: pd.DataFrame


def strokes(num_curves: int) -> list[Stroke]:
    """Colours in their fixed order; where there are more curves than colours, the next round is dashed."""
    return [Stroke(OKABE_ITO[i % len(OKABE_ITO)], dashed=i // len(OKABE_ITO) % 2 == 1) for i in range(num_curves)]


def draw_stack(panels: Sequence[Panel], x: Placement, marks: Marks, *, key: str, alt_text: str) -> None:
    """Draws panels below each other over the page's x.

    Args:
        panels: at least one.
        x: the page's axis.
        marks: of restarts and incidents.
        key: stable name of the element, so that a refresh keeps zoom and scroll.
        alt_text: what the charts show, for readers who do not see them.
    """
    if st.context.theme.type == "dark":
        panels = [on_dark(panel) for panel in panels]
    st.altair_chart(stack(panels, x, marks), width="stretch", key=key, alt=alt_text)


def on_dark(panel: Panel) -> Panel:
    """The panel with the palette's two blues exchanged: the darker one is hard to read on a dark page."""
    lines = tuple(replace(line, colour=_ON_DARK.get(line.colour, line.colour)) for line in panel.lines)
    return replace(panel, lines=lines)


def stack(panels: Sequence[Panel], x: Placement, marks: Marks) -> alt.VConcatChart:
    """The specification of `draw_stack`."""
    charts = [_panel(panel, x, marks, number, lowest=number == len(panels) - 1) for number, panel in enumerate(panels)]
    # Everything by constructors: each method of a chart copies everything below it.
    stacked = alt.VConcatChart(
        vconcat=charts,
        spacing=8,
        resolve=alt.Resolve(scale=alt.ScaleResolveMap(x="independent")),
        config=alt.Config(
            view=alt.ViewConfig(strokeOpacity=0),
            axis=alt.AxisConfig(
                labelFontSize=10,
                titleFontSize=11,
                titleFontWeight="normal",
                titlePadding=2,
                ticks=False,
                labelPadding=5,
            ),
            title=alt.TitleConfig(anchor="start", fontSize=12, fontWeight=600, offset=3),
        ),
    )
    # Names are read back, because concatenation makes them unique by changing them.
    layers = [layer for chart in stacked.vconcat for layer in chart.layer]
    stacked.params = [_hover([layer.name for layer in layers if str(layer.name).startswith(_HOVER)])]
    return stacked


def _hover(views: list[str]) -> alt.TopLevelSelectionParameter:
    """One selection for all panels: the pointer in one shows the same step in all.

    Altair's own way of sharing a selection among charts warns of it.
    """
    select = alt.PointSelectionConfig(type="point", fields=["step"], nearest=True, on="pointermove", clear="pointerout")
    return alt.TopLevelSelectionParameter(name=_HOVER, select=select, views=views)


def _panel(panel: Panel, x: Placement, marks: Marks, number: int, *, lowest: bool) -> alt.LayerChart:
    axis = alt.Axis(
        title=x.title if lowest else None,
        labels=lowest,
        format="~s" if not x.axis.span else "~g",
        tickCount=4,
        grid=False,
        domain=True,
        domainOpacity=0.3,
        labelFlush=True,
    )
    x_encoding = alt.X("x:Q", axis=axis)
    ticks = log_ticks(*_extent(panel)) if panel.log else None
    scale = alt.Scale(type="log", nice=False, domain=[ticks[0], ticks[-1]]) if ticks else alt.Scale(zero=panel.zero)
    # Ticks are in a gutter inside the panel: outside, their width would be added to that of the column.
    y_axis = alt.Axis(
        title=None,
        format=_ticks(panel),
        offset=-_GUTTER,
        minExtent=0,
        maxExtent=0,
        domain=False,
        grid=True,
        **({"values": ticks} if ticks else {"tickCount": 4}),
    )

    def y_encoding(name: str) -> alt.Y:
        return alt.Y(f"{name}:Q", axis=y_axis, scale=scale)

    # One layer alone has the scale: equal gutters of several layers count as a conflict.
    x_scale = alt.Scale(domain=list(x.extent), nice=False, rangeMin=_GUTTER)
    ends = pd.DataFrame({"x": x.extent})
    layers: list[Any] = [
        alt.Chart(ends).mark_rule(opacity=0, tooltip=None).encode(x=alt.X("x:Q", axis=axis, scale=x_scale))
    ]
    if len(marks.restarts):
        layers.append(
            alt.Chart(marks.restarts)
            .mark_rule(strokeDash=[3, 3], color=GREY, opacity=0.8)
            .encode(x=x_encoding, tooltip=[alt.Tooltip("label:N", title="Restart")])
        )
    if len(marks.incidents):
        layers.append(
            alt.Chart(marks.incidents)
            .mark_point(shape="diamond", filled=True, size=60, color=SPIKE, opacity=1)
            .encode(
                x=x_encoding,
                y=alt.YValue(4),  # type: ignore[no-untyped-call]
                tooltip=[alt.Tooltip("label:N", title="Incident")],
            )
        )
    if panel.alarms is not None and len(panel.alarms):
        layers.append(alt.Chart(panel.alarms).mark_rule(color=SPIKE, opacity=0.3, tooltip=None).encode(x=x_encoding))
    first = next((position for position, line in enumerate(panel.lines) if not line.muted), None)
    for position, line in enumerate(panel.lines):
        # A layered view takes the pointer in one layer; the other curves follow by their step.
        takes_pointer = position == first
        layers.extend(_line(line, panel, x_encoding, y_encoding, f"{_HOVER}-{number}" if takes_pointer else None))
    if panel.spikes is not None and len(panel.spikes):
        layers.append(
            alt.Chart(panel.spikes)
            .mark_point(shape="triangle-down", filled=True, size=46, color=SPIKE, opacity=1, yOffset=-7)
            .encode(
                x=x_encoding,
                y=y_encoding("y"),
                tooltip=[
                    alt.Tooltip("rule:N", title="Alarm"),
                    alt.Tooltip("step:Q", title="At step"),
                    alt.Tooltip("value:Q", title="Value", format=".3~g"),
                    alt.Tooltip("background:Q", title="Compared with", format=".3~g"),
                ],
            )
        )
    layers.extend(_header(panel))
    return alt.LayerChart(layer=layers, title=shown(panel.title), height=panel.height)


def _ticks(panel: Panel) -> str:
    """The format of the ticks: with more digits where the values lie so close that three digits would repeat."""
    if panel.log or panel.y_format != PLAIN:
        return panel.y_format
    values = _values(panel)
    values = values[np.isfinite(values)]
    low, high = (0.0 if panel.zero else float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    largest = max(abs(low), abs(high))
    digits = math.ceil(math.log10(largest / (high - low))) + 2 if high > low and largest > 0 else 3
    return f".{min(max(digits, 3), 9)}~g"


def _values(panel: Panel) -> pd.Series:
    """All that the panel draws."""
    parts = [line.data[name] for line in panel.lines for name in ("y", "lo", "hi") if name in line.data]
    return pd.concat(parts, ignore_index=True)


def _extent(panel: Panel) -> tuple[float, float]:
    """Smallest and largest positive value that the panel draws."""
    values = _values(panel)
    values = values[values > 0]
    return (float(values.min()), float(values.max())) if len(values) else (1.0, 1.0)


def log_ticks(low: float, high: float) -> list[float]:
    """Ticks of a log axis, at most six: of 1, 2 and 5, or decades; the outer ones enclose `low` and `high`.

    The axis ends at its outer ticks, so that every panel of one metric reads the same.
    """
    bottom, top = math.floor(math.log10(low)), math.ceil(math.log10(high) + 1e-9)
    fine = [step * 10.0**power for power in range(bottom, top + 1) for step in (1, 2, 5)]
    first = max(index for index, tick in enumerate(fine) if tick <= low * (1 + 1e-9))
    last = min(index for index, tick in enumerate(fine) if tick >= high * (1 - 1e-9) and index > first)
    if last - first <= 5:
        return fine[first : last + 1]
    stride = math.ceil((top - bottom) / 5)
    return [10.0**power for power in range(bottom, top + stride, stride)]


def _line(line: Line, panel: Panel, x: alt.X, y: Callable[[str], alt.Y], view: str | None) -> list[alt.Chart]:
    data = line.data
    drawn = data[data["y"].notna()]
    has_band = "lo" in data and bool((data["hi"] > data["lo"]).any())
    is_layer = "value" in data
    layers = []
    if has_band:
        layers.append(
            alt.Chart(data[data["lo"].notna()])
            .mark_area(opacity=0.6 if is_layer else 0.1 if line.points else 0.25, color=line.colour, line=False)
            .encode(x=x, y=y("lo"), y2="hi:Q", detail="segment:N")
        )
    mark = alt.Chart(drawn).mark_line(
        color=line.colour,
        strokeWidth=1 if line.muted else 1.4,
        strokeDash=[4, 2] if line.dashed else [1, 0],
        opacity=0.4 if line.muted else 1,
        clip=True,
    )
    layers.append(mark.encode(x=x, y=y("y"), detail="segment:N"))
    if line.points:
        layers.append(
            alt.Chart(drawn).mark_point(filled=True, size=22, color=line.colour, opacity=1).encode(x=x, y=y("y"))
        )
    if "bad" in data and (data["bad"] > 0).any():
        layers.append(
            alt.Chart(data[data["bad"] > 0])
            .mark_point(shape="cross", filled=True, size=42, color=SPIKE, opacity=1)
            .encode(
                x=x,
                y=alt.YValue(panel.height - 4),  # type: ignore[no-untyped-call]
                tooltip=[alt.Tooltip("step:Q", title="Up to step"), alt.Tooltip("bad:Q", title="Not drawable")],
            )
        )
    if not line.muted:
        hovered = alt.OpacityValue(0, condition={"param": _HOVER, "empty": False, "value": 1})
        read = "value:Q" if is_layer else "y:Q"
        tooltip = [
            alt.Tooltip("step:Q", title="Step", format=","),
            *([alt.Tooltip("tokens:Q", title="Tokens", format=",")] if "tokens" in data else []),
            alt.Tooltip(read, title=_titled(line.label or panel.title, panel.unit), format=".4~g"),
        ]
        if has_band and not is_layer:
            # Measured points carry their standard error, buckets their extremes.
            low, high = ("Lowest", "Highest") if "bad" in data else ("One error below", "One error above")
            tooltip += [alt.Tooltip(f"{k}:Q", title=t, format=".4~g") for k, t in (("lo", low), ("hi", high))]
        points = alt.Chart(drawn).mark_point(filled=True, size=36, color=line.colour)
        points = points.encode(x=x, y=y("y"), opacity=hovered, tooltip=tooltip)
        layers.append(points.properties(name=view) if view else points)
    return layers


def _limit(shown: Sequence[Line]) -> int:
    """Pixels that a readout may take: a whole row if it is the only one."""
    return _HEADER_STEP - 6 if len(shown) > 1 else _HEADER_STEP * _HEADER_COLUMNS


def _titled(title: str, unit: str) -> str:
    """A row's name in a tooltip; Vega's tooltips read rows of two names as a headline and as a picture's address."""
    name = shown(f"{title} ({unit})" if unit else title)
    return f"{name}:" if name in ("title", "image") else name


def _header(panel: Panel) -> list[alt.Chart]:
    """The newest value of each curve in its colour, above the panel: legend and readout in one."""
    one = pd.DataFrame({"row": [0]})
    named = [line for line in panel.lines if not line.muted]
    rows = math.ceil(len(named) / _HEADER_COLUMNS)
    return [
        alt.Chart(one)
        .mark_text(align="left", baseline="bottom", fontSize=11, color=line.colour, fontWeight=500, limit=_limit(named))
        .encode(
            x=alt.XValue(number % _HEADER_COLUMNS * _HEADER_STEP),  # type: ignore[no-untyped-call]
            y=alt.YValue(-5 - _HEADER_ROW * (rows - 1 - number // _HEADER_COLUMNS)),  # type: ignore[no-untyped-call]
            text=alt.TextValue(shown(f"{line.label} {line.latest}".strip())),
        )
        for number, line in enumerate(named)
    ]
