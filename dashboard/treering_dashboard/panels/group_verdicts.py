"""Verdicts on groups of seeds: a sentence each, the groups, and the scores of each against the first."""

from typing import Final

import pandas as pd
import streamlit as st

from treering.metrics.group_scores import band
from treering.metrics.groups import GroupComparison
from treering_dashboard.panels.foreign import say
from treering_dashboard.panels.tables import table
from treering_dashboard.panels.text import count

_NEWCOMER = (
    "Runs that differ in their seeds alone are one group. Two seeds of one config never end at the same loss: that "
    "spread is the noise. A difference is beyond noise where chance alone would show it in less than one of twenty "
    "comparisons (Welch's test, Holm's correction)."
)

_SENTENCES: Final = 12
"""Groups whose sentence is at the top; those of more groups are folded."""


def verdicts(found: GroupComparison) -> None:
    """The sentences, and the groups with their runs."""
    st.markdown("###### Verdict")
    if found.sentence:
        say(found.sentence, stretch=True)
    sentences = [verdict.sentence for verdict in found.against_first]
    for sentence in sentences[:_SENTENCES]:
        say(sentence, stretch=True)
    if more := sentences[_SENTENCES:]:
        with st.expander(f"{count(len(more))} more groups"):
            say(*more, stretch=True)
    if len(found.groups) == 1:
        say("One group: the configs differ in their seeds alone, so there is nothing to compare with.")
    rows = [
        {
            "Group": group.name,
            "Held-out loss": group.band,
            "Seeds": ", ".join("not said" if seed is None else str(seed) for seed in group.seeds),
            "Runs": ", ".join(run.path.name[:8] for run in group.runs),
        }
        for group in found.groups
    ]
    table(pd.DataFrame(rows), "Groups of runs that differ in their seeds alone", rows=10)
    at = "" if found.step is None else f", step {found.step:,}, in nat/token: mean ± standard deviation over seeds"
    say(f"Compared by {found.measure}{at}.", stretch=True)
    st.caption(_NEWCOMER)


def group_scores(found: GroupComparison) -> None:
    """Task scores, and held-out losses by corpus, of each group against the first one."""
    rows = [
        {
            "Groups": f"{verdict.second.name} - {verdict.first.name}",
            "Measure": each.measure.title,
            "Verdict": each.words,
            "Difference (95 % interval)": each.difference,
            verdict.first.name: band(each.first),
            "Other": band(each.second),
            "Step": f"{each.step:,}",
        }
        for verdict in found.against_first
        for each in verdict.scores
    ]
    if rows:
        table(pd.DataFrame(rows), "Scores of each group against the first", numbers=("Step",), rows=14)
        st.caption("Mean ± standard deviation over seeds. Losses in nat/token. Holm's correction over all rows.")
    else:
        st.caption("No score was measured of every run at one step; `treering evaluate` scores checkpoints.")
    if found.left_out:
        say(found.left_out_sentence, stretch=True)
