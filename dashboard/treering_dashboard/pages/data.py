"""The data of a run: its blend planned and realised, what curation dropped and why, licences, and what led to it."""

from collections.abc import Sequence

import altair as alt
import pandas as pd
import streamlit as st

from treering.audit.report import AuditReport
from treering.config.canonical import short
from treering.errors import EvidenceError
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering_dashboard import links
from treering_dashboard.frames import cached
from treering_dashboard.frames.audits import audit_of
from treering_dashboard.frames.blends import CorpusShare, Stage, corpus_shares, funnel, reasons
from treering_dashboard.frames.lineage import TITLES, lineage
from treering_dashboard.panels.answer import error_box, open_ends
from treering_dashboard.panels.choice import all_runs_or_stop, checkpoint_of, choose_run
from treering_dashboard.panels.corpora import curation_table, licence_table, licences_frame
from treering_dashboard.panels.download import Download, download_menu
from treering_dashboard.panels.foreign import say
from treering_dashboard.panels.lineage import graph
from treering_dashboard.panels.palette import PALETTE, Theme, legible, theme
from treering_dashboard.panels.state import badge
from treering_dashboard.panels.tables import table
from treering_dashboard.panels.text import NOTHING, count, number, plural


def page() -> None:
    """Draws the data of the chosen checkpoint."""
    runs = all_runs_or_stop()
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        run = choose_run(runs)
        checkpoint = checkpoint_of(run) if isinstance(run, RunDirectory) else None
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        badge(cached.summary(run).state)
    if isinstance(run, RecordedRunDirectory):
        st.info(
            "Another trainer recorded this run: what each rank was fed is on record, the documents behind it are not.",
            icon=":material/edit_note:",
        )
        links.audit_link(run, "What it was fed, and what each restart repeated")
        return
    try:
        if checkpoint is None:
            _planned(run)
        else:
            _data(checkpoint)
    except EvidenceError as error:
        error_box("A record of this run does not hold, so its data cannot be told.", error)


def _planned(run: RunDirectory) -> None:
    st.info(
        "No complete checkpoint yet, so nothing is counted; `checkpoint.every_steps` of the config says when.",
        icon=":material/hourglass_empty:",
    )
    rows = [
        {
            "Corpus": component.corpus,
            "Weight": component.weight,
            "Tokens held": count(component.num_tokens),
            "Digest": short(component.digest, 12) if component.digest else "declared",
        }
        for component in run.resolved.blend.components
    ]
    table(pd.DataFrame(rows), "The planned blend", numbers=("Weight", "Tokens held"), rows=20)


def _data(checkpoint: CheckpointDirectory) -> None:
    report, resolved = audit_of(checkpoint), checkpoint.run.resolved
    shares = corpus_shares(report, resolved)
    name = f"data-{report.run[:8]}-{report.step}"
    say(sentence(report, shares))
    _blend(shares, name)
    left, right = st.columns(2, gap="medium")
    with left:
        _curation(report, name)
    with right:
        licence_table(report)
        download_menu(f"{name}-licences", [Download("licences", lambda: licences_frame(report))])
        curation_table(report)
    _lineage(checkpoint, report, name)
    open_ends("Missing", [gap.text for gap in report.gaps])


def sentence(report: AuditReport, shares: Sequence[CorpusShare]) -> str:
    """The blend in a sentence: how much was read, how close to the plan, and what was read more than once."""
    farthest = max(shares, key=lambda each: abs(each.share - each.weight))
    again = ", ".join(f"{each.corpus} {each.epochs:.2f} times" for each in shares if each.epochs > 1)
    corpora = "one corpus" if len(shares) == 1 else f"{len(shares)} corpora"
    return (
        f"Step {report.step:,} has read {number(report.consumed_tokens)} tokens of {corpora}; the share farthest from "
        f"its weight is that of {farthest.corpus}, {100 * (farthest.share - farthest.weight):+.3f} percentage points. "
        f"Read more than once: {again or 'none'}."
    )


def _blend(shares: Sequence[CorpusShare], name: str) -> None:
    st.markdown("###### Blend, planned and realised")
    frame = shares_frame(shares)
    left, right = st.columns(2, gap="medium")
    with left:
        st.altair_chart(
            shares_chart(shares, "share", theme()), width="stretch", key="shares", alt="Share of each corpus and weight"
        )
    with right:
        st.altair_chart(
            shares_chart(shares, "epochs", theme()), width="stretch", key="epochs", alt="Epochs of each corpus"
        )
    table(frame, "Every corpus of the blend", numbers=[str(each) for each in frame][2:], rows=20)
    download_menu(
        f"{name}-blend",
        [
            Download("shares", lambda: frame, lambda: shares_chart(shares, "share", "light")),
            Download("epochs", lambda: frame, lambda: shares_chart(shares, "epochs", "light")),
        ],
    )


def shares_frame(shares: Sequence[CorpusShare]) -> pd.DataFrame:
    """One row a corpus."""
    return pd.DataFrame(
        [
            {
                "Corpus": each.corpus,
                "Licence": each.licence or NOTHING,
                "Weight": f"{each.weight:.2%}",
                "Share": f"{each.share:.2%}",
                "Tokens": count(each.tokens),
                "Tokens at the end": count(each.tokens_at_end),
                "Epochs planned": f"{each.planned_epochs:.3f}",
                "Epochs": f"{each.epochs:.3f}",
                "Epochs at the end": f"{each.epochs_at_end:.3f}",
            }
            for each in shares
        ]
    )


