"""Metrics that no ring holds: computed from those that it holds, whenever they are drawn.

MFU, HFU and the pipeline's bubble follow from an attempt's header and the model's shape; the time between two reports
of another trainer, and the tokens in that time, from the times of its reports.
"""

from typing import Any

import numpy as np

from treering.errors import EvidenceError
from treering.metrics.efficiency import bubble_share, has_ideal_bubble, peak_shares
from treering.metrics.flops import ModelShape
from treering.runlog.ancestry import PathSegment
from treering.runlog.columns.rows import Series
from treering_dashboard.frames.curves import Curves
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
        found |= {"speed/mfu": _times("speed/tflops_per_device", shares[0])}
        found |= {"speed/hfu": _times("speed/tflops_per_device", shares[1])}
    if {"time/pipeline", "time/pipeline_bubble"} <= set(names):
        found["speed/pipeline_bubble"] = _bubble
    if has_ideal_bubble(header):

        def ideal(curves: Curves, stretch: Stretch, after: int) -> Series:
            sizes = curves.read(stretch, "optim/global_batch_size", after)
            per_replica: Any = header.layout.micro_batches(sizes.values)  # type: ignore[arg-type]  # of an array
            return Series(bubble_share(per_replica, header.layout.pipeline), sizes.known)  # type: ignore[arg-type]

        found["speed/ideal_pipeline_bubble"] = ideal
    return found


def _times(key: str, factor: float) -> Compute:
    def scaled(curves: Curves, stretch: Stretch, after: int) -> Series:
        series = curves.read(stretch, key, after)
        return Series(series.values * factor, series.known)

    return scaled


def _bubble(curves: Curves, stretch: Stretch, after: int) -> Series:
    waited, whole = (curves.read(stretch, f"time/{part}", after) for part in ("pipeline_bubble", "pipeline"))
    known = waited.known & whole.known & (whole.values > 0)
    return Series(np.divide(waited.values, whole.values, out=np.full(len(known), np.nan), where=known), known)


def report_time(curves: Curves, stretch: Stretch, after: int) -> Series:
    """Seconds a step between two reports of another trainer."""
    facts = curves.facts_of(stretch)
    start = int(np.searchsorted(facts["step"], after, "right"))
    steps = np.maximum(1, np.diff(facts["step"], prepend=facts["step"][:1] - 1))
    seconds = np.diff(facts["ended_at"], prepend=stretch.started_at) / steps
    seconds[:1] = np.nan  # the first one waits for imports, data and compilation
    return Series(seconds[start:], np.arange(len(seconds))[start:] > 0)


def report_speed(curves: Curves, stretch: Stretch, after: int) -> Series:
    """Tokens a second between two reports of another trainer."""
    facts = curves.facts_of(stretch)
    start = int(np.searchsorted(facts["step"], after, "right"))
    seconds = np.diff(facts["ended_at"], prepend=stretch.started_at)
    tokens = facts["tokens"]
    known = tokens.known & (seconds > 0) & (np.arange(len(seconds)) > 0)
    speed = np.divide(tokens.values, seconds, out=np.full(len(known), np.nan), where=known)
    return Series(speed[start:], known[start:])
