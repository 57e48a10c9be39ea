"""The logbook of a run: incidents, restarts, alarms, stalls and notes on one timeline, with the work that each cost."""

import time
from collections.abc import Sequence
from typing import Final

import altair as alt
import numpy as np
import pandas as pd
import streamlit as st

from treering.metrics.logbook import ROUTINE, Event, Logbook
from treering.metrics.logbook_text import clock, loss_text, markdown_of, total_text
from treering.runlog.directory import RunDirectory
from treering.runlog.find import AnyRun
from treering_dashboard import links
from treering_dashboard.frames import cached
from treering_dashboard.panels.address import among, check_all
from treering_dashboard.panels.answer import command
from treering_dashboard.panels.choice import all_runs_or_stop, choose_run
from treering_dashboard.panels.download import Download, download_menu
from treering_dashboard.panels.foreign import say
from treering_dashboard.panels.palette import PALETTE, Theme, legible, theme
from treering_dashboard.panels.state import badge
from treering_dashboard.panels.tables import clicked_row
from treering_dashboard.panels.text import NOTHING, age, count, plural

REFRESH_S: Final = 10
KINDS: Final = ("start", "end", "incident", "device", "stall", "alarm", "note", "checkpoint", "evaluation")
"""In the order of the legend."""
_SHAPES: Final = ("triangle-up", "square", "diamond", "cross", "stroke", "triangle-down", "circle", "arrow", "wedge")
_POINTS: Final = 1000
_HEIGHT: Final = 220


def page() -> None:
    """Draws the page; it looks again by itself while the run is alive."""
    runs = all_runs_or_stop()
    check_all("kinds", among(KINDS, "kind of event"), len(KINDS))
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        run = choose_run(runs)
        kinds = st.pills(
            "Kinds",
            KINDS,
            selection_mode="multi",
            default=None if "kinds" in st.query_params else [kind for kind in KINDS if kind not in ROUTINE],
            key="kinds",
            bind="query-params",
            label_visibility="collapsed",
        )
    alive = cached.summary(run).alive
    live = st.fragment(_live, run_every=REFRESH_S if alive else None, key="live")
    live(run, kinds, was_alive=alive)


def _live(run: AnyRun, kinds: Sequence[str], *, was_alive: bool) -> None:
    summary = cached.summary(run)
    if summary.alive != was_alive:
        st.rerun()
    book, now = cached.logbook(run), time.time()
    events = [event for event in book.events if event.kind in kinds]
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        badge(summary.state)
        say(plural(len(events), "event") + (f" of {count(len(book.events))}" if len(events) < len(book.events) else ""))
    say(total_text(book) or "No restart, so no work was lost.")
    if book.missing:
        say(*(f"Not read: {text}" for text in book.missing))
    if not events:
        st.info("Nothing of these kinds happened yet.", icon=":material/hourglass_empty:")
        return
    st.markdown("###### Steps over time, and what happened")
    st.altair_chart(
        timeline(book, events, theme()),
        width="stretch",
        key="timeline",
        alt=f"{plural(len(events), 'event')} on the curve of steps over time",
    )
    newest = events[::-1]
    frame = events_frame(newest, now)
    row = clicked_row(frame, "Events, newest first", key="events", numbers=("Step",), rows=15)
    if isinstance(run, RunDirectory):
        st.caption("A click on an event with a step shows what was read before it.")
    with st.container(horizontal=True, gap="small"):
        st.download_button(
            "Markdown",
            markdown_of(book, events, now),
            file_name=f"logbook-{run.path.name[:8]}.md",
            mime="text/markdown",
            on_click="ignore",
            icon=":material/download:",
            type="tertiary",
        )
        download_menu(
            f"logbook-{run.path.name[:8]}",
            [Download("events", lambda: frame, lambda: timeline(book, events, "light"))],
        )
    command(f"treering logbook {cached.named(run.path.name)} --markdown")
    if row is not None and isinstance(run, RunDirectory):
        links.open_spike(run, newest[row].step or None)


def events_frame(events: Sequence[Event], now: float) -> pd.DataFrame:
    """One row an event."""
    return pd.DataFrame(
        [
            {
                "Time (UTC)": clock(event.at),
                "Age": age(now - event.at),
                "Kind": event.kind,
                "Step": NOTHING if event.step is None else count(event.step),
                "Attempt": NOTHING if event.attempt is None else str(event.attempt),
                "What": event.title,
                "In its words": event.text,
                "Cost": loss_text(event.lost) if event.lost is not None else "",
            }
            for event in events
        ]
    )


def timeline(book: Logbook, events: Sequence[Event], of: Theme) -> alt.LayerChart:
    """Steps over time as a line for each attempt, and the events at their time and step."""
    present = [kind for kind in KINDS if any(event.kind == kind for event in events)]
    colours = [PALETTE[of][KINDS.index(kind) % len(PALETTE[of])] for kind in present]
    shapes = [_SHAPES[KINDS.index(kind)] for kind in present]
    line = _line(book)
    marks = pd.DataFrame(
        {
            "time": [pd.Timestamp(event.at, unit="s") for event in events],
            "step": _heights(events, line),
            "kind": [event.kind for event in events],
            "what": [event.title for event in events],
            "words": [event.text for event in events],
        }
    )
    x, y = alt.X("time:T", title="time, UTC"), alt.Y("step:Q", title="step")
    curve = alt.Chart(line).mark_line(color=PALETTE[of][-1], strokeWidth=1.5).encode(x=x, y=y, detail="attempt:N")
    points = (
        alt.Chart(marks)
        .mark_point(filled=True, size=70, opacity=1)
        .encode(
            x=x,
            y=y,
            color=alt.Color("kind:N", title=None, scale=alt.Scale(domain=present, range=colours)),
            shape=alt.Shape("kind:N", title=None, scale=alt.Scale(domain=present, range=shapes)),
            tooltip=[
                alt.Tooltip("time:T", title="Time", format="%Y-%m-%d %H:%M:%S"),
                alt.Tooltip("what:N", title="What"),
                alt.Tooltip("words:N", title="In its words"),
                alt.Tooltip("step:Q", title="Step", format=","),
            ],
        )
    )
    return legible(alt.LayerChart(layer=[curve, points], height=_HEIGHT), of)


def _line(book: Logbook) -> pd.DataFrame:
    """When each step ended, of all attempts, at most a thousand points each."""
    parts = []
    for each in book.attempts:
        rows = np.unique(np.linspace(0, max(0, len(each.steps) - 1), _POINTS).astype(int))[: len(each.steps)]
        parts.append(
            pd.DataFrame(
                {
                    "time": pd.to_datetime(each.ended_at[rows], unit="s"),
                    "step": each.steps[rows],
                    "attempt": each.number,
                }
            )
        )
    return pd.concat(parts) if parts else pd.DataFrame({"time": [], "step": [], "attempt": []})


def _heights(events: Sequence[Event], line: pd.DataFrame) -> list[float]:
    """Where an event is drawn: at its step, or where the run was at that time."""
    ordered = line.sort_values("time")
    times, steps = (ordered[name].to_numpy() for name in ("time", "step"))
    found = []
    for event in events:
        if event.step is not None:
            found.append(float(event.step))
            continue
        place = int(np.searchsorted(times, np.datetime64(int(event.at * 1e9), "ns"), "right")) - 1
        found.append(float(steps[place]) if place >= 0 else 0.0)
    return found