def shares_chart(shares: Sequence[CorpusShare], what: str, of: Theme) -> alt.LayerChart:
    """A bar a corpus of what was read, and a tick of what is planned: shares, or epochs up to the schedule's end."""
    is_share = what == "share"
    rows = pd.DataFrame(
        {
            "corpus": [each.corpus for each in shares],
            "realised": [100 * each.share if is_share else each.epochs for each in shares],
            "planned": [100 * each.weight if is_share else each.epochs_at_end for each in shares],
        }
    )
    names = list(rows["corpus"])
    title = "share of the samples, %; tick: weight" if is_share else "epochs; tick: at the schedule's end"
    y = alt.Y("corpus:N", sort=names, title=None)
    tooltip = [
        alt.Tooltip("corpus:N", title="Corpus"),
        alt.Tooltip("realised:Q", title="Realised", format=".4~g"),
        alt.Tooltip("planned:Q", title="Weight" if is_share else "At the end", format=".4~g"),
    ]
    base = alt.Chart(rows)
    bars = base.mark_bar(color=PALETTE[of][0], opacity=1).encode(
        x=alt.X("realised:Q", title=title), y=y, tooltip=tooltip
    )
    ticks = base.mark_tick(color=PALETTE[of][5], thickness=3).encode(x="planned:Q", y=y, tooltip=tooltip)
    layers: list[alt.Chart] = [bars, ticks]
    if not is_share:
        once = pd.DataFrame({"x": [1.0]})
        layers.append(alt.Chart(once).mark_rule(strokeDash=[4, 3], color=PALETTE[of][-1]).encode(x="x:Q"))
    return legible(alt.LayerChart(layer=layers, height=alt.Step(22)), of)


def _curation(report: AuditReport, name: str) -> None:
    st.markdown("###### Curation: documents at each stage")
    stages, others = funnel(report)
    if not stages:
        st.caption("No corpus is available, or none was curated.")
        return
    st.altair_chart(funnel_chart(stages, theme()), width="stretch", key="funnel", alt="Documents left at each stage")
    frame = reasons_frame(report, stages[0].documents)
    table(frame, "Why documents were dropped", numbers=("Documents", "Of all"), rows=12)
    st.caption("`treering decision CORPUS:ID` says of one document why, and which was kept instead.")
    download_menu(
        f"{name}-curation", [Download("reasons of dropping", lambda: frame, lambda: funnel_chart(stages, "light"))]
    )
    if others:
        say(f"Not curated, or not here: {', '.join(others)}.")


def funnel_chart(stages: Sequence[Stage], of: Theme) -> alt.LayerChart:
    """A bar a stage."""
    rows = pd.DataFrame(
        {
            "stage": [stage.name for stage in stages],
            "documents": [stage.documents for stage in stages],
            "dropped": [stage.dropped for stage in stages],
            "text": [count(stage.documents) for stage in stages],
        }
    )
    y = alt.Y("stage:N", sort=list(rows["stage"]), title=None)
    x = alt.X("documents:Q", title="documents", axis=alt.Axis(format="~s"))
    base = alt.Chart(rows)
    tooltip = [alt.Tooltip(f"{name}:Q", format=",") for name in ("documents", "dropped")]
    bars = base.mark_bar(color=PALETTE[of][0], opacity=1).encode(x=x, y=y, tooltip=tooltip)
    return legible(alt.LayerChart(layer=[bars], height=alt.Step(22)), of)


def reasons_frame(report: AuditReport, taken: int) -> pd.DataFrame:
    """One row a rule."""
    return pd.DataFrame(
        [
            {
                "Stage": each.stage,
                "Rule": each.rule or "not known: the summary of curation is of other corpora",
                "Documents": count(each.total),
                "Of all": f"{each.total / taken:.1%}",
                "Corpora": ", ".join(
                    f"{corpus} {count(dropped)}"
                    for corpus, dropped in sorted(each.documents.items(), key=lambda item: -item[1])
                ),
            }
            for each in reasons(report)
        ],
        columns=["Stage", "Rule", "Documents", "Of all", "Corpora"],
    )


def _lineage(checkpoint: CheckpointDirectory, report: AuditReport, name: str) -> None:
    st.markdown("###### Lineage")
    nodes, edges = lineage(checkpoint, report)
    st.altair_chart(
        graph(nodes, edges, TITLES, theme()),
        width="stretch",
        key="lineage",
        alt=f"From {plural(len(nodes), 'node')}: sources, corpora, blends and runs to the checkpoint",
    )
    labels = {node.key: node.label for node in nodes}
    frame = pd.DataFrame(
        [{"From": labels[edge.source], "To": labels[edge.target], "Share": f"{edge.share:.1%}"} for edge in edges]
    )
    download_menu(name, [Download("lineage", lambda: frame, lambda: graph(nodes, edges, TITLES, "light"))])
