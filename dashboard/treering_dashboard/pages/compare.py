"""Two or more runs, or groups of seeds, side by side: verdicts, curves over one x, and what differs.

Runs that differ in their seeds alone are one group. Where there is such a group, curves, config and scores are those of
groups, unless the page is asked for runs. If the compared blends differ, training and validation loss are means over
differently weighted corpora; the page says so, and the verdicts compare the mean over the corpora that all have.
Smoothing is off by default: a time-weighted, de-biased average, with the raw curve faint below it. The page leads to
*Differences* if the data of two runs differ.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import streamlit as st

from treering.errors import EvidenceError
from treering.metrics.groups import GroupComparison
from treering.runlog.directory import RunDirectory
from treering.runlog.find import AnyRun
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering_dashboard import links
from treering_dashboard.frames import cached
from treering_dashboard.frames.groups import compared, with_seeds
from treering_dashboard.frames.reads import COSTLY_BYTES, ring_bytes
from treering_dashboard.frames.smoothing import WEIGHT
from treering_dashboard.panels.address import SWITCH, among, check_address, check_all, complete, gone
from treering_dashboard.panels.answer import asked, error_box
from treering_dashboard.panels.axis import XAxis, choose_axis
from treering_dashboard.panels.choice import all_runs_or_stop, keep_choice, run_label
from treering_dashboard.panels.foreign import say
from treering_dashboard.panels.group_curves import Member, curves
from treering_dashboard.panels.group_verdicts import group_scores, verdicts
from treering_dashboard.panels.run_differences import (
    config_table,
    data_table,
    environment_tables,
    held_out_table,
    score_table,
)
from treering_dashboard.panels.state import problem_box
from treering_dashboard.panels.text import size

MOST_RUNS: Final = 60
"""Runs that an address may name."""

_DRAWN: Final = ("groups", "runs")


def page() -> None:
    """Draws the page for the runs that the URL names."""
    members, axis, smoothed = _chosen()
    picked = [member.run for member in members]
    if len(picked) < 2:
        st.info(
            "Choose two or more runs; the first one is what the others are compared with.",
            icon=":material/compare_arrows:",
        )
        return
    for member in members:
        if member.frames.problems:
            say(f"Run {run_label(member.run)}")
            problem_box(member.frames.problems)
    size_of_all = ring_bytes(picked)
    question = f"data of {' '.join(run.path.name for run in picked)}"
    read = asked(question, f"Compare data: reads {size(size_of_all)} of rings", costly=size_of_all > COSTLY_BYTES)
    found = _groups(picked, data=read)
    if found is not None:
        verdicts(found)
    if _weigh_differently(picked):
        st.caption(
            "The blends differ: training and validation loss weigh the corpora differently in each run, so a lower "
            "curve need not be a better model. Held-out loss by corpus, below, compares like with like."
        )
    groups = found if found is not None and 1 < len(found.groups) < len(picked) else None
    curves(_drawings(members, groups), axis, smoothed=smoothed)
    if groups is not None:
        _group_differences(groups)
    else:
        _run_differences(picked, data=read)


def _chosen() -> tuple[list[Member], XAxis, bool]:
    """The runs, the axis, and whether curves are smoothed; all of it is in the URL."""
    runs = {run.path.name: run for run in all_runs_or_stop()}
    check_address(smooth=SWITCH, seeds=SWITCH, curves=among(_DRAWN))
    complete("runs", runs)
    check_all("runs", among(runs, "run"), MOST_RUNS)
    if lost := [name for name in st.session_state.get("runs", ()) if name not in runs]:
        gone("run", lost[0], runs)
    begun = [name for name, run in runs.items() if run.attempts()]
    keep_choice("runs", begun[:2])
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        chosen = st.multiselect(
            "Runs",
            list(runs),
            key="runs",
            bind="query-params",
            label_visibility="collapsed",
            placeholder="Choose two or more runs",
            max_selections=MOST_RUNS,
        )
        picked = [runs[name] for name in chosen]
        seeds_help = "Adds the runs that differ from these in their seeds alone"
        if st.toggle("All seeds", key="seeds", bind="query-params", help=seeds_help):
            picked = with_seeds(picked, list(runs.values()))
        members = [Member(run, cached.frames(run)) for run in picked]
        axis = choose_axis([member.frames for member in members])
        smoothed = st.toggle(
            "Smoothed", key="smooth", bind="query-params", help=f"Time-weighted moving average, weight {WEIGHT}"
        )
    return members, axis, smoothed


def _drawings(members: Sequence[Member], groups: GroupComparison | None) -> dict[str, list[Member]]:
    """What has a curve of its own: groups, where there are some and runs are not asked for."""
    by_path = {member.run.path: member for member in members}
    if groups is None or _drawn() == "runs":
        return {member.run.path.name[:8]: [member] for member in members}
    st.caption("Curves: mean of a group, with a band from its lowest to its highest seed.")
    return {group.name: [by_path[run.path] for run in group.runs] for group in groups.groups}


def _group_differences(groups: GroupComparison) -> None:
    named = {group.name: group.runs[0] for group in groups.groups}
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown("###### Scores, and held-out loss by corpus, of the groups")
        group_scores(groups)
    with right:
        st.markdown("###### Config and what ran: only differences")
        config_table(named, seeds=False)
        environment_tables(named)


def _run_differences(runs: Sequence[AnyRun], *, data: bool) -> None:
    named = {run_label(run): run for run in runs}
    left, right = st.columns(2, gap="medium")
    with left:
        if data:
            st.markdown("###### Data")
            for other in data_table(named):
                if isinstance(runs[0], RunDirectory) and isinstance(other, RunDirectory):
                    links.newest_difference(runs[0], other)
        st.markdown("###### Scores of the last checkpoint")
        score_table(runs)
    with right:
        st.markdown("###### Config and what ran: only differences")
        config_table(named, seeds=True)
        environment_tables(named)
        if any(isinstance(run, RunDirectory) for run in runs):
            st.markdown("###### Held-out loss by corpus at the last evaluated checkpoint")
            held_out_table(runs)


def _drawn() -> str:
    """What has a curve of its own; the choice is in the URL."""
    keep_choice("curves", _DRAWN[0])
    chosen = st.segmented_control(
        "Curves of", _DRAWN, required=True, key="curves", bind="query-params", label_visibility="collapsed"
    )
    return chosen or _DRAWN[0]


def _groups(runs: Sequence[AnyRun], *, data: bool) -> GroupComparison | None:
    """The runs as groups of seeds; None where a record does not hold, which a box names."""
    try:
        return compared(runs, data=data)
    except EvidenceError as error:
        error_box("A record does not hold, so the runs cannot be compared as groups.", error)
        return None


def _weigh_differently(runs: Sequence[AnyRun]) -> bool:
    """Whether the losses of two of the runs are means over differently weighted corpora."""
    found = set()
    for run in runs:
        if isinstance(run, RecordedRunDirectory):
            continue
        try:
            blend = run.resolved.blend
        except EvidenceError:
            continue
        found.add(frozenset((part.corpus, Fraction(part.weight)) for part in blend.components))
    return len(found) > 1
