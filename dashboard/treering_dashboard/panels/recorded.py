"""What a run page shows of a run that another trainer reported: settings, attempts, checkpoints."""

import time
from collections.abc import Sequence

import pandas as pd
import streamlit as st

from treering.config.canonical import short
from treering.errors import EvidenceError
from treering.metrics.compare import flatten
from treering.runlog.recorded_directory import RecordedAttempt, RecordedRunDirectory
from treering.runlog.recorded_records import RecordedCheckpoint
from treering_dashboard.frames.rings import RunFrames
from treering_dashboard.panels.tables import clicked_row, table
from treering_dashboard.panels.text import NOTHING, age, count, number, plural, size


def settings_table(run: RecordedRunDirectory) -> None:
    """The config as the trainer reported it, by dotted path."""
    try:
        config = dict(flatten(run.record.config)) if run.record.config else {}
    except EvidenceError:
        st.caption("The record of the run does not hold.")
        return
    if not config:
        st.caption("None reported. `treering.start(config={…})` keeps the settings of the trainer.")
        return
    frame = pd.DataFrame({"Setting": list(config), "Value": [str(value) for value in config.values()]})
    table(frame, "Settings as the trainer reported them", rows=12)


def attempt_table(run: RecordedRunDirectory, frames: RunFrames) -> None:
    """The process starts, newest first; what a restart did to the data is on the audit's page."""
    on_path = {stretch.attempt: stretch.last_step for stretch in frames.path.stretches}
    rows = [_attempt_row(attempt, on_path) for attempt in reversed(run.attempts())]
    if not rows:
        st.caption("No attempt has started.")
        return
    table(pd.DataFrame(rows), "Attempts, newest first", rows=6)


def _attempt_row(attempt: RecordedAttempt, on_path: dict[int, int]) -> dict[str, str]:
    try:
        header, end = attempt.header, attempt.end
    except EvidenceError:
        return {"Attempt": str(attempt.number), "From": "header does not hold"}
    commit = str(header.code.get("commit") or "")
    return {
        "Attempt": str(attempt.number),
        "From": f"step {count(header.resumed_step)}" if header.resumed_step else "the beginning",
        "Counts": _counts(on_path.get(attempt.number), ended=end is not None),
        "Ended": f"{end.status}: {end.reason}" if end else "no record",
        "Host": header.host,
        "World": plural(header.world_size, "rank"),
        "Commit": (short(commit, 8) + (" with changes" if header.code.get("dirty") else "")) if commit else NOTHING,
        "Started": age(time.time() - header.started_at),
        "Command": " ".join(header.command),
    }


def _counts(last_step: int | None, *, ended: bool) -> str:
    """How far an attempt counts; `last_step` is None where it is not on the path."""
    if last_step is None:
        return "abandoned"
    return f"to step {count(last_step)}" if last_step else "no step" if ended else "no step yet"


def recorded_checkpoints(run: RecordedRunDirectory) -> RecordedCheckpoint | None:
    """The checkpoints that the trainer reported, newest first.

    Returns:
        The one whose row was clicked.
    """
    try:
        checkpoints: Sequence[RecordedCheckpoint] = run.checkpoints()[::-1]
    except EvidenceError:
        st.caption("The record of a checkpoint does not hold.")
        return None
    if not checkpoints:
        st.caption("None reported: all steps so far are at risk. `run.checkpoint(PATH)` reports a checkpoint.")
        return None
    now = time.time()
    rows = [
        {
            "Step": count(each.step),
            "Attempt": str(each.attempt),
            "Size": size(sum(file.size for file in each.files)),
            "Written": age(now - each.created_at),
            "Path": each.path,
        }
        for each in checkpoints
    ]
    numbers = ("Step", "Attempt", "Size")
    clicked = clicked_row(pd.DataFrame(rows), "Checkpoints, newest first", key="checkpoints", numbers=numbers)
    st.caption("A click opens the audit.")
    return None if clicked is None else checkpoints[clicked]


def newest_metrics(frames: RunFrames, keys: Sequence[str]) -> None:
    """The newest value of metrics that are not drawn."""
    rows = [{"Metric": frames.path.describe(key).title, "Newest": number(frames.path.latest(key))} for key in keys]
    table(pd.DataFrame(rows), "Newest values of more metrics", numbers=("Newest",), rows=8)
