"""Tables of a run. Cells hold foreign text, so they are data frames: nothing in them is read as Markdown."""

import time

import pandas as pd
import streamlit as st

from treering.config.canonical import short
from treering.errors import EvidenceError
from treering.runlog.catalogue import describe
from treering.runlog.directory import RunDirectory
from treering.runlog.records import AttemptHeader
from treering_dashboard.frames.rings import RunFrames
from treering_dashboard.panels.text import age, count, number

ROW_HEIGHT = 28


def table(frame: pd.DataFrame, alt: str, *, rows: int = 8) -> None:
    """A quiet table of at most `rows` rows before it scrolls."""
    height = ROW_HEIGHT * (min(len(frame), rows) + 1) + 12
    st.dataframe(frame, hide_index=True, row_height=ROW_HEIGHT, height=height, alt=alt, placeholder="–")


def spike_table(frames: RunFrames) -> None:
    """Flagged points, newest first."""
    if not frames.spikes:
        st.caption("None. Judged by the robust z-score of the logarithm of loss and gradient norm.")
        return
    rows = [
        {
            "Step": count(spike.step),
            "Metric": describe(spike.metric).title,
            "Value": number(spike.value),
            "Background": number(spike.background),
            "z": number(spike.z),
        }
        for spike in reversed(frames.spikes)
    ]
    table(pd.DataFrame(rows), "Loss spikes, newest first")


def checkpoint_table(run: RunDirectory) -> None:
    """Complete checkpoints, newest first; one whose manifest does not hold says so."""
    rows = []
    now = time.time()
    for checkpoint in reversed(run.checkpoints()):
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
                "Size": number(sum(file.size for file in manifest.files), "B"),
                "Written": age(now - manifest.created_at),
                "Digest": short(checkpoint.digest, 8),
            }
        )
    if not rows:
        st.caption("None yet: all steps so far are at risk.")
        return
    table(pd.DataFrame(rows), "Checkpoints, newest first")


def layout_facts(header: AttemptHeader, flops_formula: str | None) -> None:
    """Layout, devices and identities of an attempt as two columns of words."""
    layout = header.layout
    facts = {
        "Attempt": f"{header.attempt} ({header.origin}) on {header.host}",
        "Layout": f"TP {layout.tensor} × PP {layout.pipeline} × DP {layout.data}, micro-batch {layout.micro_batch_size}",
        "Ranks": f"{layout.world_size} on {layout.device} by {layout.backend}",
        "FLOPs formula": flops_formula or "–",
        "Code": short(str(header.code.get("digest", "–")), 12),
        "Environment": short(str(header.environment.get("digest", "–")), 12),
    }
    table(pd.DataFrame({"": list(facts), "of the newest attempt": list(facts.values())}), "Layout of the newest attempt")


def kernel_table(header: AttemptHeader) -> None:
    """Which kernels were asked for and which ran."""
    if not header.kernels:
        return
    rows = [
        {"Kernel": k.operation, "Asked for": k.requested, "Ran": k.used, "Why": k.reason} for k in header.kernels
    ]
    table(pd.DataFrame(rows), "Kernels asked for and kernels that ran")
