"""Tables of a run. Cells hold foreign text, so they are data frames: nothing in them is read as Markdown."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from treering.config.canonical import short
from treering.errors import EvidenceError
from treering.metrics.alarms import RULES, SPIKE
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering.runlog.metric_catalog import describe
from treering.runlog.records import AttemptHeader
from treering_dashboard.frames import cached
from treering_dashboard.frames.rings import RunFrames
from treering_dashboard.panels.foreign import block, label, shown_frame
from treering_dashboard.panels.text import NOTHING, age, count, number, plural, reading, size

ROW_HEIGHT = 28


def height(rows: int, row_height: int = ROW_HEIGHT) -> int:
    """Pixels of a table with its header and border."""
    return 32 + rows * row_height + 3


def table(
    frame: pd.DataFrame,
    alt: str,
    *,
    numbers: Sequence[str] = (),
    rows: int = 8,
    widths: Mapping[str, int] | None = None,
    columns: Mapping[str, ColumnConfig] | None = None,
) -> None:
    """A quiet table of at most `rows` rows before it scrolls.

    Args:
        frame: its cells as text.
        alt: what it shows, for readers who do not see it.
        numbers: columns aligned to the right.
        rows: shown before it scrolls.
        widths: pixels of columns that leave the rest to the others.
        columns: columns that are not text.
    """
    _draw(frame, alt, rows, {**_columns(numbers, widths), **(columns or {})})


def choose_row(
    frame: pd.DataFrame,
    alt: str,
    *,
    key: str,
    numbers: Sequence[str] = (),
    rows: int = 8,
    widths: Mapping[str, int] | None = None,
    default: int = 0,
) -> int:
    """A table of which one row is always chosen.

    Args:
        frame: its cells as text.
        alt: what it shows, for readers who do not see it.
        key: names what is in the table: under another key the choice is forgotten.
        numbers: columns aligned to the right.
        rows: shown before it scrolls.
        widths: pixels of columns that leave the rest to the others.
        default: the row that is chosen at first.
    """
    chosen_first = {"selection": {"rows": [default]}}
    event = _draw(
        frame,
        alt,
        rows,
        _columns(numbers, widths),
        on_select="rerun",
        selection_mode="single-row",
        selection_default=chosen_first,
        key=key,
    )
    chosen = event["selection"]["rows"]
    return chosen[0] if chosen and chosen[0] < len(frame) else default


def clicked_row(
    frame: pd.DataFrame,
    alt: str,
    *,
    key: str,
    numbers: Sequence[str] = (),
    rows: int = 8,
    columns: Mapping[str, ColumnConfig] | None = None,
) -> int | None:
    """A table whose rows lead somewhere; the row that was clicked just now. Arguments as of `table`, `choose_row`."""
    shown = {**_columns(numbers), **(columns or {})}
    event = _draw(frame, alt, rows, shown, on_select="rerun", selection_mode="single-cell", key=key)
    cells = event["selection"]["cells"]
    return int(cells[0][0]) if cells and cells[0][0] < len(frame) else None


def _draw(frame: pd.DataFrame, alt: str, rows: int, columns: Mapping[str, ColumnConfig], **selection: Any) -> Any:
    """Every table of the dashboard's panels; what a visitor selects is in what it returns."""
    return st.dataframe(
        shown_frame(frame),
        hide_index=True,
        row_height=ROW_HEIGHT,
        height=height(min(len(frame), rows)),
        alt=alt,
        placeholder=NOTHING,
        column_config=dict(columns),
        **selection,
    )


def _columns(numbers: Sequence[str], widths: Mapping[str, int] | None = None) -> dict[str, ColumnConfig]:
    return {
        name: st.column_config.TextColumn(
            width=(widths or {}).get(name), alignment="right" if name in numbers else None
        )
        for name in (*(widths or {}), *numbers)
    }


