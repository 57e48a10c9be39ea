"""TFLOP/s of a device against the number of devices: the project's runs, and published trainings beside them."""

from collections.abc import Sequence
from typing import Final

import altair as alt
import pandas as pd
import streamlit as st

from treering.errors import ConfigError, EvidenceError
from treering.metrics.references import read_references
from treering.metrics.scaling import FORMULA, OWN, Speed, own_speed, published_speeds
from treering_dashboard.frames import cached
from treering_dashboard.panels.answer import error_box
from treering_dashboard.panels.download import Download, download_menu
from treering_dashboard.panels.foreign import say
from treering_dashboard.panels.palette import PALETTE, Theme, legible, theme
from treering_dashboard.panels.tables import table
from treering_dashboard.panels.text import NOTHING, count, number

_HEIGHT: Final = 320


def page() -> None:
    """Draws the page."""
    own, damaged = _own()
    try:
        references = read_references(cached.project().references)
    except ConfigError as error:
        error_box("The published numbers cannot be read.", error)
        references = []
    speeds = [*own, *published_speeds(references)]
    for fault in damaged:
        error_box("A run is left out.", fault)
    if not speeds:
        st.info("No run has a step yet, and experiments/references holds no published speeds.", icon=":material/info:")
        return
    st.caption(
        f"TFLOP/s of a device by {FORMULA}, which counts what recompute repeats. Own runs: the median of the newest "
        "steps. Efficiency is against the same model on the fewest devices of its series."
    )
    st.altair_chart(
        chart(speeds, theme()), width="stretch", key="scaling", alt="TFLOP/s of a device against the number of devices"
    )
    frame = speeds_frame(speeds)
    table(
        frame,
        "Speed of each training",
        numbers=("Devices", "Batch", "Step", "TFLOP/s", "Of the peak", "Efficiency"),
        rows=16,
    )
    download_menu("scaling", [Download("speeds", lambda: frame, lambda: chart(speeds, "light"))])
    shown = [each for each in references if each.speeds]
    say(*(f"{each.model}: {each.citation}; {each.caveat}" for each in shown))


def _own() -> tuple[list[Speed], list[EvidenceError]]:
    found, damaged = [], []
    for run in cached.runs():
        try:
            speed = own_speed(run)
        except EvidenceError as error:
            damaged.append(error)
        else:
            found += [speed] if speed else []
    return found, damaged


def speeds_frame(speeds: Sequence[Speed]) -> pd.DataFrame:
    """One row a training, as text."""
    return pd.DataFrame(
        [
            {
                "Series": each.series,
                "Training": each.name,
                "Parameters": each.parameters,
                "Devices": count(each.devices),
                "Device": each.device,
                "Batch": count(each.batch),
                "Step": NOTHING if each.seconds is None else number(each.seconds, "s"),
                "TFLOP/s": number(each.tflops),
                "Of the peak": NOTHING if each.peak_share is None else f"{each.peak_share:.1%}",
                "Efficiency": NOTHING if each.efficiency is None else f"{each.efficiency:.1%}",
            }
            for each in speeds
        ]
    )


def chart(speeds: Sequence[Speed], of: Theme) -> alt.LayerChart:
    """Both axes logarithmic: one series a line, own runs as points alone."""
    data = pd.DataFrame(
        [
            {
                "series": each.series,
                "training": each.name,
                "devices": each.devices,
                "tflops": each.tflops,
                "device": each.device,
            }
            for each in speeds
        ]
    )
    series = list(dict.fromkeys(data["series"]))
    colours = alt.Scale(domain=series, range=[PALETTE[of][place % len(PALETTE[of])] for place in range(len(series))])
    x = alt.X("devices:Q", title="devices, log", scale=alt.Scale(type="log"), axis=alt.Axis(format="~s"))
    y = alt.Y("tflops:Q", title="TFLOP/s of a device, log", scale=alt.Scale(type="log"), axis=alt.Axis(format="~g"))
    colour = alt.Color("series:N", title=None, scale=colours, legend=alt.Legend(orient="top"))
    base = alt.Chart(data).encode(x=x, y=y, color=colour)
    points = base.mark_point(filled=True, size=60).encode(
        shape=alt.Shape("series:N", title=None, scale=alt.Scale(domain=series)),
        tooltip=[
            alt.Tooltip("training:N"),
            alt.Tooltip("devices:Q", format=","),
            alt.Tooltip("tflops:Q", title="TFLOP/s", format=".3~g"),
            alt.Tooltip("device:N"),
        ],
    )
    lines = base.mark_line().transform_filter(alt.datum.series != OWN)
    return legible(alt.LayerChart(layer=[lines, points], height=_HEIGHT), of)
