"""All runs of the project, newest activity first."""

import math
import os
from collections.abc import Sequence

import pandas as pd
import streamlit as st

from treering.errors import UserError
from treering.store.ledger.search.folders import Asked, fits, folder_query, unknown_names
from treering.store.ledger.search.query import Term
from treering_dashboard import links
from treering_dashboard.frames import cached
from treering_dashboard.frames.summary import STATES, AnyRun, RunSummary
from treering_dashboard.panels.address import SWITCH, among, check_address, check_all, text
from treering_dashboard.panels.answer import error_box
from treering_dashboard.panels.choice import all_runs_or_stop, unlisted
from treering_dashboard.panels.foreign import say, shown_frame
from treering_dashboard.panels.state import SIGNS, sign_text, state_column
from treering_dashboard.panels.tables import ROW_HEIGHT, height
from treering_dashboard.panels.text import NOTHING, age, count, number, plural

REFRESH_S = 10
REGISTRY_VARIABLE = "TREERING_MLFLOW_URL"

_ROW = ROW_HEIGHT + 4
_RARE = ("Tags", "Incidents", "Alarms", "Set", "Trainer", "Archived", "Mirror")
"""Columns that are there only where a run has something in them."""
_NUMBERS = ("Last step", "At risk", "Loss", "Validation loss", "Step", "Tokens", "Throughput", "Attempts", "Incidents")


def page() -> None:
    """Draws the table; a click on a row opens the run, two ticked rows are compared."""
    runs = all_runs_or_stop()
    summaries = [cached.summary(run) for run in runs]
    check_address(archived=SWITCH, q=text)
    query = st.text_input(
        "Query",
        key="q",
        bind="query-params",
        label_visibility="collapsed",
        placeholder="model.num_layers>=24 tag:ablation -state:broken",
        help="The terms of `treering runs QUERY`: experiment, run, state, tag, note, step, tokens, loss, config values",
    )
    try:
        terms = folder_query(query or "")
    except UserError as error:
        error_box("The query does not say what to list.", error)
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        tags = _choose_tags(summaries)
        archived = any(s.archived for s in summaries) and st.toggle(
            "Archived runs", key="archived", bind="query-params", help="Runs that `treering archive` put away"
        )
    live = st.fragment(_table, run_every=REFRESH_S if any(s.alive for s in summaries) else None, key="live")
    live(tags, terms, archived=archived)
    unlisted()


def _choose_tags(summaries: list[RunSummary]) -> list[str]:
    """The tags that a shown run must have, all of them; nothing to choose where no run has one."""
    there = sorted({tag for summary in summaries for tag in summary.tags})
    check_all("tags", among(there, "tag"), max(1, len(there)))
    if not there:
        return []
    return st.multiselect(
        "Tags",
        there,
        key="tags",
        bind="query-params",
        label_visibility="collapsed",
        placeholder="All tags",
        width=420,
    )


def _table(tags: list[str], terms: Sequence[Term], *, archived: bool) -> None:
    read = [(run, cached.summary(run)) for run in cached.all_runs()]
    every = [s for _run, s in read]
    asked = [_asked(run, s) for run, s in read] if terms else []
    summaries = [s for s in every if set(tags) <= set(s.tags) and (archived or not s.archived)]
    if terms:
        fitting = {each.id for each in asked if fits(each, terms)}
        summaries = [s for s in summaries if s.id in fitting]
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        alive, stalled = sum(s.alive for s in summaries), sum(s.state == "stalled" for s in summaries)
        of_them = f", {stalled} of them stalled" if stalled else ""
        of_all = f" of {count(len(every))}" if len(summaries) < len(every) else ""
        say(f"{plural(len(summaries), 'run')}{of_all}, {alive or 'none'} running{of_them}")
        st.caption("Click a row to open it; tick two or more to compare them.")
        registry = os.environ.get(REGISTRY_VARIABLE, "")
        if registry.startswith(("http://", "https://")):
            st.page_link(registry, label="MLflow", icon=":material/open_in_new:")
    for line in unknown_names(terms, asked):
        say(line)
    if not summaries:
        st.info("No run that is not archived fits the query and has all of these tags.", icon=":material/filter_alt:")
        return
    event = st.dataframe(
        shown_frame(runs_frame(summaries)),
        hide_index=True,
        row_height=_ROW,
        height=height(min(len(summaries), 20), _ROW),
        on_select="rerun",
        selection_mode=["multi-row", "single-cell"],
        key="runs",
        alt="All runs, newest activity first",
        column_config={
            "State": state_column({sign_text(state): SIGNS[state].colour for state in STATES}, 140),
            "Tags": st.column_config.ListColumn(width=140),
            "Progress": st.column_config.ProgressColumn(format="percent", min_value=0.0, max_value=1.0, width=130),
            **{name: st.column_config.TextColumn(alignment="right") for name in _NUMBERS},
        },
    )
    selection = event["selection"]
    if selection["cells"]:
        st.switch_page(links.RUN.link, query_params={"run": summaries[selection["cells"][0][0]].id})
    chosen = [summaries[row].id for row in selection["rows"]]
    if len(chosen) == 1:
        st.page_link(links.RUN.link, label="Open the run", query_params={"run": chosen[0]})
    elif chosen:
        st.page_link(links.COMPARE.link, label=f"Compare {count(len(chosen))} runs", query_params={"runs": chosen})


def _asked(run: AnyRun, summary: RunSummary) -> Asked:
    numbers = {"step": summary.step, "tokens": summary.tokens, "loss": summary.loss}
    return Asked.of(run, summary.experiment, summary.state, numbers)


def runs_frame(summaries: list[RunSummary]) -> pd.DataFrame:
    """One row a run; incidents, alarms and what was set beside the file have a column where there are any."""
    frame = pd.DataFrame(
        [
            {
                "State": [sign_text(s.state)],
                "Run": s.id,
                "Experiment": s.experiment or NOTHING,
                "Tags": list(s.tags),
                "Progress": None if not s.num_steps else round(s.tokens / s.train_tokens, 2) if s.step else 0.0,
                "Last step": age(s.step_age_s),
                "At risk": plural(s.at_risk_steps, "step") if s.step else NOTHING,
                "Loss": number(s.loss),
                "Validation loss": number(s.validation_loss),
                "Step": f"{s.step} of {s.num_steps}" if s.num_steps else str(s.step),
                "Tokens": number(s.tokens, "" if s.all_ranks or math.isnan(s.tokens) else "of rank 0"),
                "Throughput": NOTHING if math.isnan(s.tokens_per_second) else number(s.tokens_per_second, "tokens/s"),
                "Attempts": str(s.attempts),
                "Incidents": str(s.incidents or ""),
                "Alarms": s.alarms,
                "Trainer": "recorded" if s.recorded else "",
                "Archived": "archived" if s.archived else "",
                "Mirror": "" if not s.mirror else f"copied {age(s.mirror_age_s)}",
                "Set": "  ".join(s.overrides),
            }
            for s in summaries
        ]
    )
    return frame.drop(columns=[name for name in _RARE if not frame[name].astype(bool).any()])
