"""Panels of evaluation: scores of checkpoints with published ones beside them, perplexity, held-out loss by corpus."""

import math
from collections.abc import Sequence

import pandas as pd

from treering.metrics.compare import Score, headline
from treering.metrics.references import Reference, beside
from treering.runlog.metric_catalog import describe
from treering_dashboard.frames.rings import VALIDATION, RunFrames
from treering_dashboard.frames.scores import shots_text
from treering_dashboard.panels.axis import Placement
from treering_dashboard.panels.charts import PLAIN, Line, Panel, Stroke, strokes
from treering_dashboard.panels.text import number
from treering_dashboard.panels.training import loss_line


def on_path(frame: pd.DataFrame, frames: RunFrames, x: Placement) -> pd.DataFrame:
    """Rows of evaluations with the x of their step's ring; steps off the path are left out."""
    if frame.empty:
        return frame
    facts = frames.path.at(sorted(set(frame["step"])), [x.column])
    return frame.merge(facts[[name for name in facts if name == "step" or name not in frame]], on="step", how="inner")


def validation_panel(frames: RunFrames, x: Placement) -> list[Panel]:
    """Held-out loss by corpus as measured during training, none where there is only the blend's."""
    metric = describe(VALIDATION)
    lines = []
    corpora = frames.held_out_corpora
    for corpus, stroke in zip(corpora, strokes(len(corpora)), strict=True):
        measured = frames.held_out(corpus, [x.column])
        if len(measured):
            latest = number(float(measured["loss"].iloc[-1]))
            lines.append(Line(loss_line(measured, x), corpus, latest, stroke.colour, dashed=stroke.dashed))
    return [Panel(f"{metric.title} by corpus", metric.unit, tuple(lines), y_format=PLAIN)] if lines else []


def score_panels(
    scores: pd.DataFrame,
    perplexity: pd.DataFrame,
    frames: RunFrames,
    x: Placement,
    references: Sequence[Reference] = (),
) -> list[Panel]:
    """A panel for each task with a curve for each number of shots, and one for perplexity by corpus.

    Args:
        scores: of the evaluated checkpoints.
        perplexity: of the same.
        frames: of the run.
        x: the page's axis.
        references: publications, each of whose scores is a dashed level where task, shots and metric are the same.
    """
    panels = []
    placed = on_path(scores, frames, x)
    for task in dict.fromkeys(placed["task"]):
        of_task = placed[placed["task"] == task]
        metric = headline(list(dict.fromkeys(of_task["metric"])))
        drawn = of_task[of_task["metric"] == metric]
        shots = sorted(set(drawn["shots"]))
        lines = tuple(
            _points(drawn[drawn["shots"] == number_of], "value", shots_text(number_of), stroke, x)
            for number_of, stroke in zip(shots, strokes(len(shots)), strict=True)
        )
        levels, note = _published(task, metric, shots, references, x)
        panels.append(Panel(f"{task}: {metric}", "", (*lines, *levels), y_format=".2~f", note=note))
    placed = on_path(perplexity, frames, x)
    if len(placed):
        corpora = list(dict.fromkeys(placed["corpus"]))
        lines = tuple(
            _points(placed[placed["corpus"] == corpus], "perplexity", corpus, stroke, x)
            for corpus, stroke in zip(corpora, strokes(len(corpora)), strict=True)
        )
        panels.append(Panel("Held-out perplexity", "", lines, log=True, y_format="~s"))
    return panels


def _published(
    task: str, metric: str, shots: Sequence[int], references: Sequence[Reference], x: Placement
) -> tuple[list[Line], str]:
    """A level for each published score of a task, in the colour of the same number of shots, and where it is from."""
    colours = {number_of: stroke.colour for number_of, stroke in zip(shots, strokes(len(shots)), strict=True)}
    own = [Score(task, number_of, metric, math.nan, math.nan, 0) for number_of in shots]
    lines, sources = [], {}
    for found in beside(own, references):
        ends = pd.DataFrame({"x": x.window or x.extent, "y": found.published, "step": 0, "segment": 0})
        label = f"{found.reference.model}, {shots_text(found.own.shots)}"
        colour = colours[found.own.shots]
        lines.append(Line(ends, label, number(found.published), colour, dashed=True, level=True))
        sources[found.reference.model] = (
            f"{found.reference.model}: {found.reference.citation}; {found.reference.caveat}."
        )
    return lines, "  ".join(sources.values())


def _points(data: pd.DataFrame, name: str, label: str, stroke: Stroke, x: Placement) -> Line:
    """A curve of few measured points; with a standard error its band is one of it up and down."""
    data = data.sort_values("step")
    columns = {"x": x.place(data), "y": data[name], "step": data["step"]}
    if "tokens" in data and data["tokens"].notna().all():
        columns["tokens"] = data["tokens"]
    if "stderr" in data and data["stderr"].notna().any():
        columns |= {"lo": data[name] - data["stderr"], "hi": data[name] + data["stderr"]}
    frame = pd.DataFrame(columns).assign(segment=0)
    latest = number(float(frame["y"].iloc[-1]))
    return Line(frame, label, latest, stroke.colour, points=True, dashed=stroke.dashed)
