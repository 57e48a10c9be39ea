"""Curves of several runs over one x: one a run, or one a group with a band from its lowest to its highest seed."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from treering.metrics.compare import headline
from treering.runlog.find import AnyRun
from treering.runlog.metric_catalog import Metric, describe
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering_dashboard.frames import cached
from treering_dashboard.frames.curves import Drawn
from treering_dashboard.frames.groups import band
from treering_dashboard.frames.rings import VALIDATION, RunFrames
from treering_dashboard.frames.scores import NOT_SAID, reported_frame, score_frame, shots_text
from treering_dashboard.panels.axis import Placement, XAxis
from treering_dashboard.panels.board import draw_board
from treering_dashboard.panels.charts import PLAIN, Board, Line, Marks, Panel, Stroke, strokes
from treering_dashboard.panels.download import download_menu
from treering_dashboard.panels.panel_files import downloads
from treering_dashboard.panels.scores import on_path
from treering_dashboard.panels.text import number
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
_MOST_TASKS = 6


@dataclass(frozen=True, slots=True)
class Member:
    """A run that is drawn."""

    run: AnyRun
    frames: RunFrames


Drawings = Mapping[str, Sequence[Member]]
"""What has a curve of its own, by its label: a run, or the runs of a group."""


def curves(drawings: Drawings, axis: XAxis, *, smoothed: bool) -> None:
    """Draws training and held-out loss, task scores, schedule and speed."""
    frames = [member.frames for members in drawings.values() for member in members]
    x = Placement.of(axis, [frame.path for frame in frames])
    nothing = pd.DataFrame({"x": [], "label": []})
    left, right = _keys(frames)
    drawn = {
        id(frame): frame.path.drawn([key for key in (*left, *right) if key in frame.path], [x.column])
        for frame in frames
    }
    health = [_panel(key, drawings, drawn, x, smoothed=smoothed and key in _NOISY) for key in left]
    groups = {
        "Training": [*health[:1], _validation_panel(drawings, x), *health[1:]],
        "Task scores": _score_panels(drawings, x),
        "Schedule and speed": [_panel(key, drawings, drawn, x, smoothed=smoothed and key in _NOISY) for key in right],
    }
    shown = {title: [panel for panel in panels if panel.lines] for title, panels in groups.items()}
    alt = f"{', '.join(panel.title for panels in shown.values() for panel in panels)} of {', '.join(drawings)}"
    board = Board({title: panels for title, panels in shown.items() if panels}, Marks(nothing, nothing), alt)
    if board.panels:
        draw_board(board, x, key="compare")
        download_menu("compare", downloads(board, x))


def _keys(frames: Sequence[RunFrames]) -> tuple[list[str], list[str]]:
    """Metrics of both columns: those of the catalog, then what at least two other trainers reported."""
    left, right = list(LEFT), list(RIGHT)
    held = Counter(key for frame in frames if frame.recorded for key in frame.path.metrics)
    others = [key for key, number_of in held.items() if number_of > 1 and key not in {*LEFT, *RIGHT, VALIDATION}]
    for index, key in enumerate(others[:MOST_OTHERS]):
        (left, right)[index % 2].append(key)
    return left, right


def _panel(key: str, drawings: Drawings, drawn: Mapping[int, Drawn], x: Placement, *, smoothed: bool) -> Panel:
    lines: list[Line] = []
    metrics: list[Metric] = []
    values = [0.0]
    for (name, members), stroke in zip(drawings.items(), strokes(len(drawings)), strict=True):
        frames = [each.frames for each in members if key in each.frames.path and len(each.frames.path)]
        if not frames:
            continue
        metrics += [frame.path.describe(key) for frame in frames]
        data = band([curve(drawn[id(frame)], key, x) for frame in frames])
        values += data["hi"].tolist()
        latest = frames[0].path.latest(key) if len(frames) == 1 else _last(data)
        line = Line(data, name, number(latest), stroke.colour, dashed=stroke.dashed)
        lines += averaged(line) if smoothed else [line]
    if not metrics:
        return Panel("", "", ())
    metric = metrics[0]
    unit = metric.unit if all(each.unit == metric.unit for each in metrics) else ""
    title = smoothed_title(metric) if smoothed else metric.title
    log = metric.logarithmic and any(line.has_numbers for line in lines)
    return Panel(title, unit, tuple(lines), log=log, y_format=y_format(metric, values))


def _validation_panel(drawings: Drawings, x: Placement) -> Panel:
    metric = describe(VALIDATION)
    lines = []
    recorded = False
    for (name, members), stroke in zip(drawings.items(), strokes(len(drawings)), strict=True):
        measured = [each.frames.held_out(facts=[x.column]) for each in members]
        if all(len(each) for each in measured):
            data = band([loss_line(each, x) for each in measured])
            lines.append(_points(data, name, stroke))
        recorded |= any(each.frames.recorded for each in members)
    return Panel(metric.title, "" if recorded else metric.unit, tuple(lines), y_format=PLAIN)


def _score_panels(drawings: Drawings, x: Placement) -> list[Panel]:
    """A panel for each task, with the fewest examples that it was scored with; at most `_MOST_TASKS`.

    Another trainer does not say how many there were: its scores are drawn beside, with a note.
    """
    scores = {name: [_scores(each, x) for each in members] for name, members in drawings.items()}
    every = pd.concat([each for parts in scores.values() for each in parts], ignore_index=True)
    panels = []
    for task in list(dict.fromkeys(every["task"]))[:_MOST_TASKS]:
        of_task = every[every["task"] == task]
        said = of_task.loc[of_task["shots"] != NOT_SAID, "shots"]
        shots, metric = said.min() if len(said) else NOT_SAID, headline(list(dict.fromkeys(of_task["metric"])))
        lines, unsaid = [], []
        for (name, parts), stroke in zip(scores.items(), strokes(len(scores)), strict=True):
            data = [
                each[(each["task"] == task) & each["shots"].isin((shots, NOT_SAID)) & (each["metric"] == metric)]
                for each in parts
            ]
            if all(len(each) for each in data):
                unsaid += [name] if len(said) and any((each["shots"] == NOT_SAID).any() for each in data) else []
                lines.append(_points(band([_measured(each, x) for each in data]), name, stroke))
        title = " ".join(part for part in (f"{task}:", shots_text(int(shots)), metric) if part)
        note = f"The number of examples is not said of {', '.join(unsaid)}." if unsaid else ""
        panels.append(Panel(title, "", tuple(lines), y_format=".2~f", note=note))
    return panels


def _scores(member: Member, x: Placement) -> pd.DataFrame:
    """The scores of a run at the steps of its path."""
    if isinstance(member.run, RecordedRunDirectory):
        found = reported_frame(cached.scored(member.run)[0])
    else:
        found = score_frame(cached.evaluations(member.run)[0])
    return on_path(found, member.frames, x)


def _measured(scores: pd.DataFrame, x: Placement) -> pd.DataFrame:
    """The columns of a line for the scores of one task; the band is one standard error up and down."""
    scores = scores.sort_values("step")
    error = scores["stderr"].fillna(0)
    columns = {"x": x.place(scores), "y": scores["value"], "lo": scores["value"] - error, "hi": scores["value"] + error}
    return pd.DataFrame({**columns, "step": scores["step"]}).assign(segment=0)


def _points(data: pd.DataFrame, name: str, stroke: Stroke) -> Line:
    return Line(data, name, number(_last(data)), stroke.colour, points=len(data) <= FEW_POINTS, dashed=stroke.dashed)


def _last(data: pd.DataFrame) -> float:
    return float(data["y"].iloc[-1]) if len(data) else float("nan")
