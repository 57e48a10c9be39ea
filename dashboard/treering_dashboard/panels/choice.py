"""Choosing a run, and what a page says while there is none."""

from collections.abc import Sequence
from typing import Final

import streamlit as st

from treering.errors import EvidenceError
from treering.runlog.directory import RunDirectory
from treering_dashboard.frames import cached

_FIRST_STEPS: Final = """\
make demo                               # the whole pipeline, then this dashboard
treering train experiments/demo.yaml    # training alone, once the data stands
"""

_LAST_RUN: Final = "last_run"


def no_runs() -> None:
    """The empty project: what to do next."""
    st.markdown("#### No runs yet")
    st.text("A run appears here as soon as its first attempt starts.")
    st.code(_FIRST_STEPS, language="bash")
    st.text("Looked in")
    st.code(str(cached.project().runs), language=None)


def run_label(run: RunDirectory) -> str:
    """Short id and experiment; the id alone where the config does not hold."""
    try:
        return f"{run.path.name[:8]} {run.resolved.experiment}"
    except EvidenceError:
        return run.path.name[:8]


def keep_choice(key: str, value: str | Sequence[str]) -> None:
    """Chooses `value` where neither the URL nor the visitor has chosen, and writes it into the URL.

    A widget's default would not stand there, and a link passed on would change its meaning when newer runs arrive.
    """
    if key not in st.session_state and key not in st.query_params:
        st.query_params[key] = value
        st.session_state[key] = value


def choose_run(runs: Sequence[RunDirectory]) -> RunDirectory:
    """A box with all runs, newest first; the choice stands in the URL by its id and holds for the other pages."""
    by_name = {run.path.name: run for run in runs}
    last = st.session_state.get(_LAST_RUN)
    keep_choice("run", last if last in by_name else next(iter(by_name)))
    name = st.selectbox(
        "Run",
        list(by_name),
        index=None,
        required=True,
        key="run",
        bind="query-params",
        label_visibility="collapsed",
        width=190,
    )
    name = name or next(iter(by_name))
    st.session_state[_LAST_RUN] = name
    return by_name[name]
