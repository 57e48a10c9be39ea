"""Which panels a run has: training health, evaluation, throughput.

The parts of a step are stacked up to its whole: passes (forward and backward), waits (communication), update
(optimizer), data. The measured bubble of a pipeline is beside its ideal; devices with a known peak have an MFU, and an
HFU beside it if it differs.
"""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from treering.foreign import shown
from treering.runlog.metric_catalog import describe
from treering_dashboard.frames.buckets import downsample
from treering_dashboard.frames.rings import RunFrames, column
from treering_dashboard.frames.scores import headline
from treering_dashboard.frames.telemetry import Telemetry
from treering_dashboard.panels.axis import Placement
from treering_dashboard.panels.charts import GREY, OKABE_ITO, Line, Panel, Stroke, strokes
from treering_dashboard.panels.text import number, size

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

_COLOURS = dict(zip((*HEALTH, *THROUGHPUT), (OKABE_ITO[0],) * 4 + (OKABE_ITO[2],) * 4, strict=True))


def metric_panels(frames: RunFrames, keys: Sequence[str], x: Placement, *, show_replaced: bool) -> list[Panel]:
    """One panel for each metric that the rings hold."""
    held = [key for key in keys if column(key) in frames.path and frames.path[column(key)].notna().any()]
    columns = [column(key) for key in held]
    positive = [column(key) for key in held if describe(key).logarithmic]
    path = downsample(frames.path, columns, positive=positive)
    replaced = None
    if show_replaced and len(frames.replaced):
        replaced = downsample(frames.replaced, [c for c in columns if c in frames.replaced], positive=positive)
    return [_metric_panel(key, path, replaced, frames, x) for key in held]


def throughput_panels(frames: RunFrames, x: Placement, *, show_replaced: bool) -> list[Panel]:
    """Speed, utilisation, the step's time by part, and the pipeline's bubble beside its ideal, as far as known."""
    is_split = "time_communication" in frames.path
    speed = metric_panels(frames, THROUGHPUT[: 2 if is_split else len(THROUGHPUT)], x, show_replaced=show_replaced)
    utilisation = _share_panel("Share of the peak", frames, ("speed/mfu", "speed/hfu"), x)
    bubble = _share_panel("Pipeline bubble", frames, ("speed/pipeline_bubble", "speed/ideal_pipeline_bubble"), x)
    return [*speed, *utilisation, *([_split_panel(frames, x)] if is_split else []), *bubble]


def _split_panel(frames: RunFrames, x: Placement) -> Panel:
    """The parts of the step's time on top of each other."""
    names = [column(key) for key, _label in LAYERS]
    buckets = downsample(frames.path, names)
    top = 0.0 * buckets[names[0]]
    lines = []
    for (_key, label), name, colour in zip(LAYERS, names, OKABE_ITO, strict=False):
        below, top = top, top + buckets[name]
        line = curve(buckets, name, x).assign(y=top, lo=below, hi=top, bad=0, value=buckets[name])
        lines.append(Line(line, label, number(float(frames.path[name].iloc[-1]), "s"), colour))
    return Panel("Step time by part", "s", tuple(lines), y_format=".3~g", zero=True)


def _share_panel(title: str, frames: RunFrames, keys: Sequence[str], x: Placement) -> list[Panel]:
    """A panel of shares, none where no ring has one; of two equal ones the first is drawn."""
    shown = {column(key): stroke for key, *stroke in SHARES if key in keys and column(key) in frames.path}
    first = next(iter(shown), "")
    shown = {name: stroke for name, stroke in shown.items() if name == first or not _same(frames, name, first)}
    if not shown:
        return []
    buckets = downsample(frames.path, list(shown))
    lines = tuple(
        Line(
            curve(buckets, name, x),
            label,
            f"{number(100 * float(frames.path[name].iloc[-1]))} %",
            colour,
            dashed=colour == GREY,
        )
        for name, (label, colour) in shown.items()
    )
    return [Panel(title, "", lines, y_format=".2~p", zero=True)]


def _same(frames: RunFrames, one: str, other: str) -> bool:
    return bool(np.allclose(frames.path[one], frames.path[other], rtol=1e-9, equal_nan=True))


