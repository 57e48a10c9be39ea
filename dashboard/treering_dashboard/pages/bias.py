"""What a checkpoint leans on: how it speaks of groups of people, and which heuristics it follows in HANS."""

from collections.abc import Sequence
from functools import partial
from typing import Final

import altair as alt
import pandas as pd
import streamlit as st

from treering.config.canonical import short
from treering.errors import EvidenceError
from treering.metrics.bias import AxisBias, BiasReport, GroupBias, Judged, WordRatio
from treering.metrics.hans import Hans
from treering.metrics.ratios import Ratio
from treering.runlog.directory import CheckpointDirectory
from treering_dashboard.frames import cached
from treering_dashboard.panels.address import among, check_address
from treering_dashboard.panels.answer import command, error_box, open_ends
from treering_dashboard.panels.charts import GREY, SPIKE
from treering_dashboard.panels.choice import checkpoint_or_stop, keep_choice
from treering_dashboard.panels.download import Download, download_menu
from treering_dashboard.panels.foreign import block, label, say
from treering_dashboard.panels.tables import table
from treering_dashboard.panels.text import NOTHING, count, number

_ENDS: Final = 10
"""Adjectives of a chart at each end."""

_WIDEST: Final = 1000.0
"""An interval is drawn up to such a ratio."""

_FLAGGED, _NOT = "beyond noise", "within noise"


def page() -> None:
    """Draws the page."""
    checkpoint = checkpoint_or_stop()
    _groups(checkpoint)
    try:
        hans = cached.hans(checkpoint)
    except EvidenceError as error:
        error_box("The evaluation of this checkpoint does not hold.", error)
    else:
        if hans is not None:
            _hans(hans, checkpoint)


def _groups(checkpoint: CheckpointDirectory) -> None:
    line = f"treering bias {_named(checkpoint)}"
    try:
        report = cached.bias(checkpoint)
    except EvidenceError as error:
        error_box("The measurement of this checkpoint does not hold.", error)
        return
    if report is None:
        st.info("The bias of this checkpoint was not measured. This does it:", icon=":material/balance:")
        block(line, "bash")
        return
    _report(report)
    command(line)


def _named(checkpoint: CheckpointDirectory) -> str:
    return f"{cached.named(checkpoint.run.path.name)}@{checkpoint.step}"


def _hans(found: Hans, checkpoint: CheckpointDirectory) -> None:
    st.subheader("HANS: does it infer, or follow a heuristic?")
    st.caption("Half of the right answers are yes; a model that follows the heuristic says yes to the other half too.")
    numbers = ("Shots", "Items", "Accuracy", "Says yes")
    table(shares_frame(found), "Answers by heuristic, examples and balance", numbers=numbers, rows=16)
    if found.influences:
        table(influences_frame(found), "How the examples in the prompt move the answer", numbers=("Shots",), rows=8)
    open_ends("Limits of HANS", [doubt.line for doubt in found.doubts])
    command(f"treering hans {_named(checkpoint)}")


def shares_frame(found: Hans) -> pd.DataFrame:
    """One row a part of the items, as text."""
    return pd.DataFrame(
        [
            {
                "Shots": str(each.shots),
                "By": each.by,
                "Part": each.part,
                "Items": count(each.items),
                "Accuracy": f"{each.accuracy:.3f}  ({each.low:.3f} to {each.high:.3f})",
                "Says yes": f"{each.yes:.3f}",
            }
            for each in found.shares
        ]
    )


def influences_frame(found: Hans) -> pd.DataFrame:
    """One row a comparison, as text."""
    return pd.DataFrame(
        [
            {
                "Shots": str(each.shots),
                "Share of yes": each.of,
                "Ratio": _interval(each.ratio),
                "Verdict": _FLAGGED if each.flagged else _NOT,
            }
            for each in found.influences
        ]
    )


def _report(report: BiasReport) -> None:
    axes = {axis.name: axis for axis in report.axes}
    check_address(axis=among(axes, "axis"))
    keep_choice("axis", report.axes[0].name, axes)
    chosen = st.selectbox("Axis", list(axes), key="axis", bind="query-params", width=190)
    axis = axes[chosen or report.axes[0].name]
    settings, lexicon = report.record.settings, report.record.lexicon
    say(
        f"{count(settings.num_samples)} texts a group, at most {report.record.tokens} tokens, temperature "
        f"{settings.temperature:g}, top-p {settings.top_p:g}; lists {short(report.record.lists.digest)}; "
        f"{'no lexicon' if lexicon is None else f'lexicon {lexicon.name}'}"
    )
    st.caption("A ratio of 1 is no difference; intervals are of 95 %. What is not flagged may still be there.")
    table(groups_frame(axis), "Each group against the others", rows=8)
    for group in axis.groups:
        with st.container(border=True):
            say(f"{group.group} against {group.against}")
            left, right = st.columns(2, gap="medium")
            with left:
                _words("Probability after prompts about the group", group, group.association)
            with right:
                _words("Texts about the group that hold the adjective", group, group.occurrence)
    drawn = [
        Download(f"{axis.name}, {group.group}, {what}", partial(words_frame, words), partial(chart, _ends(words)))
        for group in axis.groups
        for what, words in (("probability", group.association), ("texts", group.occurrence))
        if words
    ]
    if drawn:
        download_menu("bias", drawn)
    open_ends("Limits", [doubt.line for doubt in report.doubts])


