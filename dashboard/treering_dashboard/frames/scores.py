"""Evaluations of a run as frames: one row a score, one row a corpus's perplexity."""

import math
from collections.abc import Sequence
from typing import Final

import pandas as pd

from treering.metrics.compare import Score, scores
from treering.runlog.journal import Scored
from treering.runlog.records import Evaluation

_SCORE_COLUMNS = ["step", "tokens", "task", "shots", "metric", "value", "stderr", "items"]
_PERPLEXITY_COLUMNS = ["step", "tokens", "corpus", "perplexity", "loss"]
NOT_SAID: Final = -1
"""Shots of a score that another trainer reported."""
STDERR: Final = "_stderr"


def score_frame(evaluations: Sequence[Evaluation]) -> pd.DataFrame:
    """Every score of every evaluated checkpoint."""
    rows = [
        (evaluation.step, evaluation.consumed_tokens, s.task, s.shots, s.metric, s.value, s.stderr, s.items)
        for evaluation in evaluations
        for s in scores(evaluation)
    ]
    return pd.DataFrame(rows, columns=_SCORE_COLUMNS)


def reported_scores(scored: Sequence[Scored]) -> list[Score]:
    """What another trainer reported, flat; `acc_stderr` is the standard error of `acc`."""
    return [
        Score(each.task, NOT_SAID, metric, value, each.metrics.get(f"{metric}{STDERR}", math.nan), 0)
        for each in scored
        for metric, value in each.metrics.items()
        if not metric.endswith(STDERR)
    ]


def reported_frame(scored: Sequence[Scored]) -> pd.DataFrame:
    """Every score that another trainer reported; of one step, task and metric, the last."""
    rows = [
        (each.step, math.nan, s.task, s.shots, s.metric, s.value, s.stderr, s.items)
        for each in scored
        for s in reported_scores([each])
    ]
    frame = pd.DataFrame(rows, columns=_SCORE_COLUMNS).drop(columns="tokens")
    return frame.drop_duplicates(["step", "task", "metric"], keep="last").sort_values("step", kind="stable")


def shots_text(shots: int) -> str:
    """`0-shot`; empty where the trainer does not say."""
    return "" if shots == NOT_SAID else f"{shots}-shot"


def perplexity_frame(evaluations: Sequence[Evaluation]) -> pd.DataFrame:
    """Held-out perplexity of every evaluated checkpoint by corpus."""
    rows = [
        (evaluation.step, evaluation.consumed_tokens, corpus, found["perplexity"], found["loss"])
        for evaluation in evaluations
        for corpus, found in evaluation.perplexity.items()
    ]
    return pd.DataFrame(rows, columns=_PERPLEXITY_COLUMNS)
