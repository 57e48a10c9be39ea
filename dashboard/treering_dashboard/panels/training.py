"""Which panels a run has: training health, throughput, sensors.

The parts of a step are stacked up to its whole: passes (forward and backward), waits (communication), update
(optimizer), data. The measured bubble of a pipeline is beside its ideal; devices with a known peak have an MFU, and an
HFU beside it if it differs.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from treering.foreign import shown
from treering.runlog.metric_catalog import METRICS, Metric, describe
from treering_dashboard.frames.buckets import downsample
from treering_dashboard.frames.curves import Curves, Drawn
from treering_dashboard.frames.rings import VALIDATION, RunFrames
from treering_dashboard.frames.smoothing import WEIGHT, smooth
from treering_dashboard.frames.telemetry import Telemetry, column
from treering_dashboard.panels.axis import Placement
from treering_dashboard.panels.charts import GREY, OKABE_ITO, PLAIN, Line, Panel
from treering_dashboard.panels.text import number, reading, size

HEALTH = ("train/loss", "train/grad_norm", "optim/learning_rate", "optim/global_batch_size")
THROUGHPUT = ("speed/tokens_per_second", "speed/tflops_per_device", "time/step", "time/data_wait")
LAYERS = (
    ("time/forward_backward", "passes"),
    ("time/communication", "waits"),
    ("time/optimizer", "update"),
    ("time/data_wait", "data"),
)
"""Parts of a step from the bottom up, with words that fit a header; they add up to the step."""
SHARES = (
    ("speed/mfu", "MFU", OKABE_ITO[2]), ("speed/hfu", "HFU", OKABE_ITO[4]),
    ("speed/pipeline_bubble", "measured", OKABE_ITO[3]), ("speed/ideal_pipeline_bubble", "ideal", GREY),
)  # fmt: skip

JUDGED = ("train/loss", "train/grad_norm")
REPORTED = ("speed/reported_tokens_per_second", "time/report")
"""What follows from the times at which another trainer reported its steps."""

MOST_OTHERS = 12
"""Metrics of another trainer that a page draws beside those of the catalog."""
FEW_POINTS = 60
"""Curves of so many points are drawn with them."""
LARGE = 1e5

_COLOURS = dict(zip((*HEALTH, *THROUGHPUT), (OKABE_ITO[0],) * 4 + (OKABE_ITO[2],) * 4, strict=True))


def metric_panels(
    frames: RunFrames, keys: Sequence[str], x: Placement, *, show_replaced: bool, smoothed: bool = False
) -> list[Panel]:
    """One panel for each metric that the rings have.

    Args:
        frames: of the run.
        keys: of the metrics.
        x: the page's axis.
        show_replaced: whether steps that a restart did again are drawn.
        smoothed: whether noisy metrics have a moving average over their curve.
    """
    held = [key for key in keys if key in frames.path and not math.isnan(_newest(frames, key))]
    if not held:
        return []
    path = frames.path.drawn(held, [x.column])
    replaced = frames.replaced.drawn(held, [x.column]) if show_replaced and len(frames.replaced) else None
    return [_metric_panel(key, path, replaced, frames, x, smoothed=smoothed and key in JUDGED) for key in held]


def _newest(frames: RunFrames, key: str) -> float:
    """The newest number of a metric, NaN where no ring has one."""
    newest = frames.path.latest(key)
    if not math.isnan(newest):
        return newest
    values = frames.path.points(key)[1]
    return float(values[~np.isnan(values)][-1]) if (~np.isnan(values)).any() else math.nan


def throughput_panels(frames: RunFrames, x: Placement, *, show_replaced: bool) -> list[Panel]:
    """Speed, utilisation, the step's time by part, and the pipeline's bubble beside its ideal, as far as known."""
    is_split = all(key in frames.path for key, _ in LAYERS)
    keys = (*THROUGHPUT[: 2 if is_split else len(THROUGHPUT)], *REPORTED[0 if frames.path.has_tokens else 1 :])
    speed = metric_panels(frames, keys, x, show_replaced=show_replaced)
    utilisation = _share_panel("Share of the peak", frames, ("speed/mfu", "speed/hfu"), x)
    bubble = _share_panel("Pipeline bubble", frames, ("speed/pipeline_bubble", "speed/ideal_pipeline_bubble"), x)
    return [*speed, *utilisation, *([_split_panel(frames, x)] if is_split else []), *bubble]


def other_metrics(frames: RunFrames) -> list[str]:
    """The metrics of another trainer that have no place elsewhere."""
    placed = {*HEALTH, *THROUGHPUT, *REPORTED, VALIDATION}
    return [key for key in frames.path.metrics if key not in placed]


def other_panels(frames: RunFrames, x: Placement, *, show_replaced: bool) -> list[Panel]:
    """Panels of the first of these metrics."""
    return metric_panels(frames, other_metrics(frames)[:MOST_OTHERS], x, show_replaced=show_replaced)


def overview_line(frames: RunFrames, x: Placement) -> Line | None:
    """The curve over the whole run by which a part of it is chosen; None where no metric of health was reported."""
    key = next((key for key in HEALTH if key in frames.path), None)
    return None if key is None else Line(curve(frames.path.drawn([key], [x.column]), key, x), "", "")


def _split_panel(frames: RunFrames, x: Placement) -> Panel:
    """The parts of the step's time on top of each other."""
    drawn = frames.path.drawn([key for key, _label in LAYERS], [x.column])
    top = np.zeros(len(drawn.rows))
    lines = []
    for (key, label), colour in zip(LAYERS, OKABE_ITO, strict=False):
        part = drawn.envelopes[key].last
        below, top = top, top + part
        line = curve(drawn, key, x).assign(y=top, lo=below, hi=top, bad=0, value=part)
        lines.append(Line(line, label, number(frames.path.latest(key), "s"), colour))
    return Panel("Step time by part", "s", tuple(lines), y_format=PLAIN, zero=True)


