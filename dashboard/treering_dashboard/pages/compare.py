"""Two or more runs side by side: curves over one x, what differs in config and data, scores with their errors.

If the compared blends differ, training and validation loss are means over differently weighted corpora; the page says
so and shows the held-out loss of each corpus beside it. Smoothing is off by default and only for comparisons: a
time-weighted, de-biased average, with the raw curve faint below it. The page leads to *Differences* if the data of two
runs differ, and its first step leads to the batch of either side.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

import pandas as pd
import streamlit as st

from treering.config.canonical import DIGEST_PREFIX, short
from treering.errors import EvidenceError
from treering.metrics.compare import comparable, compare_data, differences, score_difference
from treering.runlog.directory import RunDirectory
from treering.runlog.metric_catalog import describe
from treering_dashboard import links
from treering_dashboard.frames import cached
from treering_dashboard.frames.buckets import downsample
from treering_dashboard.frames.rings import RunFrames, column
from treering_dashboard.frames.scores import headline_scores
from treering_dashboard.frames.smoothing import WEIGHT, smooth
from treering_dashboard.panels.address import SWITCH, among, check_address, check_all, gone
from treering_dashboard.panels.answer import error_box
from treering_dashboard.panels.axis import Placement, XAxis, choose_axis
from treering_dashboard.panels.charts import OKABE_ITO, Line, Marks, Panel, draw_stack
from treering_dashboard.panels.choice import keep_choice, run_label, runs_or_stop
from treering_dashboard.panels.foreign import say
from treering_dashboard.panels.state import problem_box
from treering_dashboard.panels.tables import table
from treering_dashboard.panels.text import NOTHING, count, number, plural
from treering_dashboard.panels.training import curve, y_format

LEFT = ("train/loss", "train/grad_norm")
RIGHT = ("optim/learning_rate", "speed/tokens_per_second")

_NOISY = ("train/loss", "train/grad_norm", "speed/tokens_per_second")


def page() -> None:
    """Draws the page for the runs that the URL names."""
    runs = {run.path.name: run for run in runs_or_stop()}
    check_address(smooth=SWITCH)
    check_all("runs", among(runs, "run"), len(OKABE_ITO))
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
            max_selections=len(OKABE_ITO),
        )
        axis = choose_axis()
        smoothed = st.toggle(
            "Smoothed", key="smooth", bind="query-params", help=f"Time-weighted moving average, weight {WEIGHT}"
        )
    if len(chosen) < 2:
        st.info(
            "Choose two or more runs; the first one is what the others are compared with.",
            icon=":material/compare_arrows:",
        )
        return
    picked = [runs[name] for name in chosen]
    frames = [cached.frames(run) for run in picked]
    for run, frame in zip(picked, frames, strict=True):
        if frame.problems:
            say(f"Run {run_label(run)}")
            problem_box(frame.problems)
    if _weigh_differently(picked):
        st.caption(
            "The blends differ: training and validation loss weigh the corpora differently in each run, so a lower "
            "curve need not be a better model. Held-out loss by corpus, below, compares like with like."
        )
    _curves(picked, frames, axis, smoothed=smoothed)
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown("###### Data")
        _data(picked, frames)
        st.markdown("###### Scores of the last checkpoint")
        _scores(picked)
    with right:
        st.markdown("###### Config and what ran: only differences")
        _config(picked)
        st.markdown("###### Held-out loss by corpus at the last evaluated checkpoint")
        _held_out(picked)


def _weigh_differently(runs: Sequence[RunDirectory]) -> bool:
    """Whether the losses of two of the runs are means over differently weighted corpora."""
    found = set()
    for run in runs:
        try:
            blend = run.resolved.blend
        except EvidenceError:
            continue
        found.add(frozenset((part.corpus, Fraction(part.weight)) for part in blend.components))
    return len(found) > 1


def _held_out(runs: Sequence[RunDirectory]) -> None:
    """Losses of the same held-out tokens; a difference is shown only if both have the same number of tokens."""
    last, names = [], []
    for run in runs:
        evaluations, _ = cached.evaluations(run)
        last.append(evaluations[-1].perplexity if evaluations else {})
        names.append(f"{run_label(run)} at {evaluations[-1].step}" if evaluations else run_label(run))
    corpora = list(dict.fromkeys(corpus for found in last for corpus in found))
    if not corpora:
        st.caption("Not evaluated yet.")
        return
    rows = []
    for corpus in corpora:
        row = {"Corpus": corpus}
        base = last[0].get(corpus)
        for index, (name, found) in enumerate(zip(names, last, strict=True)):
            measured = found.get(corpus)
            row[name] = NOTHING if measured is None else f"{measured['loss']:.3f}"
            if index and measured and base and measured["tokens"] == base["tokens"]:
                row[name] += f"  ({measured['loss'] - base['loss']:+.3f})"
        rows.append(row)
    table(pd.DataFrame(rows), "Held-out loss by corpus", rows=14)
    st.caption("nat/token; of a single training each: another seed alone moves these numbers too.")


def _curves(runs: Sequence[RunDirectory], frames: Sequence[RunFrames], axis: XAxis, *, smoothed: bool) -> None:
    x = Placement.of(axis, [frame.path for frame in frames])
    nothing = pd.DataFrame({"x": [], "label": []})
    for keys, cell, name in zip((LEFT, RIGHT), st.columns(2, gap="medium"), ("training", "schedule"), strict=True):
        panels = [_panel(key, runs, frames, x, smoothed=smoothed and key in _NOISY) for key in keys]
        if name == "training":
            panels.insert(1, _validation_panel(runs, frames, x))
        drawn = [panel for panel in panels if panel.lines]
        if drawn:
            with cell:
                what = f"{', '.join(panel.title for panel in drawn)} of {len(runs)} runs"
                draw_stack(drawn, x, Marks(nothing, nothing), key=f"compare-{name}", alt_text=what)


def _panel(
    key: str, runs: Sequence[RunDirectory], frames: Sequence[RunFrames], x: Placement, *, smoothed: bool
) -> Panel:
    metric, name = describe(key), column(key)
    lines = []
    for run, frame, colour in zip(runs, frames, OKABE_ITO[: len(runs)], strict=True):
        if name in frame.path and len(frame.path):
            buckets = downsample(frame.path, [name], positive=[name] if metric.logarithmic else [])
            latest = number(float(frame.path[name].iloc[-1]))
            line = curve(buckets, name, x)
            if smoothed:
                lines.append(Line(line, "", "", colour, muted=True))
                values = smooth(line["x"].to_numpy(), line["y"].to_numpy(), line["segment"].to_numpy())
                line = line.assign(y=values).drop(columns=["lo", "hi", "bad"])
                latest = number(float(values[-1]))
            lines.append(Line(line, run_label(run)[:8], latest, colour))
    title = f"{metric.title}, smoothed {WEIGHT}" if smoothed else metric.title
    return Panel(title, metric.unit, tuple(lines), log=metric.logarithmic, y_format=y_format(key))


def _validation_panel(runs: Sequence[RunDirectory], frames: Sequence[RunFrames], x: Placement) -> Panel:
    metric = describe("validation/loss")
    lines = []
    for run, frame, colour in zip(runs, frames, OKABE_ITO[: len(runs)], strict=True):
        measured = frame.validation[frame.validation["corpus"] == ""]
        if len(measured):
            data = curve(downsample(measured, ["loss"]), "loss", x).assign(segment=0)
            latest = number(float(measured["loss"].iloc[-1]))
            lines.append(Line(data, run_label(run)[:8], latest, colour, points=len(data) <= 60))
    return Panel(metric.title, metric.unit, tuple(lines), y_format=".3~g")


def _data(runs: Sequence[RunDirectory], frames: Sequence[RunFrames]) -> None:
    rows, differing = [], []
    for run, frame in zip(runs[1:], frames[1:], strict=True):
        found = compare_data(frames[0].reads, frame.reads)
        where, why = "nowhere", f"token for token the same in {plural(found.equal_steps, 'common step')}"
        if found.first is not None:
            first = found.first
            where = f"step {count(first.step)}"
            why = (
                f"other tokens in the same samples {count(first.left[0])} to {count(first.left[1])}"
                if first.kind == "tokens"
                else f"samples {count(first.left[0])} to {count(first.left[1])} against "
                f"{count(first.right[0])} to {count(first.right[1])}"
            )
        rows.append({"Against": run_label(runs[0]), "Run": run_label(run), "Data differ from": where, "How": why})
        if found.first is not None:
            differing.append(run)
    table(pd.DataFrame(rows), "First step at which the runs' data differ")
    for run in differing:
        links.newest_difference(runs[0], run)


def _config(runs: Sequence[RunDirectory]) -> None:
    documents = []
    for run in runs:
        try:
            documents.append(comparable(run))
        except EvidenceError as error:
            error_box("A record does not hold, so configs cannot be compared.", error)
            return
    found = differences(documents)
    if not found:
        st.caption("No difference: these runs have one config, and ran with the same layout, code and environment.")
        return
    rows = [
        {"Path": each.path, **{run_label(run): _cell(value) for run, value in zip(runs, each.values, strict=True)}}
        for each in found
    ]
    table(pd.DataFrame(rows), "Dotted paths at which the configs differ", rows=14)


def _cell(value: object) -> str:
    text = str(value)
    return short(text) if text.startswith(DIGEST_PREFIX) else text


def _scores(runs: Sequence[RunDirectory]) -> None:
    by_run, names = [], []
    for run in runs:
        evaluations, problem = cached.evaluations(run)
        if problem:
            error_box("An evaluation's record does not hold.", problem)
            return
        scores = headline_scores(evaluations[-1]) if evaluations else []
        names.append(f"{run_label(run)} at {evaluations[-1].step}" if evaluations else run_label(run))
        by_run.append({(score.task, score.shots, score.metric): score for score in scores})
    keys = list(dict.fromkeys(key for scores in by_run for key in scores))
    if not keys:
        st.caption("None of these runs has been evaluated. `treering evaluate` scores their checkpoints.")
        return
    rows = []
    for task, shots, metric in keys:
        row = {"Task": task, "Shots": str(shots), "Metric": metric}
        base = by_run[0].get((task, shots, metric))
        for name, found in zip(names, by_run, strict=True):
            score = found.get((task, shots, metric))
            text = NOTHING if score is None else _with_error(score.value, score.stderr)
            if score is not None and base is not None and score is not base:
                difference = score_difference(base, score)
                text += f"  ({difference.value:+.3f}, {'beyond' if difference.significant else 'within'} noise)"
            row[name] = text
        rows.append(row)
    table(pd.DataFrame(rows), "Scores with standard errors", rows=14)
    st.caption("± one standard error. Beyond noise: more than 1.96 standard errors of the difference.")


def _with_error(value: float, stderr: float) -> str:
    return f"{value:.3f}" if math.isnan(stderr) else f"{value:.3f} ± {stderr:.3f}"
