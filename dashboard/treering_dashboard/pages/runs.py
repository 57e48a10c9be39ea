"""All runs of the project, newest activity first."""

import pandas as pd
import streamlit as st
from streamlit.navigation.page import StreamlitPage

from treering_dashboard.frames import cached
from treering_dashboard.frames.summary import RunSummary
from treering_dashboard.pages import compare, run
from treering_dashboard.panels.choice import no_runs
from treering_dashboard.panels.state import SIGNS
from treering_dashboard.panels.tables import ROW_HEIGHT
from treering_dashboard.panels.text import age, number, plural

REFRESH_S = 10


def link() -> StreamlitPage:
    """The page's place in the navigation."""
    return st.Page(page, title="Runs", url_path="runs", icon=":material/table_rows:", default=True)


def page() -> None:
    """Draws the table; a click on a row opens the run, two ticked rows are compared."""
    runs = cached.runs()
    if not runs:
        no_runs()
        return
    summaries = [cached.summary(run) for run in runs]
    live = st.fragment(_table, run_every=REFRESH_S if any(s.alive for s in summaries) else None, key="live")
    live()


def _table() -> None:
    summaries = [cached.summary(run) for run in cached.runs()]
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        st.markdown("#### Runs")
        alive = sum(summary.alive for summary in summaries)
        st.caption(f"{plural(len(summaries), 'run')}, {alive} running. Click a row to open it; tick two or more to compare.")
    event = st.dataframe(
        runs_frame(summaries),
        hide_index=True,
        row_height=ROW_HEIGHT + 4,
        height=(ROW_HEIGHT + 4) * (min(len(summaries), 20) + 1) + 8,
        on_select="rerun",
        selection_mode=["multi-row", "single-cell"],
        key="runs",
        alt="All runs, newest activity first",
        column_config={"Progress": st.column_config.ProgressColumn(format="percent", min_value=0.0, max_value=1.0)},
    )
    selection = event["selection"]
    if selection["cells"]:
        st.switch_page(run.link(), query_params={"run": summaries[selection["cells"][0][0]].id})
    chosen = [summaries[row].id for row in selection["rows"]]
    if len(chosen) == 1:
        st.page_link(run.link(), label="Open the run", query_params={"run": chosen[0]})
    elif chosen:
        st.page_link(compare.link(), label=f"Compare {len(chosen)} runs", query_params={"runs": chosen})


def runs_frame(summaries: list[RunSummary]) -> pd.DataFrame:
    """One row a run."""
    return pd.DataFrame(
        [
            {
                "State": f"{SIGNS[s.state].glyph} {SIGNS[s.state].word}",
                "Run": s.id,
                "Experiment": s.experiment or "–",
                "Step": f"{s.step} / {s.num_steps}" if s.num_steps else str(s.step),
                "Progress": s.tokens / s.train_tokens if s.train_tokens else 0.0,
                "Tokens": number(s.tokens),
                "Loss": number(s.loss),
                "Validation loss": number(s.validation_loss),
                "Throughput": number(s.tokens_per_second, "tokens/s") if s.step else "–",
                "Last step": age(s.step_age_s),
                "At risk": plural(s.at_risk_steps, "step"),
                "Attempts": str(s.attempts),
            }
            for s in summaries
        ]
    )
