"""Two or more runs side by side: curves over one x, what differs in config and data, scores with their errors.

If the compared blends differ, training and validation loss are means over differently weighted corpora; the page says
so and shows the held-out loss of each corpus beside it. Smoothing is off by default: a time-weighted, de-biased
average, with the raw curve faint below it. The page leads to *Differences* if the data of two runs differ, and its
first step leads to the batch of either side.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import pandas as pd
import streamlit as st

from treering.config.canonical import DIGEST_PREFIX, short
from treering.errors import EvidenceError
from treering.metrics.compare import Score, comparable, comparable_recorded, differences, headline_scores
from treering.metrics.environments import environment_of
from treering.metrics.verdicts import TaskVerdict, judge_evaluations, judge_scores
from treering.runlog.directory import RunDirectory
from treering.runlog.find import AnyRun
from treering.runlog.metric_catalog import describe
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering.runlog.records import Evaluation
from treering_dashboard import links
from treering_dashboard.frames import cached
from treering_dashboard.frames.reads import COSTLY_BYTES, ring_bytes
from treering_dashboard.frames.rings import VALIDATION, RunFrames
from treering_dashboard.frames.scores import NOT_SAID, reported_scores
from treering_dashboard.frames.smoothing import WEIGHT
from treering_dashboard.panels.address import SWITCH, among, check_address, check_all, gone
from treering_dashboard.panels.answer import asked, error_box
from treering_dashboard.panels.axis import Placement, XAxis, choose_axis
from treering_dashboard.panels.board import draw_stack
from treering_dashboard.panels.charts import OKABE_ITO, PLAIN, Line, Marks, Panel
from treering_dashboard.panels.choice import all_runs_or_stop, keep_choice, run_label
from treering_dashboard.panels.environments import environments
from treering_dashboard.panels.foreign import say
from treering_dashboard.panels.reads import read_both
from treering_dashboard.panels.state import problem_box
from treering_dashboard.panels.tables import table
from treering_dashboard.panels.text import NOTHING, number, size
from treering_dashboard.panels.training import (
    FEW_POINTS,
    MOST_OTHERS,
    averaged,
    curve,
    loss_line,
    smoothed_title,
    y_format,
)

LEFT = ("train/loss", "train/grad_norm")
RIGHT = ("optim/learning_rate", "speed/tokens_per_second")

_NOISY = ("train/loss", "train/grad_norm", "speed/tokens_per_second")


def page() -> None:
    """Draws the page for the runs that the URL names."""
    runs = {run.path.name: run for run in all_runs_or_stop()}
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
        frames = [cached.frames(runs[name]) for name in chosen]
        axis = choose_axis(frames)
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
        _data(picked)
        st.markdown("###### Scores of the last checkpoint")
        _scores(picked)
    with right:
        st.markdown("###### Config and what ran: only differences")
        _config(picked)
        _environments(picked)
        if any(isinstance(run, RunDirectory) for run in picked):
            st.markdown("###### Held-out loss by corpus at the last evaluated checkpoint")
            _held_out(picked)


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


def _held_out(runs: Sequence[AnyRun]) -> None:
    """Losses of the same held-out tokens; a difference is shown only if both have the same number of tokens."""
    last, names = [], []
    for run in runs:
        evaluations = [] if isinstance(run, RecordedRunDirectory) else cached.evaluations(run)[0]
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


def _curves(runs: Sequence[AnyRun], frames: Sequence[RunFrames], axis: XAxis, *, smoothed: bool) -> None:
    x = Placement.of(axis, [frame.path for frame in frames])
    nothing = pd.DataFrame({"x": [], "label": []})
    for keys, cell, name in zip(_keys(frames), st.columns(2, gap="medium"), ("training", "schedule"), strict=True):
        panels = [_panel(key, runs, frames, x, smoothed=smoothed and key in _NOISY) for key in keys]
        if name == "training":
            panels.insert(1, _validation_panel(runs, frames, x))
        panels = [panel for panel in panels if panel.lines]
        if panels:
            with cell:
                what = f"{', '.join(panel.title for panel in panels)} of {len(runs)} runs"
                draw_stack(panels, x, Marks(nothing, nothing), key=f"compare-{name}", alt_text=what)


def _keys(frames: Sequence[RunFrames]) -> tuple[list[str], list[str]]:
    """Metrics of both columns: those of the catalog, then what at least two other trainers reported."""
    left, right = list(LEFT), list(RIGHT)
    held = Counter(key for frame in frames if frame.recorded for key in frame.path.metrics)
    others = [key for key, number_of in held.items() if number_of > 1 and key not in {*LEFT, *RIGHT, VALIDATION}]
    for index, key in enumerate(others[:MOST_OTHERS]):
        (left, right)[index % 2].append(key)
    return left, right


def _panel(key: str, runs: Sequence[AnyRun], frames: Sequence[RunFrames], x: Placement, *, smoothed: bool) -> Panel:
    lines, metrics, values = [], [], [0.0]
    for run, frame, colour in zip(runs, frames, OKABE_ITO[: len(runs)], strict=True):
        if key not in frame.path or not len(frame.path):
            continue
        metrics.append(frame.path.describe(key))
        drawn = frame.path.drawn([key], [x.column])
        values += drawn.envelopes[key].hi.tolist()
        line = Line(curve(drawn, key, x), run_label(run)[:8], number(frame.path.latest(key)), colour)
        lines += averaged(line) if smoothed else [line]
    if not metrics:
        return Panel("", "", ())
    metric = metrics[0]
    unit = metric.unit if all(each.unit == metric.unit for each in metrics) else ""
    title = smoothed_title(metric) if smoothed else metric.title
    log = metric.logarithmic and any(line.has_numbers for line in lines)
    return Panel(title, unit, tuple(lines), log=log, y_format=y_format(metric, values))


def _validation_panel(runs: Sequence[AnyRun], frames: Sequence[RunFrames], x: Placement) -> Panel:
    metric = describe(VALIDATION)
    lines = []
    for run, frame, colour in zip(runs, frames, OKABE_ITO[: len(runs)], strict=True):
        measured = frame.held_out()
        if len(measured):
            data = loss_line(measured, x)
            latest = number(float(measured["loss"].iloc[-1]))
            lines.append(Line(data, run_label(run)[:8], latest, colour, points=len(data) <= FEW_POINTS))
    unit = "" if any(frame.recorded for frame in frames) else metric.unit
    return Panel(metric.title, unit, tuple(lines), y_format=PLAIN)


def _data(runs: Sequence[AnyRun]) -> None:
    size_of_all = ring_bytes(list(runs))
    question = f"data of {' '.join(run.path.name for run in runs)}"
    if not asked(question, f"Compare: reads {size(size_of_all)} of rings", costly=size_of_all > COSTLY_BYTES):
        return
    rows, differing = [], []
    for run in runs[1:]:
        found = read_both(runs[0], run)
        rows.append(
            {"Against": run_label(runs[0]), "Run": run_label(run), "Data differ from": found.where, "How": found.how}
        )
        if found.first is not None:
            differing.append(run)
    table(pd.DataFrame(rows), "First step at which the runs' data differ")
    for run in differing:
        if isinstance(runs[0], RunDirectory) and isinstance(run, RunDirectory):
            links.newest_difference(runs[0], run)


def _config(runs: Sequence[AnyRun]) -> None:
    documents = []
    recorded = [isinstance(run, RecordedRunDirectory) for run in runs]
    if any(recorded) and not all(recorded):
        st.caption("Configs of different trainers have different forms; what has one form is compared.")
    for run in runs:
        try:
            document = comparable_recorded(run) if isinstance(run, RecordedRunDirectory) else comparable(run)
            if any(recorded) and not all(recorded):
                ran = document.get("ran", {})
                document = {"experiment": document["experiment"], "environment": ran.get("environment")}
            documents.append(document)
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


def _environments(runs: Sequence[AnyRun]) -> None:
    for run in runs[1:]:
        st.markdown("###### Environments of the newest attempts")
        try:
            environments(*((run_label(each), environment_of(each)) for each in (runs[0], run)))
        except EvidenceError as error:
            error_box("A header does not hold, so environments cannot be compared.", error)


def _cell(value: object) -> str:
    text = str(value)
    return short(text) if text.startswith(DIGEST_PREFIX) else text


def _scores(runs: Sequence[AnyRun]) -> None:
    last, names = [], []
    for run in runs:
        found = _last_scores(run)
        if found.problem:
            error_box("An evaluation's record does not hold.", found.problem)
            return
        names.append(f"{run_label(run)} at {found.step}" if found.scores else run_label(run))
        last.append(found)
    by_run = [{(score.task, score.shots, score.metric): score for score in found.scores} for found in last]
    keys = list(dict.fromkeys(key for scores in by_run for key in scores))
    if not keys:
        st.caption("None of these runs has been evaluated. `treering evaluate` scores the checkpoints of our trainer.")
        return
    judged = [{}, *({_key(each): each for each in _judge(last[0], other)} for other in last[1:])]
    rows = []
    for task, shots, metric in keys:
        row = {"Task": task, "Shots": NOTHING if shots == NOT_SAID else str(shots), "Metric": metric}
        for name, scored, verdicts in zip(names, by_run, judged, strict=True):
            score, verdict = scored.get((task, shots, metric)), verdicts.get((task, shots, metric))
            row[name] = NOTHING if score is None else _with_error(score.value, score.stderr)
            if verdict is not None:
                row[name] += f"  ({_effect(verdict)})"
        rows.append(row)
    table(pd.DataFrame(rows), "Scores with standard errors", rows=14)
    st.caption(
        "± one standard error. In brackets: difference to the first run with its 95 % interval. Beyond noise: the risk "
        "that any score of a comparison is flagged without a difference is at most 5 % (McNemar's exact test or paired "
        "bootstrap over the same items, Holm's correction)."
    )
    doubts = dict.fromkeys(each.doubt for verdicts in judged for each in verdicts.values() if each.doubt)
    for doubt in doubts:
        say(f"{doubt}.")


@dataclass(frozen=True, slots=True)
class _Last:
    """The scores of a run's newest evaluated step; of another trainer, all that it reported of that step."""

    step: int
    scores: list[Score]
    evaluation: Evaluation | None
    problem: EvidenceError | None


