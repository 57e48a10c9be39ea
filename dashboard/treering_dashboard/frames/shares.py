"""Metrics that no ring holds: computed from those that it holds, whenever they are drawn.

MFU, HFU and the pipeline's bubble follow from an attempt's header and the model's shape; the time between two reports
of another trainer, and the tokens in that time, from the times of its reports.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from treering.errors import EvidenceError
from treering.metrics.efficiency import bubble_share, has_ideal_bubble, peak_shares
from treering.metrics.flops import ModelShape
from treering.runlog.ancestry import PathSegment
from treering.runlog.columns.rows import Flags, Floats, Series
from treering.runlog.records import AttemptLayout
from treering_dashboard.frames.curves import Curves
from treering_dashboard.frames.path_rows import RowsOfStretch
from treering_dashboard.frames.stretch import Compute, Stretch


def shares_of(segment: PathSegment, names: list[str], formula: str | None) -> dict[str, Compute]:
    """The shares that can be computed of an attempt's rings; none where the run's config or header does not hold.

    Args:
        segment: of the path.
        names: the metrics that the rings hold.
        formula: name of the formula of their TFLOP/s.
    """
    found: dict[str, Compute] = {}
    try:
        resolved, header = segment.run.resolved, segment.attempt.header
    except EvidenceError:
        return found
    shares = peak_shares(header, ModelShape.of(resolved.recipe.model, resolved.blend.sequence_length), formula)
    if shares is not None and "speed/tflops_per_device" in names:
        found |= {"speed/mfu": _Times("speed/tflops_per_device", shares[0])}
        found |= {"speed/hfu": _Times("speed/tflops_per_device", shares[1])}
    if {"time/pipeline", "time/pipeline_bubble"} <= set(names):
        found["speed/pipeline_bubble"] = _bubble
    if has_ideal_bubble(header):
        found["speed/ideal_pipeline_bubble"] = _IdealBubble(header.layout)
    return found


@dataclass(frozen=True, slots=True)
class _Times:
    """A metric times a number."""

    key: str
    factor: float

    def __call__(self, curves: Curves, stretch: Stretch, after: int, last_step: int) -> Series:
        series = curves.read(stretch, self.key, after, last_step)
        return Series(series.values * self.factor, series.known)


@dataclass(frozen=True, slots=True)
class _IdealBubble:
    """The smallest share of a step that a pipeline's stages wait."""

    layout: AttemptLayout

    def __call__(self, curves: Curves, stretch: Stretch, after: int, last_step: int) -> Series:
        sizes = curves.read(stretch, "optim/global_batch_size", after, last_step)
        per_replica: Any = self.layout.micro_batches(sizes.values)  # type: ignore[arg-type]  # of an array
        return Series(bubble_share(per_replica, self.layout.pipeline), sizes.known)  # type: ignore[arg-type]


def _bubble(curves: Curves, stretch: Stretch, after: int, last_step: int) -> Series:
    parts = ("pipeline_bubble", "pipeline")
    waited, whole = (curves.read(stretch, f"time/{part}", after, last_step) for part in parts)
    known = waited.known & whole.known & (whole.values > 0)
    return Series(np.divide(waited.values, whole.values, out=np.full(len(known), np.nan), where=known), known)


def report_time(curves: Curves, stretch: Stretch, after: int, last_step: int) -> Series:
    """Seconds a step between two reports of another trainer."""
    rows = curves.rows_of(stretch, after, last_step)
    before = rows.before.step if rows.before else rows.steps[:1] - 1
    seconds = _seconds(rows, stretch) / np.maximum(1, np.diff(rows.steps, prepend=before))
    known = _has_report_before(rows)
    seconds[~known] = np.nan  # the first one waits for imports, data and compilation
    return Series(seconds, known)


def report_speed(curves: Curves, stretch: Stretch, after: int, last_step: int) -> Series:
    """Tokens a second between two reports of another trainer."""
    rows = curves.rows_of(stretch, after, last_step)
    seconds, tokens = _seconds(rows, stretch), rows.tokens
    known = tokens.known & (seconds > 0) & _has_report_before(rows)
    return Series(np.divide(tokens.values, seconds, out=np.full(len(known), np.nan), where=known), known)


def _seconds(rows: RowsOfStretch, stretch: Stretch) -> Floats:
    """Seconds since the report before each, of the first one since the attempt began."""
    return np.diff(rows.ended_at, prepend=rows.before.ended_at if rows.before else stretch.started_at)


def _has_report_before(rows: RowsOfStretch) -> Flags:
    known = np.ones(len(rows.steps), bool)
    known[:1] = rows.before is not None
    return known
