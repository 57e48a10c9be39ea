"""What two checkpoints read differently: the first step that differs and why, blends, samples of only one of them."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pandas as pd
import streamlit as st

from treering.audit.documents.difference import CheckpointDifference
from treering.data.blend.joins import join_lines
from treering.errors import TreeringError
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering_dashboard import links
from treering_dashboard.frames import cached
from treering_dashboard.frames.audits import difference_of
from treering_dashboard.panels.answer import asked, command, error_box, open_ends
from treering_dashboard.panels.choice import choose_checkpoint, keep_choice, runs_or_stop, stop_without_checkpoint
from treering_dashboard.panels.environments import environments
from treering_dashboard.panels.foreign import figure, say
from treering_dashboard.panels.tables import table
from treering_dashboard.panels.text import count, plural

MANY_SAMPLES: Final = 10_000_000
"""Samples of both that take about a second to compare."""

_COUNTS = ("Reads A", "Reads B", "Only A", "Only B", "Both", "Documents only A", "Documents only B")


def page() -> None:
    """Draws the difference of the two checkpoints that the URL names."""
    runs = runs_or_stop()
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.badge("A", color="blue")
        a = choose_checkpoint(runs)
        st.space("small")
        st.badge("B", color="orange")
        _prefer_another(runs, a)
        b = choose_checkpoint(runs, links.OTHER)
    if a is None or b is None:
        stop_without_checkpoint()
    try:
        samples = sum(each.manifest.consumed_samples for each in (a, b))
        question = f"difference {a.path} {b.path}"
        if asked(question, f"Compare {count(samples)} samples", costly=samples > MANY_SAMPLES):
            _difference(difference_of(a, b))
        st.markdown("###### Environments")
        environments(*((name, _environment(each)) for name, each in (("A", a), ("B", b))))
    except TreeringError as error:
        error_box("These two cannot be compared: a record on the way to one of them does not hold.", error)
    command(f"treering diff {cached.quoted(a.path)} {cached.quoted(b.path)}")


def _prefer_another(runs: Sequence[RunDirectory], a: CheckpointDirectory | None) -> None:
    """B is another run, newest first, or the first checkpoint of the only one: a difference, where there is one."""
    if a is None:
        return
    others = [run for run in runs if run.path != a.run.path and run.checkpoints()]
    keep_choice(f"{links.OTHER}run", (others[0] if others else a.run).path.name)
    if not others:
        keep_choice(f"{links.OTHER}checkpoint", a.run.checkpoints()[0].path.name)


def _difference(found: CheckpointDifference) -> None:
    gaps = [each.text for each in found.gaps]
    if gaps:
        error_box("A record on the way to one of them does not hold; this is compared without it.", "\n".join(gaps))
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if found.first_step is None:
            st.badge("same data", icon=":material/check_circle:", color="green")
        else:
            st.badge(f"differ from step {count(found.first_step)}", icon=":material/call_split:", color="orange")
            for name, side in (("A", found.a), ("B", found.b)):
                if side.step >= found.first_step:
                    links.step_button(f"Batch of {name}", Path(side.checkpoint).parents[1].name, found.first_step)
        say(found.reason)
    cells = st.columns(5, gap="small")
    only = [sum(getattr(each, name) for each in found.corpora) for name in ("only_a", "only_b", "both")]
    for cell, (title, value, detail) in zip(
        cells,
        (
            ("A read", count(found.a.consumed_samples), f"samples in {plural(found.a.step, 'step')}"),
            ("B read", count(found.b.consumed_samples), f"samples in {plural(found.b.step, 'step')}"),
            ("Only A", count(only[0]), "samples that B never read"),
            ("Only B", count(only[1]), "samples that A never read"),
            ("Both", count(only[2]), "samples"),
        ),
        strict=True,
    ):
        with cell:
            figure(title, value, detail)
    st.markdown("###### Effective blends, and what only one of them read")
    frame = corpora_frame(found)
    largest = float(frame[["Share A", "Share B"]].to_numpy().max())
    share = partial(st.column_config.ProgressColumn, format="%.2f %%", min_value=0.0, max_value=largest, width=130)
    table(
        frame,
        "Share, samples and documents of each corpus in A and B",
        numbers=_COUNTS,
        rows=20,
        columns={"Share A": share(color="blue"), "Share B": share(color="orange")},
    )
    st.caption("A sample is a place in a corpus, counted once however often it was read; reads count each time.")
    open_ends("Corpora that do not go on where they stopped", join_lines(found.joins))
    open_ends("Not looked into", [text for text in found.missing if text not in gaps])


def _environment(checkpoint: CheckpointDirectory) -> Mapping[str, Any]:
    environment: Mapping[str, Any] = checkpoint.run.attempt(checkpoint.manifest.attempt).header.environment
    return environment


def corpora_frame(found: CheckpointDifference) -> pd.DataFrame:
    """One row a corpus; shares in percent."""
    return pd.DataFrame(
        [
            {
                "Corpus": each.corpus,
                "Share A": 100 * each.share_a,
                "Share B": 100 * each.share_b,
                "Reads A": count(each.reads_a),
                "Reads B": count(each.reads_b),
                "Only A": count(each.only_a),
                "Only B": count(each.only_b),
                "Both": count(each.both),
                "Documents only A": _documents(each.documents_only_a),
                "Documents only B": _documents(each.documents_only_b),
            }
            for each in found.corpora
        ]
    )


def _documents(value: int | None) -> str:
    return "corpus not available" if value is None else count(value)
