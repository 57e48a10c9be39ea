"""All runs of the project in one table: the run that needs most attention first, and why."""

import os
from collections.abc import Sequence

import streamlit as st

from treering.errors import UserError
from treering.metrics.lines.attention import LEVELS, neediest_first, needs_attention
from treering.metrics.lines.line import RunLine
from treering.metrics.lines.settings import set_apart
from treering.runlog.find import AnyRun
from treering.store.ledger.search.folders import doubts, fits, folder_query
from treering.store.ledger.search.query import Term
from treering_dashboard import links
from treering_dashboard.frames import cached
from treering_dashboard.panels.address import SWITCH, among, check_address, check_all, text
from treering_dashboard.panels.answer import error_box
from treering_dashboard.panels.choice import all_runs_or_stop, unlisted
from treering_dashboard.panels.fleet import WHY, choose_of, order_help
from treering_dashboard.panels.foreign import block, label, say
from treering_dashboard.panels.text import count, plural

REFRESH_S = 10
REGISTRY_VARIABLE = "TREERING_MLFLOW_URL"


def page() -> None:
    """Draws the table; a click on a row opens the run, two ticked rows are compared."""
    summaries = [cached.summary(run) for run in all_runs_or_stop()]
    check_address(archived=SWITCH, q=text)
    query = st.text_input(
        "Query",
        key="q",
        bind="query-params",
        label_visibility="collapsed",
        placeholder="model.num_layers>=24 tag:ablation -state:finished",
        help="The terms of `treering runs QUERY`: experiment, state, tag, note, host, score.TASK, loss, config values",
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
        order_help()
    live = st.fragment(_table, run_every=REFRESH_S if any(s.alive for s in summaries) else None, key="live")
    live(tags, terms, archived=archived)
    unlisted()


def _choose_tags(summaries: list[RunLine]) -> list[str]:
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
    every = [(run, cached.summary(run)) for run in cached.all_runs()]
    read = [(run, line) for run, line in every if set(tags) <= set(line.tags) and (archived or not line.archived)]
    said: list[str] = []
    if terms:
        said = doubts(terms, [cached.facts(run) for run, _line in read])
        read = [(run, line) for run, line in read if fits(line, cached.facts(run), terms)]
    lines = neediest_first(line for _run, line in read)
    _headline(lines, len(every), hidden=0 if archived else sum(line.archived for _run, line in every))
    for each in said:
        say(each)
    if not lines:
        st.info("No run that is not archived fits the query and has all of these tags.", icon=":material/filter_alt:")
        return
    apart = _apart(read)
    choice = choose_of(lines, [apart[line.folder] for line in lines])
    if choice.clicked is not None:
        line, column = choice.clicked
        at = {"at": str(line.reason_step)} if column == WHY and line.reason_step else {}
        st.switch_page(links.RUN.link, query_params={"run": line.folder, **at})
    _with_chosen(choice.ticked)


def _headline(lines: Sequence[RunLine], every: int, *, hidden: int) -> None:
    """How many runs there are and how many need attention; the filters that hide some."""
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        of_all = f" of {count(every)}" if len(lines) < every else ""
        needing = [line for line in lines if needs_attention(line)]
        levels = [level.name for level in LEVELS if any(line.level is level for line in needing)]
        counts = ", ".join(f"{sum(line.level.name == name for line in needing)} {name}" for name in levels)
        alive = sum(line.alive for line in lines)
        say(f"{plural(len(lines), 'run')}{of_all}, {alive or 'none'} running" + (f"; {counts}" if counts else ""))
        if hidden:
            st.badge(f"{plural(hidden, 'archived run')} hidden", icon=":material/inventory_2:", color="gray")
        st.caption("Click a row to open the run, *Why* to open it at that step; tick rows to compare them.")
        registry = os.environ.get(REGISTRY_VARIABLE, "")
        if registry.startswith(("http://", "https://")):
            st.page_link(registry, label="MLflow", icon=":material/open_in_new:")


def _apart(read: Sequence[tuple[AnyRun, RunLine]]) -> dict[str, str]:
    """What was set of each run, of the values that differ among the shown ones, by the run's folder."""
    said = set_apart([cached.facts(run).settings for run, _line in read])
    return {line.folder: each for (_run, line), each in zip(read, said, strict=True)}


def _with_chosen(lines: Sequence[RunLine]) -> None:
    """What can be done with the ticked rows: the dashboard reads alone, so that commands change tags and notes."""
    if not lines:
        return
    folders = [line.folder for line in lines]
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        if len(folders) == 1:
            st.page_link(links.RUN.link, label="Open the run", query_params={"run": folders[0]})
        else:
            title = label(f"Compare {count(len(folders))} runs")
            st.page_link(links.COMPARE.link, label=title, query_params={"runs": folders})
        with st.popover("Note, tag, archive", icon=":material/terminal:"):
            st.caption("The dashboard changes nothing. These commands do, in the project's folder:")
            commands = [f'treering note {name[:8]} "…" --tag TAG --untag TAG' for name in folders]
            commands += [f"treering archive {line.folder[:8]}{' --undo' * line.archived}" for line in lines]
            block("\n".join(commands), "bash")