def _metric_panel(
    key: str, path: pd.DataFrame, replaced: pd.DataFrame | None, frames: RunFrames, x: Placement
) -> Panel:
    metric, name = describe(key), column(key)
    lines = []
    is_loss = key == "train/loss"
    latest = number(float(frames.path[name].iloc[-1]), "" if is_loss else metric.unit)
    lines.append(Line(curve(path, name, x), "training" if is_loss else "", latest, _COLOURS[key]))
    if is_loss:
        lines += validation_lines(frames, x)
    if replaced is not None and name in replaced:
        lines.append(Line(curve(replaced, name, x), "", "", GREY, muted=True))
    return Panel(
        metric.title,
        metric.unit,
        tuple(lines),
        log=metric.logarithmic,
        spikes=_marks(frames, key, x),
        alarms=_alarms(frames, x) if key in JUDGED else None,
        y_format=y_format(key),
        zero=key in ("optim/global_batch_size", "optim/learning_rate"),
    )


def y_format(key: str) -> str:
    """Ticks with prefixes for counts, as powers for learning rates, plain for all else: no milliseconds as `400m`."""
    if key == "optim/learning_rate":
        return "~e"
    counted = key in ("speed/tokens_per_second", "optim/global_batch_size") or describe(key).unit == "bytes"
    return "~s" if counted else ".3~g"


def curve(buckets: pd.DataFrame, name: str, x: Placement) -> pd.DataFrame:
    """The columns of a line for one metric of a downsampled frame."""
    return pd.DataFrame(
        {
            "x": x.place(buckets),
            "y": buckets[name],
            "lo": buckets[f"{name}_lo"],
            "hi": buckets[f"{name}_hi"],
            "bad": buckets[f"{name}_bad"],
            "step": buckets["step"],
            "tokens": buckets["tokens"],
            "segment": buckets["segment"],
        }
    )


def validation_lines(frames: RunFrames, x: Placement) -> list[Line]:
    """Blend-weighted held-out loss, empty where none was measured."""
    measured = frames.validation[frames.validation["corpus"] == ""]
    if measured.empty:
        return []
    data = downsample(measured, ["loss"])
    line = curve(data, "loss", x).assign(segment=0)
    return [Line(line, "validation", number(float(measured["loss"].iloc[-1])), OKABE_ITO[1], points=len(line) <= 60)]


def _marks(frames: RunFrames, key: str, x: Placement) -> pd.DataFrame:
    """Alarms of one metric; a value that is not a number has its own mark under the axis.

    Each is drawn on its step's own value: `divergence` and `flat` speak of a median, which no line shows.
    """
    found = [alarm for alarm in frames.alarms if alarm.metric == key and math.isfinite(alarm.value)]
    rows = frames.path.set_index("step", drop=False).loc[[alarm.step for alarm in found]]
    y = rows[column(key)].to_numpy(dtype=float)
    if describe(key).logarithmic:
        y = np.where(y > 0, y, math.nan)
    return pd.DataFrame(
        {
            "x": x.place(rows).to_numpy(),
            "y": y,
            "step": [alarm.step for alarm in found],
            "rule": [alarm.rule for alarm in found],
            "value": [alarm.value for alarm in found],
            "background": [alarm.background for alarm in found],
        }
    ).dropna(subset="y")


def _alarms(frames: RunFrames, x: Placement) -> pd.DataFrame:
    """Every flagged step once, whichever metric gave it away."""
    steps = sorted({alarm.step for alarm in frames.alarms})
    return pd.DataFrame({"x": x.place(frames.path.set_index("step", drop=False).loc[steps]).to_numpy()})


def restart_marks(frames: RunFrames, x: Placement) -> pd.DataFrame:
    """One mark for each restart, at its first step."""
    steps = frames.path.set_index("step", drop=False)
    known = [restart for restart in frames.restarts if restart.step in steps.index]
    rows = steps.loc[[restart.step for restart in known]]
    labels = [
        f"attempt {r.attempt} ({r.origin}) from step {r.step}, {r.replaced_steps} steps done again" for r in known
    ]
    return pd.DataFrame({"x": x.place(rows).to_numpy(), "label": labels})


def incident_marks(frames: RunFrames, x: Placement) -> pd.DataFrame:
    """One mark for each incident, at the last step before it; none where that step is not drawn."""
    steps = frames.path.set_index("step", drop=False)
    known = [incident for _attempt, incident in frames.incidents if incident.step in steps.index]
    rows = steps.loc[[incident.step for incident in known]]
    labels = [shown(f"{incident.title} after step {incident.step}: {incident.text}") for incident in known]
    return pd.DataFrame({"x": x.place(rows).to_numpy(), "label": labels})