def _last_scores(run: AnyRun) -> _Last:
    if isinstance(run, RecordedRunDirectory):
        scored, problem = cached.scored(run)
        step = max((each.step for each in scored), default=0)
        return _Last(step, reported_scores([each for each in scored if each.step == step]), None, problem)
    evaluations, problem = cached.evaluations(run)
    newest = evaluations[-1] if evaluations else None
    return _Last(newest.step, headline_scores(newest), newest, problem) if newest else _Last(0, [], None, problem)


def _judge(first: _Last, second: _Last) -> list[TaskVerdict]:
    if first.evaluation is not None and second.evaluation is not None:
        return judge_evaluations(first.evaluation, second.evaluation)
    return judge_scores(first.scores, second.scores)


def _key(verdict: TaskVerdict) -> tuple[str, int, str]:
    return verdict.first.task, verdict.first.shots, verdict.first.metric


def _effect(verdict: TaskVerdict) -> str:
    effect = verdict.effect
    if math.isnan(effect.low):
        return f"{effect.value:+.3f}"
    return f"{effect.value:+.3f}, {effect.low:+.3f} to {effect.high:+.3f}: {verdict.words}"


def _with_error(value: float, stderr: float) -> str:
    return f"{value:.3f}" if math.isnan(stderr) else f"{value:.3f} ± {stderr:.3f}"