def alarm_table(run: RunDirectory, frames: RunFrames) -> int | None:
    """Alarms with their rules, newest first, and the command that shows what was read before the newest.

    Returns:
        The step whose row was clicked.
    """
    if not frames.alarms:
        others = ", ".join(rule for rule in RULES if rule != SPIKE)
        st.caption(f"None. Judged by the robust z-score of the logarithm of loss and gradient norm, and by {others}.")
        return None
    alarms = frames.alarms[::-1]
    rows = [
        {
            "Step": count(alarm.step) + (f" since {count(alarm.since)}" if alarm.since != alarm.step else ""),
            "Rule": alarm.rule,
            "Metric": describe(alarm.metric).title,
            "Value": reading(alarm.value),
            "Background": number(alarm.background),
            "z": NOTHING if alarm.z is None else number(alarm.z),
        }
        for alarm in alarms
    ]
    alt, numbers = "Alarms, newest first", ("Step", "Value", "Background", "z")
    clicked = clicked_row(pd.DataFrame(rows), alt, key="alarms", numbers=numbers)
    for rule in RULES:
        if any(alarm.rule == rule for alarm in alarms):
            st.caption(f"{rule}: {RULES[rule]}")
    st.caption("A click shows what was read before the step, and where else.")
    block(f"treering spikes {cached.named(run.path.name)} {alarms[0].step}", "bash")
    return None if clicked is None else alarms[clicked].step


def incident_table(frames: RunFrames) -> None:
    """Incidents of the run's attempts, newest first."""
    if not frames.incidents:
        st.caption("None on record.")
        return
    rows = [
        {
            "Step": count(incident.step),
            "Attempt": str(attempt),
            "What": incident.title,
            "Node": incident.host or NOTHING,
            "In its words": incident.text,
        }
        for attempt, incident in reversed(frames.incidents)
    ]
    widths = {"Step": 60, "Attempt": 60, "What": 190, "Node": 110}
    table(pd.DataFrame(rows), "Incidents, newest first", rows=4, widths=widths)


def checkpoint_table(run: RunDirectory) -> CheckpointDirectory | None:
    """Complete checkpoints, newest first; one whose manifest does not hold says so.

    Returns:
        The one whose row was clicked.
    """
    rows = []
    now, checkpoints = time.time(), run.checkpoints()[::-1]
    for checkpoint in checkpoints:
        try:
            manifest = checkpoint.manifest
        except EvidenceError:
            rows.append({"Step": count(checkpoint.step), "Tokens": "manifest does not hold"})
            continue
        rows.append(
            {
                "Step": count(manifest.step),
                "Tokens": number(manifest.consumed_tokens),
                "Attempt": str(manifest.attempt),
                "Size": size(sum(file.size for file in manifest.files)),
                "Written": age(now - manifest.created_at),
                "Digest": short(checkpoint.digest, 8),
            }
        )
    if not rows:
        st.caption("None yet: all steps so far are at risk.")
        return None
    numbers = ("Step", "Tokens", "Attempt", "Size")
    clicked = clicked_row(pd.DataFrame(rows), "Checkpoints, newest first", key="checkpoints", numbers=numbers)
    st.caption("A click opens the audit.")
    return None if clicked is None else checkpoints[clicked]


def layout_facts(header: AttemptHeader, flops_formula: str | None) -> None:
    """Layout, devices and identities of an attempt as two columns of words."""
    layout = header.layout
    facts = {
        "Attempt": f"{header.attempt} ({header.origin}) on {header.host}",
        "Layout": f"TP {layout.tensor} x PP {layout.pipeline} x DP {layout.data}",
        "Micro-batch": plural(layout.micro_batch_size, "sample"),
        "Ranks": f"{layout.world_size} on {layout.device} by {layout.backend}",
        "FLOPs formula": flops_formula or NOTHING,
        "Code": short(str(header.code.get("digest", NOTHING)), 12),
        "Environment": short(str(header.environment.get("digest", NOTHING)), 12),
    }
    table(
        pd.DataFrame({"": list(facts), "of the newest attempt": list(facts.values())}), "Layout of the newest attempt"
    )


def kernel_table(header: AttemptHeader) -> None:
    """Which kernels were asked for and which ran, and which operations are known not to be deterministic."""
    if not header.kernels:
        return
    rows = [
        {
            "Kernel": kernel.operation,
            "Asked for": kernel.requested,
            "Ran": "as asked" if kernel.used == kernel.requested else kernel.used,
            "Why": kernel.reason,
        }
        for kernel in header.kernels
    ]
    widths = {"Kernel": 115, "Asked for": 170, "Ran": 90, "Why": 230}
    table(pd.DataFrame(rows), "Kernels asked for and kernels that ran", widths=widths)
    if (found := header.nondeterminism) is not None:
        named = "; ".join(f"{each.operation}: {each.why}" for each in found.operations)
        reason = f"{named} ({found.reason})" if named else found.reason
        st.caption(f"Not deterministic: {label(reason)}.")