def _share_panel(title: str, frames: RunFrames, keys: Sequence[str], x: Placement) -> list[Panel]:
    """A panel of shares, none where no ring has one; of two equal ones the first is drawn."""
    shown = {key: stroke for key, *stroke in SHARES if key in keys and key in frames.path}
    first = next(iter(shown), "")
    shown = {key: stroke for key, stroke in shown.items() if key == first or not _same(frames, key, first)}
    if not shown:
        return []
    drawn = frames.path.drawn(list(shown), [x.column])
    lines = tuple(
        Line(
            curve(drawn, key, x),
            label,
            f"{number(100 * frames.path.latest(key))} %",
            colour,
            dashed=colour == GREY,
        )
        for key, (label, colour) in shown.items()
    )
    return [Panel(title, "", lines, y_format=".2~p", zero=True)]


def _same(frames: RunFrames, one: str, other: str) -> bool:
    a, b = (frames.path.series(key).values for key in (one, other))
    return bool(np.allclose(a, b, rtol=1e-9, equal_nan=True))


def smoothed_title(metric: Metric) -> str:
    """The title of a panel of averages, with their weight."""
    return f"{metric.title}, smoothed {WEIGHT}"


def averaged(line: Line) -> list[Line]:
    """Two lines: the curve, drawn faint with its band, and its moving average, whose newest value the header shows."""
    data = line.data
    average = smooth(data["x"].to_numpy(), data["y"].to_numpy(), data["segment"].to_numpy())
    smoothed = data.assign(y=average).drop(columns=["lo", "hi", "bad"])
    faint = replace(line, label="", latest="", muted=True)
    return [faint, replace(line, data=smoothed, latest=number(float(average[-1])), points=False)]


def _metric_panel(
    key: str, path: Drawn, replaced: Drawn | None, frames: RunFrames, x: Placement, *, smoothed: bool
) -> Panel:
    metric = frames.path.describe(key)
    lines = []
    is_loss = key == "train/loss"
    newest = frames.path.latest(key)
    latest = size(newest) if metric.unit == "bytes" else reading(newest, "" if is_loss else metric.unit)
    line = Line(curve(path, key, x), "training" if is_loss else "", latest, _COLOURS.get(key, OKABE_ITO[3]))
    line = replace(line, points=_is_sparse(line.data))
    lines += averaged(line) if smoothed else [line]
    if is_loss:
        lines += validation_lines(frames, x)
    if replaced is not None:
        lines.append(Line(curve(replaced, key, x), "", "", GREY, muted=True))
    return Panel(
        smoothed_title(metric) if smoothed else metric.title,
        metric.unit,
        tuple(lines),
        log=metric.logarithmic and lines[0].has_numbers,
        spikes=_marks(frames, key, x),
        alarms=_alarms(frames, x) if key in JUDGED else None,
        y_format=y_format(metric, path.envelopes[key].hi),
        zero=key in ("optim/global_batch_size", "optim/learning_rate"),
    )


def _is_sparse(line: pd.DataFrame) -> bool:
    """Whether few steps have the metric: then each is drawn as a point."""
    gaps = int((line["y"].isna() & (line["bad"] == 0)).sum())
    points = int(line["y"].notna().sum())
    return points <= min(FEW_POINTS, gaps)


def y_format(metric: Metric, values: Any = ()) -> str:
    """Ticks with prefixes for counts, as powers for learning rates, plain for all else: no milliseconds as `400m`.

    Args:
        metric: what is drawn.
        values: of it; large ones of a metric that the catalog does not know get prefixes.
    """
    if metric.key == "optim/learning_rate":
        return "~e"
    counts = {"speed/tokens_per_second", "speed/reported_tokens_per_second", "optim/global_batch_size"}
    large = metric.key not in METRICS and len(values) > 0 and bool(np.nanmax(np.abs(values), initial=0.0) >= LARGE)
    return "~s" if metric.key in counts or metric.unit == "bytes" or large else PLAIN


def curve(drawn: Drawn, key: str, x: Placement) -> pd.DataFrame:
    """The columns of a line for one metric."""
    found, rows = drawn.envelopes[key], drawn.rows
    tokens = {"tokens": rows["tokens"]} if "tokens" in rows else {}
    return pd.DataFrame(
        {
            "x": x.place(rows),
            "y": found.last,
            "lo": found.lo,
            "hi": found.hi,
            "bad": found.bad,
            "step": rows["step"],
            **tokens,
            "segment": rows["segment"],
        }
    )


