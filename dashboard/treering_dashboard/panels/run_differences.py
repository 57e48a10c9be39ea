"""What differs between runs, as tables: what they were fed, config, environment, scores, held-out loss by corpus."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
import streamlit as st

from treering.config.canonical import DIGEST_PREFIX, short
from treering.errors import EvidenceError
from treering.metrics.compare import Score, comparable, comparable_recorded, differences, headline_scores
from treering.metrics.environments import environment_of
from treering.metrics.setting_words import setting_words
from treering.metrics.verdicts import TaskVerdict, judge_evaluations, judge_scores
from treering.runlog.find import AnyRun
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering.runlog.records import Evaluation
from treering_dashboard.frames import cached
from treering_dashboard.frames.scores import NOT_SAID, reported_scores
from treering_dashboard.panels.answer import error_box
from treering_dashboard.panels.choice import run_label
from treering_dashboard.panels.definitions import definition_table
from treering_dashboard.panels.environments import environments
from treering_dashboard.panels.foreign import label, say
from treering_dashboard.panels.reads import read_both
from treering_dashboard.panels.tables import table
from treering_dashboard.panels.text import NOTHING

_SEEDS = ("recipe.seed", "blend.seed", "recipe.blend", "experiment")
"""What differs between the runs of a group, or follows from that."""

Named = Mapping[str, AnyRun]
"""Runs by the names that a table gives them, first the one that others are compared with."""


def data_table(named: Named) -> list[AnyRun]:
    """The first step at which the data of each run differ from those of the first run.

    Returns:
        The runs whose data differ.
    """
    runs = list(named.values())
    names, rows, differing = list(named), [], []
    for name, run in zip(names[1:], runs[1:], strict=True):
        found = read_both(runs[0], run)
        rows.append({"Against": names[0], "Run": name, "Data differ from": found.where, "How": found.how})
        if found.first is not None:
            differing.append(run)
    table(pd.DataFrame(rows), "First step at which the runs' data differ")
    return differing


def config_table(named: Named, *, seeds: bool) -> None:
    """The settings that differ, each with what it is in words.

    Args:
        named: the runs; of a group, one of its runs.
        seeds: whether seeds count.
    """
    runs, documents = list(named.values()), []
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
    found = [each for each in differences(documents) if seeds or each.path not in _SEEDS]
    if not found:
        st.caption("No difference: these runs have one config, and ran with the same layout, code and environment.")
        return
    rows = [
        {
            "What": setting_words(each.path) or NOTHING,
            "Path": each.path,
            **{name: _cell(value) for name, value in zip(named, each.values, strict=True)},
        }
        for each in found
    ]
    table(pd.DataFrame(rows), "Settings that differ, with their dotted paths", rows=14)


def environment_tables(named: Named) -> None:
    """What differs between the environment of the first run and those of the others."""
    (first, base), *others = named.items()
    for name, run in others:
        with st.expander(
            f"Environments of the newest attempts: {label(first)} and {label(name)}", expanded=len(others) == 1
        ):
            try:
                environments((first, environment_of(base)), (name, environment_of(run)))
            except EvidenceError as error:
                error_box("A header does not hold, so environments cannot be compared.", error)


def _cell(value: object) -> str:
    text = str(value)
    return short(text) if text.startswith(DIGEST_PREFIX) else text


def held_out_table(runs: Sequence[AnyRun]) -> None:
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
    st.caption(
        "nat/token. Another seed moves these numbers too, so a difference may be noise. "
        "`treering train --sweep` trains more seeds."
    )


def score_table(runs: Sequence[AnyRun]) -> None:
    """Scores of the newest evaluated step of each run, judged item by item against the first run."""
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
    definition_table([(name, each.evaluation) for name, each in zip(names, last, strict=True) if each.evaluation])
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
    newest, problem = cached.newest_evaluation(run)
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
