"""All runs of the project in one table: the run that needs most attention first, and why."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from treering.errors import UserError
from treering.metrics.lines.attention import LEVELS, neediest_first, needs_attention
from treering.metrics.lines.line import RunLine
from treering.metrics.lines.settings import set_apart
from treering.store.ledger.search.folders import FolderFacts, doubts, fits, folder_query
from treering.store.ledger.search.folds import folded, keys_of
from treering.store.ledger.search.query import Term
from treering_dashboard import links
from treering_dashboard.frames import cached
from treering_dashboard.panels.address import SWITCH, among, check_address, check_all, text
from treering_dashboard.panels.answer import error_box
from treering_dashboard.panels.choice import all_runs_or_stop, unlisted
from treering_dashboard.panels.fleet import WHY, choose_fold, choose_of, order_help
from treering_dashboard.panels.foreign import block, label, say
from treering_dashboard.panels.text import count, plural

REFRESH_S = 10
GROUP = "group"
"""In the address: the group whose runs are shown."""
REGISTRY_VARIABLE = "TREERING_MLFLOW_URL"


def page() -> None:
    """Draws the table; a click on a row opens the run, two ticked rows are compared."""
    summaries = [cached.summary(run) for run in all_runs_or_stop()]
    check_address(archived=SWITCH, q=text, by=among(keys_of(summaries), "key"), group=text)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        query = st.text_input(
            "Query",
            key="q",
            bind="query-params",
            label_visibility="collapsed",
            placeholder="model.num_layers>=24 tag:ablation -state:finished",
            help="As in `treering runs QUERY`: experiment, state, tag, note, host, score.TASK, loss, config values",
        )
        order_help()
    try:
        terms = folder_query(query or "")
    except UserError as error:
        error_box("The query does not say what to list.", error)
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        by = st.selectbox(
            "Group by",
            keys_of(summaries),
            index=None,
            key="by",
            bind="query-params",
            label_visibility="collapsed",
            placeholder="Group by",
            on_change=_all_groups,
            width=190,
        )
        tags = _choose_tags(summaries)
        archived = any(s.archived for s in summaries) and st.toggle(
            "Archived runs", key="archived", bind="query-params", help="Runs that `treering archive` put away"
        )
    live = st.fragment(_table, run_every=REFRESH_S if any(s.alive for s in summaries) else None, key="live")
    live(Shown(tuple(tags), terms, by, archived=archived))
    unlisted()


@dataclass(frozen=True, slots=True)
class Shown:
    """What the controls say.

    Attributes:
        tags: that a shown run must have, all of them.
        terms: of the query.
        by: what runs are grouped by; None: they are not.
        archived: whether archived runs are listed.
    """

    tags: tuple[str, ...]
    terms: Sequence[Term]
    by: str | None
    archived: bool


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


def _table(shown: Shown) -> None:
    every = [(run, cached.summary(run)) for run in cached.all_runs()]
    read = [
        (line, cached.facts(run))
        for run, line in every
        if set(shown.tags) <= set(line.tags) and (shown.archived or not line.archived)
    ]
    said = doubts(shown.terms, [facts for _line, facts in read])
    read = [(line, facts) for line, facts in read if fits(line, facts, shown.terms)]
    folds = folded(shown.by, [line for line, _facts in read], [facts for _line, facts in read]) if shown.by else []
    name = st.query_params.get(GROUP) if shown.by else None
    if name is not None:
        members = {line.folder for fold in folds for line in fold.lines if fold.name == name}
        read = [(line, facts) for line, facts in read if line.folder in members]
    lines = neediest_first(line for line, _facts in read)
    hidden = 0 if shown.archived else sum(line.archived for _run, line in every)
    _headline(lines, len(every), hidden=hidden)
    if name is not None:
        _group_chip(name)
    say(*said) if said else None
    if not lines:
        nothing = "No run fits the query and the tags" if name is None else "This group has no run"
        st.info(nothing + ("; archived runs are hidden." if hidden else "."), icon=":material/filter_alt:")
    elif folds and name is None:
        fold = choose_fold(folds)
        if fold is not None:
            st.query_params[GROUP] = fold.name
            st.rerun()
    else:
        _runs(lines, read)


def _all_groups() -> None:
    """A group is one of a key: under another key there is none of its name."""
    st.query_params.pop(GROUP, None)


def _group_chip(name: str) -> None:
    """The group that is shown, with the way back to all groups."""
    if st.button(label(f"Group: {name}"), icon=":material/close:", help="Show all groups"):
        _all_groups()
        st.rerun()


def _runs(lines: Sequence[RunLine], read: Sequence[tuple[RunLine, FolderFacts]]) -> None:
    """The table of runs, and what can be done with those that were ticked."""
    said = set_apart([facts.settings for _line, facts in read])
    apart = {line.folder: each for (line, _facts), each in zip(read, said, strict=True)}
    choice = choose_of(lines, [apart[line.folder] for line in lines])
    if choice.clicked is not None:
        line, column = choice.clicked
        step = min(line.reason_step or 0, line.step)  # of a damaged run, the page has the steps before the fault
        links.open_run(line.folder, step if column == WHY and step else None)
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
    if needing:
        line = needing[0]
        say(f"{line.folder[:8]} {line.experiment}, {line.state}: {line.reason}")


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
            commands = [f'treering note {cached.named(name)} "…" --tag TAG --untag TAG' for name in folders]
            commands += [f"treering archive {cached.named(line.folder)}{' --undo' * line.archived}" for line in lines]
            block("\n".join(commands), "bash")
