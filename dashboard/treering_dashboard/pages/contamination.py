"""Whether a checkpoint had read its evaluation: examples by task, scores split into clean and seen, and when."""

import math
from collections.abc import Sequence
from typing import Final

import pandas as pd
import streamlit as st

from treering.audit.documents.contamination import Contamination, Example
from treering.errors import TreeringError
from treering.runlog.directory import CheckpointDirectory
from treering_dashboard import links
from treering_dashboard.frames import cached
from treering_dashboard.frames.audits import contamination_of
from treering_dashboard.panels.answer import asked, command, error_box, open_ends
from treering_dashboard.panels.choice import checkpoint_or_stop
from treering_dashboard.panels.foreign import block, figure, say
from treering_dashboard.panels.state import state_column
from treering_dashboard.panels.tables import clicked_row, table
from treering_dashboard.panels.text import NOTHING, count, plural

MANY_BYTES: Final = 2_000_000
"""Size of task files whose examples take about a second to look for."""

_COUNTS = ("Examples", "With a 13-gram", "In corpora", "Seen")
_SCORES = ("Shots", "Clean", "Clean examples", "Seen", "Seen examples", "Difference")
_EXAMPLES = ("13-grams", "Exposures", "First step", "Last step")
_SEEN, _NOT_READ = "▲ seen", "○ not read"


def page() -> None:
    """Draws what the chosen checkpoint read of the project's tasks."""
    checkpoint = checkpoint_or_stop()
    here = cached.project()
    if any(here.tasks.glob("*.jsonl")) and not any(here.index.glob("[!.]*/*")):
        st.info("No corpus has an index of its words yet; this builds it, once:", icon=":material/manage_search:")
        block("treering index", "bash")
        return
    try:
        size = sum(path.stat().st_size for path in here.tasks.glob("*.jsonl"))
        if asked(f"contamination {checkpoint.path}", "Look for every example", costly=size > MANY_BYTES):
            _contamination(contamination_of(checkpoint), checkpoint)
    except TreeringError as error:
        error_box("What this checkpoint read of its evaluation is unknown.", error)
    command(f"treering contamination {cached.quoted(checkpoint.path)}")


def _contamination(found: Contamination, checkpoint: CheckpointDirectory) -> None:
    seen, held = (sum(getattr(task, name) for task in found.tasks) for name in ("seen", "in_corpora"))
    examples, checkable = (sum(getattr(task, name) for task in found.tasks) for name in ("examples", "checkable"))
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if seen:
            st.badge(f"{plural(seen, 'example')} seen", icon=":material/warning:", color="orange")
        elif found.unanswered or not checkable:
            st.badge("not fully checked", icon=":material/help:", color="gray")
        else:
            st.badge("clean", icon=":material/check_circle:", color="green")
        say(
            f"Until step {count(found.step)} the run read a 13-gram of {count(seen) if seen else 'none'} of "
            f"{plural(checkable, 'example')} that have one"
        )
    cells = st.columns(4, gap="small")
    for cell, (title, value, detail) in zip(
        cells,
        (
            ("Examples", count(examples), f"of {plural(len(found.tasks), 'task')}"),
            ("With a 13-gram", count(checkable), "shorter ones cannot be looked for"),
            ("In corpora", count(held), "share one with a training document"),
            ("Seen", count(seen), "share one with what was read"),
        ),
        strict=True,
    ):
        with cell:
            figure(title, value, detail)
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown("###### Tasks")
        table(tasks_frame(found), "Examples of each task", numbers=_COUNTS, rows=12)
    with right:
        st.markdown("###### Scores, clean and seen")
        scores = scores_frame(found)
        if len(scores):
            table(scores, "Scores of clean and of seen examples", numbers=_SCORES, rows=12)
            st.caption("Means over the examples of each side; of few examples a difference is noise.")
        else:
            st.caption("Scores by example of this checkpoint on these very task files are not on record; this does it:")
            block(f"treering evaluate --run {cached.named(checkpoint.run.path.name)}", "bash")
    _examples(found.examples)
    open_ends("Not looked into", found.unanswered)


def _examples(examples: tuple[Example, ...]) -> None:
    st.markdown("###### Examples that share a 13-gram with a training document")
    if not examples:
        st.caption("None.")
        return
    state = state_column({_SEEN: "orange", _NOT_READ: "gray"}, 110)
    alt = "Examples with the steps that read them, first those that were read"
    ordered = sorted(examples, key=lambda each: math.inf if each.first_step is None else each.first_step)
    clicked = clicked_row(
        examples_frame(ordered), alt, key="examples", numbers=_EXAMPLES, rows=16, columns={"State": state}
    )
    st.caption(
        "13-grams: the most that one document shares with the example. Exposures: samples on the path to the "
        "checkpoint that held the tokens of one. A click traces the first document."
    )
    links.open_document(None if clicked is None else ordered[clicked].documents[0])


def tasks_frame(found: Contamination) -> pd.DataFrame:
    """One row a task."""
    return pd.DataFrame(
        [
            {
                "Task": task.task,
                "Examples": count(task.examples),
                "With a 13-gram": count(task.checkable),
                "In corpora": count(task.in_corpora),
                "Seen": count(task.seen),
            }
            for task in found.tasks
        ]
    )


def scores_frame(found: Contamination) -> pd.DataFrame:
    """One row a task, number of shots and metric."""
    return pd.DataFrame(
        [
            {
                "Task": task.task,
                "Shots": score.shots,
                "Metric": score.metric,
                "Clean": _mean(score.clean),
                "Clean examples": count(score.num_clean),
                "Seen": _mean(score.seen),
                "Seen examples": count(score.num_seen),
                "Difference": NOTHING
                if score.clean is None or score.seen is None
                else f"{score.seen - score.clean:+.3f}",
            }
            for task in found.tasks
            for score in task.scores
        ]
    )


def _mean(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.3f}"


def examples_frame(examples: Sequence[Example]) -> pd.DataFrame:
    """One row an example."""
    return pd.DataFrame(
        [
            {
                "State": [_SEEN if each.seen else _NOT_READ],
                "Task": each.task,
                "Example": each.id,
                "13-grams": count(each.ngrams),
                "Exposures": count(each.exposures),
                "First step": NOTHING if each.first_step is None else count(each.first_step),
                "Last step": NOTHING if each.last_step is None else count(each.last_step),
                "Documents": ", ".join(each.documents),
            }
            for each in examples
        ]
    )