def loss_line(measured: pd.DataFrame, x: Placement) -> pd.DataFrame:
    """The columns of a line for held-out losses."""
    found = downsample(measured, ["loss"])
    names = {"loss": "y", "loss_lo": "lo", "loss_hi": "hi", "loss_bad": "bad"}
    columns = ["step", *(["tokens"] if "tokens" in found else []), *names]
    return found[columns].rename(columns=names).assign(x=x.place(found), segment=0)


def validation_lines(frames: RunFrames, x: Placement) -> list[Line]:
    """Blend-weighted held-out loss, empty where none was measured."""
    measured = frames.held_out(facts=[x.column])
    if measured.empty:
        return []
    line = loss_line(measured, x)
    latest = number(float(measured["loss"].iloc[-1]))
    return [Line(line, "validation", latest, OKABE_ITO[1], points=len(line) <= FEW_POINTS)]


def _marks(frames: RunFrames, key: str, x: Placement) -> pd.DataFrame:
    """Alarms of one metric; a value that is not a number has its own mark under the axis.

    Each is drawn on its step's own value: `divergence` and `flat` speak of a median, which no line shows.
    """
    found = [alarm for alarm in frames.alarms if alarm.metric == key and math.isfinite(alarm.value)]
    if not found:
        return pd.DataFrame()
    steps = [alarm.step for alarm in found]
    rows = frames.path.at(steps, [x.column])
    y = frames.path.series(key).values[np.searchsorted(frames.path.fact("step"), steps)]
    if frames.path.describe(key).logarithmic:
        y = np.where(y > 0, y, math.nan)
    return pd.DataFrame(
        {
            "x": x.place(rows).to_numpy(),
            "y": y,
            "step": steps,
            "rule": [alarm.rule for alarm in found],
            "value": [alarm.value for alarm in found],
            "background": [alarm.background for alarm in found],
        }
    ).dropna(subset="y")


def _alarms(frames: RunFrames, x: Placement) -> pd.DataFrame:
    """Every flagged step once, whichever metric gave it away."""
    steps = sorted({alarm.step for alarm in frames.alarms})
    return pd.DataFrame({"x": x.place(frames.path.at(steps, [x.column])).to_numpy()})


def restart_marks(frames: RunFrames, x: Placement) -> pd.DataFrame:
    """One mark for each restart, at its first step that reported something."""
    labels = {
        first: f"attempt {r.attempt} ({r.origin}) from step {r.step}, {r.replaced_steps} steps done again"
        for r in frames.restarts
        if (first := frames.path.first_from(r.step)) is not None
    }
    return _labelled(frames, x, list(labels.items()))


def incident_marks(frames: RunFrames, x: Placement) -> pd.DataFrame:
    """One mark for each incident, at the last step before it; none where that step is not drawn."""
    labels = [
        (each.step, shown(f"{each.title} after step {each.step}: {each.text}")) for _attempt, each in frames.incidents
    ]
    return _labelled(frames, x, labels)


def _labelled(frames: RunFrames, x: Placement, labels: Sequence[tuple[int, str]]) -> pd.DataFrame:
    known = [(step, text) for step, text in labels if len(frames.path.at([step], []))]
    rows = frames.path.at([step for step, _ in known], [x.column])
    return pd.DataFrame({"x": x.place(rows).to_numpy(), "label": [text for _, text in known]})


def sensor_panels(telemetry: Telemetry, path: Curves, x: Placement) -> list[Panel]:
    """A panel for each sensor: the mean over ranks, with a band from the lowest to the highest reading.

    Args:
        telemetry: of the run.
        path: the steps that are drawn.
        x: the page's axis.
    """
    steps = telemetry.steps
    steps = steps[(steps["step"] > path.after) & (steps["step"] <= path.last_drawn)]
    if steps.empty:
        return []
    panels = []
    names = [column(key) for key in telemetry.keys]
    buckets = downsample(steps, [f"{name}{part}" for name in names for part in ("", "_min", "_max")])
    for key, name in zip(telemetry.keys, names, strict=True):
        metric, read = describe(key), buckets[name].dropna()  # a step may have the reading of another sensor alone
        if read.empty:
            continue
        line = pd.DataFrame(
            {
                "x": x.place(buckets),
                "y": buckets[name],
                "lo": buckets[f"{name}_min_lo"],
                "hi": buckets[f"{name}_max_hi"],
                "bad": 0,
                "step": buckets["step"],
                **({"tokens": buckets["tokens"]} if "tokens" in buckets else {}),
                "segment": buckets["segment"],
            }
        )
        last = float(read.iloc[-1])
        latest = size(last) if metric.unit == "bytes" else number(last, metric.unit)
        drawn = Line(line, "", latest, OKABE_ITO[3])
        panels.append(Panel(metric.title, metric.unit, (drawn,), y_format=y_format(metric)))
    return panels
