"""The audit of a run that another trainer reported: what was fed, and what each restart repeated or skipped."""

from typing import Final

import pandas as pd
import streamlit as st

from treering.audit.recorded.report import RecordedAudit
from treering.audit.recorded.restart import Restart
from treering.audit.report import Level
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering.runlog.recorded_records import RecordedCheckpoint
from treering.runlog.ring import RINGS_FILE
from treering_dashboard.frames import cached
from treering_dashboard.frames.audits import recorded_audit_of
from treering_dashboard.panels.answer import asked, command, open_ends
from treering_dashboard.panels.assurance import findings, verdict_line
from treering_dashboard.panels.foreign import block, figure
from treering_dashboard.panels.state import Colour, state_column
from treering_dashboard.panels.tables import table
from treering_dashboard.panels.text import NOTHING, count, plural, size

COSTLY_BYTES: Final = 200_000_000
"""Bytes of rings and of a checkpoint's files that take about a second to read."""

_STATES: Final[dict[str, tuple[str, Colour]]] = {
    "same samples": ("✔ same samples", "green"),
    "no sample repeated": ("✔ no sample repeated", "green"),
    "samples repeated": ("✖ samples repeated", "red"),
    "other samples": ("✖ other samples", "red"),
    "unknown": ("○ unknown", "gray"),
}
_NEXT_EPOCH: Final = "↻ next epoch"


def recorded_audit(run: RecordedRunDirectory, checkpoint: RecordedCheckpoint | None) -> None:
    """Draws the audit of a run, or of one of its checkpoints.

    Raises:
        EvidenceError: the run's own record does not hold.
    """
    what = run.id if checkpoint is None else checkpoint.path
    read = sum(rings.stat().st_size for rings in run.path.glob(f"attempts/*/{RINGS_FILE}*"))
    read += sum(file.size for file in checkpoint.files if file.digest) if checkpoint else 0
    if asked(f"audit {run.path} {what}", f"Audit: reads {size(read)}", costly=read > COSTLY_BYTES):
        _show(run, recorded_audit_of(run, checkpoint))
    command(f"treering audit {cached.named(what) if checkpoint is None else cached.quoted(what)}")


def _show(run: RecordedRunDirectory, report: RecordedAudit) -> None:
    verdict_line(report.level, report.verdict, holds=report.holds)
    reported = report.steps - report.steps_without_samples
    cells = st.columns(5, gap="small")
    whose = f"to {report.ranks}; " if report.ranks else ""
    faults = sum(each.fault for each in report.restarts)
    for cell, (title, value, detail) in zip(
        cells,
        (
            ("Steps", count(report.step), f"{plural(report.steps, 'ring')} on the path"),
            ("Steps with samples", count(reported), f"of {count(report.steps)} reported"),
            ("Samples fed", count(report.samples), f"{whose}{count(report.different_samples)} different"),
            ("Fed again", count(report.samples - report.different_samples), "samples, later epochs included"),
            (
                "Restarts",
                count(len(report.restarts)),
                f"{count(faults)} harmed the data order" if faults else "no harm",
            ),
        ),
        strict=True,
    ):
        with cell:
            figure(title, value, detail)
    findings(report.findings)
    st.markdown("###### What each restart did to the data")
    if report.restarts:
        colours = dict(_STATES.values()) | {_NEXT_EPOCH: "blue"}
        table(
            restarts_frame(report.restarts),
            "What each restart repeated or skipped",
            numbers=("Attempt", "Resumed after", "Steps compared", "First difference", "Repeated", "Skipped"),
            columns={"State": state_column(colours, 170)},
        )
        open_ends("In words", [each.text for each in report.restarts])
    else:
        st.caption("The run never restarted: nothing was repeated or skipped by a restart.")
    left, right = st.columns(2, gap="medium")
    with left:
        open_ends("Not proven", report.not_proven)
    with right:
        _way_up(run, report)


def restarts_frame(restarts: tuple[Restart, ...]) -> pd.DataFrame:
    """One row a restart."""
    rows = []
    for each in restarts:
        fits = each.state == "samples repeated" and not each.fault
        rows.append(
            {
                "Attempt": str(each.attempt),
                "State": [_NEXT_EPOCH if fits else _STATES[each.state][0]],
                "Resumed after": f"step {count(each.after_step)}",
                "Steps compared": count(each.compared_steps),
                "First difference": NOTHING
                if each.first_difference is None
                else f"step {count(each.first_difference)}",
                "Repeated": plural(each.repeated_samples, "sample"),
                "Skipped": plural(each.skipped_samples, "sample"),
            }
        )
    return pd.DataFrame(rows)


def _way_up(run: RecordedRunDirectory, report: RecordedAudit) -> None:
    """What reaches a higher level."""
    st.markdown("###### The way up")
    if report.findings:
        st.caption("The levels above need these findings to be mended.")
    elif report.level == Level.DECLARED:
        st.caption("Report what every step was fed, then the level is *recorded*:")
        block('run.step(loss=loss, tokens=batch["input_ids"])', "python")
    elif run.blend_file.exists():
        st.caption("The trainer reads in the order of a blend: this recomputes every sample from the corpora.")
        block(f"treering audit {cached.named(run.path.name)} --verify", "bash")
    else:
        st.caption("Read the samples in the order of a blend, then every sample can be recomputed from the corpora:")
        block('data = treering.BlendDataset(num_samples=64)\nrun = treering.start("finetune", data=data)', "python")
