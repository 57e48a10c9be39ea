"""Every page's address, and the ways from one page to another.

No page imports another page: a page says here where a click leads. `site/app.py` gives each address its page.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from treering.audit.documents.exposure import Exposure
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering.runlog.recorded_records import RecordedCheckpoint
from treering_dashboard.panels.choice import go_to
from treering_dashboard.panels.foreign import label
from treering_dashboard.panels.window import AT, begin_window

BY_DOCUMENT: Final = "document"
"""The Trace page looks for a document. The URL holds the document's name under the same word."""

STEPS_BEFORE: Final = "steps before"
"""The Batch page shows what the steps before the chosen one read."""

OTHER: Final = "other_"
"""Before the names of checkpoint B in the URL; A is the page's `run` and `checkpoint`, as everywhere."""


@dataclass(frozen=True, slots=True)
class Address:
    """A page's place in the navigation.

    Attributes:
        title: in the navigation bar.
        path: in the URL; Streamlit knows a page by it.
        icon: in the navigation bar, a name of Material Symbols.
        first: whether the dashboard opens with this page, at `/`.
        hidden: whether the navigation bar leaves the page out.
    """

    title: str
    path: str
    icon: str
    first: bool = False
    hidden: bool = False

    def page(self, draw: Callable[[], None]) -> StreamlitPage:
        """The page itself, for the navigation.

        Args:
            draw: draws the page.
        """
        icon = f":material/{self.icon}:"
        return st.Page(
            draw,
            title=self.title,
            url_path=self.path,
            icon=icon,
            default=self.first,
            visibility="hidden" if self.hidden else "visible",
        )

    @property
    def link(self) -> StreamlitPage:
        """The page as the target of a link: Streamlit takes the page of that path from the navigation."""
        return self.page(_drawn_by_the_navigation)


def _drawn_by_the_navigation() -> None:
    raise AssertionError("a link is a target; the page of the navigation is drawn")


RUNS: Final = Address("Runs", "all", "table_rows", first=True)
"""Streamlit serves the first page at `/` alone, whatever its path, and reserves the path."""
TYPED_RUNS: Final = Address("Runs", "runs", "table_rows", hidden=True)
"""`/runs`, as a person types it: leads to `RUNS`."""
RUN: Final = Address("Run", "run", "monitoring")
SCALING: Final = Address("Scaling", "scaling", "trending_up")
CLUSTER: Final = Address("Cluster", "cluster", "grid_view")
LOGBOOK: Final = Address("Logbook", "logbook", "history_edu")
DATA: Final = Address("Data", "data", "database")
COMPARE: Final = Address("Compare", "compare", "compare_arrows")
BIAS: Final = Address("Bias", "bias", "balance")
CONTINUATIONS: Final = Address("Continuations", "continuations", "notes")
AUDIT: Final = Address("Audit", "audit", "fact_check")
BATCH: Final = Address("Batch", "batch", "stacks")
TRACE: Final = Address("Trace", "trace", "travel_explore")
TAKEDOWN: Final = Address("Takedown", "takedown", "playlist_remove")
CONTAMINATION: Final = Address("Contamination", "contamination", "quiz")
DIFFERENCES: Final = Address("Differences", "differences", "difference")
SEARCH: Final = Address("Search", "search", "manage_search")
MEGATRON: Final = Address("Megatron", "megatron", "hub")


def open_runs() -> None:
    """Goes to the table of runs."""
    go_to(RUNS.link)


def open_run(run: str, step: int | None) -> None:
    """Goes to a run, and opens a step of it."""
    begin_window(run)
    go_to(RUN.link, run=run, **({} if step is None else {AT: step}))


def open_checkpoint(checkpoint: CheckpointDirectory | None) -> None:
    """Goes to the audit of a checkpoint, where one was clicked."""
    if checkpoint is not None:
        go_to(AUDIT.link, run=checkpoint.run.path.name, checkpoint=checkpoint.path.name)


def audit_link(run: RecordedRunDirectory, text: str) -> None:
    """A link to the audit of a recorded run."""
    st.page_link(AUDIT.link, label=label(text), icon=":material/fact_check:", query_params={"run": run.path.name})


def open_recorded(run: RecordedRunDirectory, checkpoint: RecordedCheckpoint | None) -> None:
    """Goes to the audit of a recorded run's checkpoint, where one was clicked."""
    if checkpoint is not None:
        name = run.checkpoint_file(checkpoint.attempt, checkpoint.step).stem
        go_to(AUDIT.link, run=run.path.name, checkpoint=name)


def open_document(document: str | None) -> None:
    """Goes to what read a document, `CORPUS:ID`, where one was clicked."""
    if document is not None:
        go_to(TRACE.link, **{BY_DOCUMENT: document})


def document_link(document: str) -> None:
    """A link to what read a document, `CORPUS:ID`."""
    query = {"by": BY_DOCUMENT, BY_DOCUMENT: document}
    st.page_link(TRACE.link, label="Trace", icon=":material/travel_explore:", query_params=query)


def step_button(text: str, run: str, step: int) -> None:
    """A button to the batch of a run's step."""
    if st.button(label(text), icon=":material/stacks:", type="tertiary"):
        go_to(BATCH.link, run=run, step=step)


def open_exposure(exposure: Exposure | None) -> None:
    """Goes to the micro-batch that held a sample, where one was clicked."""
    if exposure is not None:
        place = {"replica": exposure.replica, "micro_batch": exposure.micro_batch}
        known = {name: value for name, value in place.items() if value is not None}
        go_to(BATCH.link, run=exposure.run, step=exposure.step, **known)


def open_spike(run: RunDirectory, step: int | None) -> None:
    """Goes to what was read before a step, where one was clicked."""
    if step is not None:
        go_to(BATCH.link, run=run.path.name, step=step, view=STEPS_BEFORE)


def newest_difference(a: RunDirectory, b: RunDirectory) -> None:
    """A link to the difference of the newest checkpoints of two runs; nothing where one of them has none."""
    newest = [run.checkpoints()[-1:] for run in (a, b)]
    if all(newest):
        names = {"run": a.path.name, "checkpoint": newest[0][0].path.name}
        names |= {f"{OTHER}run": b.path.name, f"{OTHER}checkpoint": newest[1][0].path.name}
        text = f"What only one of {a.path.name[:8]} and {b.path.name[:8]} read"
        st.page_link(DIFFERENCES.link, label=label(text), icon=":material/difference:", query_params=names)
