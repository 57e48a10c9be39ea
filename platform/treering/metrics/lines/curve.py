"""The loss of a run as a few points, for a sparkline: the largest loss of each stretch, so that a spike is seen."""

import json
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from treering.config.canonical import digest_bytes, digest_json
from treering.runlog.columns.path import PathColumns

POINTS: Final = 24
BARS: Final = "▁▂▃▄▅▆▇█"
GAP: Final = "·"

_FINE: Final = 100 * POINTS
"""Stretches that are read of a long path, whose rings are not read one by one."""
_CURVE_FILE: Final = "curve.json"


def curve_of(losses: Sequence[float], points: int = POINTS) -> tuple[float, ...]:
    """At most `points` points: the largest finite loss of each stretch of equal length; NaN where it has none."""
    number = min(points, len(losses))
    bounds = [len(losses) * each // number for each in range(number + 1)] if number else []
    stretches = (losses[first:last] for first, last in pairwise(bounds))
    return tuple(max((each for each in stretch if math.isfinite(each)), default=math.nan) for stretch in stretches)


def curve_by_columns(columns: PathColumns, metric: str) -> tuple[float, ...]:
    """The same of a path, kept beside its columns: a list that finds it loads no Arrow.

    Raises:
        EvidenceError: a ring does not hold.
    """
    key = digest_json([POINTS, metric, columns.last_step, columns.digest(columns.last_step)])
    digest, _, text = (columns.derived(_CURVE_FILE) or "").partition("\n")
    if text and digest == digest_bytes(text.encode()):
        kept = json.loads(text)
        if kept["key"] == key:
            return tuple(kept["curve"])
    curve = curve_of(_highest(columns, metric))
    text = json.dumps({"key": key, "curve": curve})
    columns.keep_derived(_CURVE_FILE, f"{digest_bytes(text.encode())}\n{text}")
    return curve


def _highest(columns: PathColumns, metric: str) -> list[float]:
    """The largest losses of at most `_FINE` stretches; all losses where one of these is infinite."""
    chart = columns.chart(metric, _FINE)
    highest: list[float] = chart.maximum[chart.count > 0].tolist()
    return columns.history(metric).values.tolist() if any(map(math.isinf, highest)) else highest


def bars(curve: Sequence[float], width: int = POINTS) -> str:
    """A curve as characters, from its lowest point to its highest: `█▅▃▂▁`.

    Args:
        curve: the points.
        width: most characters.
    """
    points = curve_of(curve, width)
    known = [each for each in points if math.isfinite(each)]
    if not known:
        return GAP * len(points)
    low, high = min(known), max(known)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round((each - low) * scale)] if math.isfinite(each) else GAP for each in points)
