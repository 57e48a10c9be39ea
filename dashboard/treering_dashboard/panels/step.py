"""One step of a run: its numbers, its documents, the checkpoints around it, the command that trains it again."""

import math
from collections.abc import Callable

import pandas as pd
import streamlit as st

from treering.errors import EvidenceError
from treering.metrics.rewind import rewind_behind
from treering.runlog.directory import RunDirectory
from treering.runlog.find import AnyRun
from treering_dashboard.frames import cached
from treering_dashboard.frames.rings import RunFrames
from treering_dashboard.panels.foreign import block, say
from treering_dashboard.panels.rewind import rewind_command
from treering_dashboard.panels.tables import table
from treering_dashboard.panels.text import count, number, reading
from treering_dashboard.panels.window import AT


def step_panel(run: AnyRun, frames: RunFrames, step: int, documents: Callable[[str, str, int], None]) -> None:
    """Draws what is known of a step.

    Args:
        run: that did it.
        frames: of the run, the whole of it.
        step: on the run's path.
        documents: draws the way to what the step read, from a text, the run's folder and the step.
    """
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"###### Step {count(step)}")
            st.button("Close", icon=":material/close:", type="tertiary", on_click=_close)
        numbers, around = st.columns(2, gap="medium")
        with numbers:
            found = _numbers(frames, step)
            if found.empty:
                say("The run's path has no such step.")
            else:
                table(found, f"Numbers of step {step}", numbers=("Value",), rows=12)
        with around:
            if isinstance(run, RunDirectory):
                documents(f"Documents of step {step}", run.path.name, step)
            _checkpoints(run, step)
            if isinstance(run, RunDirectory) and not found.empty:
                st.caption("Trains the step again, from the checkpoint before it, and compares every bit:")
                block(f"treering reproduce {cached.quoted(run.path)} --steps {step}:{step}", "bash")
            alarmed = any(alarm.step == step for alarm in frames.alarms) and not run.mirror_doubt
            back = rewind_behind(run, step) if alarmed else None
            if back is not None:
                rewind_command(back, "around the alarm")


def _close() -> None:
    st.query_params.pop(AT, None)


def _numbers(frames: RunFrames, step: int) -> pd.DataFrame:
    path = frames.path.between(step, step)
    if not len(path):
        return pd.DataFrame()
    rows = [
        {"Metric": path.describe(key).title, "Value": reading(float(series.values[0]), path.describe(key).unit)}
        for key, series in path.all_series(list(path.metrics)).items()
        if series.known[0]
    ]
    for alarm in frames.alarms:
        if alarm.step == step:
            against = "" if math.isnan(alarm.background) else f" against {number(alarm.background)}"
            rows.append({"Metric": f"alarm: {alarm.rule}", "Value": f"{reading(alarm.value)}{against}"})
    return pd.DataFrame(rows)


def _checkpoints(run: AnyRun, step: int) -> None:
    try:
        places = [each.step for each in run.checkpoints()]
    except EvidenceError:
        return  # the page names what does not hold
    before = max((each for each in places if each < step), default=None)
    after = min((each for each in places if each >= step), default=None)
    texts = [
        f"{count(each)} ({word})" for each, word in ((before, "before it"), (after, "with it")) if each is not None
    ]
    say(f"Nearest checkpoints: step {', step '.join(texts)}" if texts else "No checkpoint is on record.")