def on_path(frame: pd.DataFrame, frames: RunFrames) -> pd.DataFrame:
    """Rows of evaluations with the x's of their step's ring; steps off the path are left out."""
    facts = frames.path[["step", "samples", "wall_s", "process_s"]]
    return frame.merge(facts, on="step", how="inner")


def validation_panel(frames: RunFrames, x: Placement) -> list[Panel]:
    """Held-out loss by corpus as measured during training, none where there is only the blend's."""
    metric = describe("validation/loss")
    by_corpus = frames.validation[frames.validation["corpus"] != ""]
    lines = []
    corpora = list(dict.fromkeys(by_corpus["corpus"]))
    for corpus, stroke in zip(corpora, strokes(len(corpora)), strict=True):
        measured = by_corpus[by_corpus["corpus"] == corpus]
        line = curve(downsample(measured, ["loss"]), "loss", x).assign(segment=0)
        latest = number(float(measured["loss"].iloc[-1]))
        lines.append(Line(line, corpus, latest, stroke.colour, dashed=stroke.dashed))
    return [Panel(f"{metric.title} by corpus", metric.unit, tuple(lines), y_format=".3~g")] if lines else []


def score_panels(scores: pd.DataFrame, perplexity: pd.DataFrame, frames: RunFrames, x: Placement) -> list[Panel]:
    """A panel for each task with a curve for each number of shots, and one for perplexity by corpus."""
    panels = []
    placed = on_path(scores, frames)
    for task in dict.fromkeys(placed["task"]):
        of_task = placed[placed["task"] == task]
        metric = headline(list(dict.fromkeys(of_task["metric"])))
        drawn = of_task[of_task["metric"] == metric]
        shots = sorted(set(drawn["shots"]))
        lines = tuple(
            _points(drawn[drawn["shots"] == number_of], "value", f"{number_of}-shot", stroke, x)
            for number_of, stroke in zip(shots, strokes(len(shots)), strict=True)
        )
        panels.append(Panel(f"{task}: {metric}", "", lines, y_format=".2~f"))
    placed = on_path(perplexity, frames)
    if len(placed):
        corpora = list(dict.fromkeys(placed["corpus"]))
        lines = tuple(
            _points(placed[placed["corpus"] == corpus], "perplexity", corpus, stroke, x)
            for corpus, stroke in zip(corpora, strokes(len(corpora)), strict=True)
        )
        panels.append(Panel("Held-out perplexity", "", lines, log=True, y_format="~s"))
    return panels


def sensor_panels(telemetry: Telemetry, first_step: int, x: Placement) -> list[Panel]:
    """A panel for each sensor: the mean over ranks, with a band from the lowest to the highest reading.

    Args:
        telemetry: of the run.
        first_step: earlier ones are not drawn.
        x: the page's axis.
    """
    steps = telemetry.steps[telemetry.steps["step"] >= first_step]
    if steps.empty:
        return []
    panels = []
    names = [column(key) for key in telemetry.keys]
    buckets = downsample(steps, [f"{name}{part}" for name in names for part in ("", "_min", "_max")])
    for key, name in zip(telemetry.keys, names, strict=True):
        metric = describe(key)
        line = curve(buckets, name, x).assign(lo=buckets[f"{name}_min_lo"], hi=buckets[f"{name}_max_hi"], bad=0)
        last = float(buckets[name].iloc[-1])
        latest = size(last) if metric.unit == "bytes" else number(last, metric.unit)
        panels.append(Panel(metric.title, metric.unit, (Line(line, "", latest, OKABE_ITO[3]),), y_format=y_format(key)))
    return panels


def _points(data: pd.DataFrame, name: str, label: str, stroke: Stroke, x: Placement) -> Line:
    """A curve of few measured points; with a standard error its band is one of it up and down."""
    data = data.sort_values("step")
    columns = {"x": x.place(data), "y": data[name], "step": data["step"], "tokens": data["tokens"]}
    if "stderr" in data and data["stderr"].notna().any():
        columns |= {"lo": data[name] - data["stderr"], "hi": data[name] + data["stderr"]}
    frame = pd.DataFrame(columns).assign(segment=0)
    latest = number(float(frame["y"].iloc[-1]))
    return Line(frame, label, latest, stroke.colour, points=True, dashed=stroke.dashed)