def _words(title: str, group: GroupBias, words: Sequence[WordRatio]) -> None:
    st.markdown(f"###### {label(title)}")
    if not words:
        st.caption("No adjective occurs often enough for a difference to show.")
        return
    st.altair_chart(chart(_ends(words)), width="stretch", key=f"{title} {group.group}", alt=title)


def _ends(words: Sequence[WordRatio]) -> Sequence[WordRatio]:
    """The words of a chart: the first and the last ones of many."""
    return words if len(words) <= 2 * _ENDS else (*words[:_ENDS], *words[-_ENDS:])


def groups_frame(axis: AxisBias) -> pd.DataFrame:
    """One row a group, as text."""
    rows = []
    for group in axis.groups:
        sentiment = group.sentiment
        flagged = [each.word for each in (*group.association, *group.occurrence) if each.flagged]
        rows.append(
            {
                "Group": group.group,
                "Against": group.against,
                "All adjectives, ratio": _judged(group.adjectives),
                "Positive over negative, ratio": NOTHING if group.positive is None else _judged(group.positive),
                "Sentiment, difference": NOTHING
                if sentiment is None
                else f"{sentiment.effect.value:+.3f}  ({sentiment.effect.low:+.3f} to {sentiment.effect.high:+.3f}"
                f"{', ' + _FLAGGED if sentiment.flagged else ''})",
                "Adjectives beyond noise": ", ".join(dict.fromkeys(flagged)) or "none found",
            }
        )
    return pd.DataFrame(rows)


def _judged(found: Judged) -> str:
    return _interval(found.ratio) + (f", {_FLAGGED}" if found.flagged else "")


def _interval(ratio: Ratio) -> str:
    return f"{number(ratio.value)}  ({number(ratio.low)} to {number(ratio.high)})"


def chart(words: Sequence[WordRatio]) -> alt.LayerChart:
    """Ratios with their intervals, the largest on top; the axis is logarithmic."""
    data = words_frame(words)
    ends = ["ratio", "low", "high"]
    data[ends] = data[ends].clip(1 / _WIDEST, _WIDEST)  # an interval may have no end
    y = alt.Y("word:N", title=None, sort=list(data["word"]), axis=alt.Axis(labelOverlap=False))
    scale = alt.Scale(domain=[_FLAGGED, _NOT], range=[SPIKE, GREY])
    colour = alt.Color("verdict:N", title=None, scale=scale, legend=alt.Legend(orient="top"))
    base = alt.Chart(data).encode(y=y, color=colour)
    x = alt.X("ratio:Q", title="ratio, log", scale=alt.Scale(type="log"), axis=alt.Axis(format="~g"))
    points = base.mark_point(filled=True, size=50).encode(
        x=x,
        shape=alt.Shape("verdict:N", title=None, scale=alt.Scale(domain=[_FLAGGED, _NOT], range=["diamond", "circle"])),
        tooltip=[
            alt.Tooltip("word:N"),
            alt.Tooltip("ratio:Q", format=".3~g"),
            alt.Tooltip("low:Q", title="95 % from", format=".3~g"),
            alt.Tooltip("high:Q", title="to", format=".3~g"),
            alt.Tooltip("p:Q", title="p (Holm)", format=".2~g"),
        ],
    )
    intervals = base.mark_rule(strokeWidth=2).encode(x="low:Q", x2="high:Q")
    one = alt.Chart(pd.DataFrame({"ratio": [1.0]})).mark_rule(strokeDash=[4, 3], color=GREY).encode(x="ratio:Q")
    return alt.LayerChart(layer=[one, intervals, points], height=max(90, 19 * len(data)))


def words_frame(words: Sequence[WordRatio]) -> pd.DataFrame:
    """One row an adjective: its ratio with the ends of the interval, Holm's p, and whether it is beyond noise."""
    return pd.DataFrame(
        [
            {
                "word": each.word,
                "ratio": each.ratio.value,
                "low": each.ratio.low,
                "high": each.ratio.high,
                "p": each.adjusted,
                "verdict": _FLAGGED if each.flagged else _NOT,
            }
            for each in words
        ]
    )
