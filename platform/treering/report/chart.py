"""The loss curve as an SVG: raw loss, held-out loss and the unigram entropy under which context has been learned."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from treering.files import write_durably
from treering.report.facts import Training

_MAX_POINTS = 2000


@dataclass(frozen=True, slots=True)
class Series:
    """One line of the chart: (tokens, nats a token) points and how they are drawn."""

    name: str
    points: Sequence[tuple[int, float]]
    colour: str
    width: float
    dash: tuple[int, ...] = ()


def thin(points: Sequence[tuple[int, float]], limit: int = _MAX_POINTS) -> list[tuple[int, float]]:
    """At most about `limit` points, the smallest and the largest of every stretch among them: no spike is lost."""
    if len(points) <= limit:
        return list(points)
    size = -(-2 * len(points) // limit)
    kept: list[tuple[int, float]] = []
    for start in range(0, len(points), size):
        stretch = points[start : start + size]
        kept += sorted({min(stretch, key=lambda point: point[1]), max(stretch, key=lambda point: point[1])})
    return kept


def loss_chart(training: Training, unigram_entropy: float | None) -> dict[str, Any]:
    """The chart as a Vega-Lite specification.

    Args:
        training: rings of the path.
        unigram_entropy: of the held-out tokens, nats a token; None draws no rule.
    """
    raw = thin([(ring.consumed_tokens, ring.loss) for ring in training.rings])
    heldout = [(ring.consumed_tokens, loss) for ring, loss in training.validation]
    lines = [Series("training loss", raw, "#7a9cc6", 1.0)]
    if heldout:
        lines.append(Series("held-out loss", heldout, "#b3391f", 2.0))
    if unigram_entropy is not None:
        ends = [(raw[0][0], unigram_entropy), (raw[-1][0], unigram_entropy)]
        lines.append(Series("unigram entropy of the held-out text", ends, "#6b6b6b", 1.0, (4, 4)))
    scale = {"domain": [line.name for line in lines], "range": [line.colour for line in lines]}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "width": 640,
        "height": 320,
        "background": "white",
        "layer": [_layer(line, scale) for line in lines],
    }


def _layer(line: Series, scale: dict[str, Any]) -> dict[str, Any]:
    return {
        "data": {"values": [{"tokens": tokens, "loss": loss, "series": line.name} for tokens, loss in line.points]},
        "mark": {"type": "line", "strokeWidth": line.width, "strokeDash": list(line.dash)},
        "encoding": {
            "x": {"field": "tokens", "type": "quantitative", "title": "tokens", "axis": {"format": "~s"}},
            "y": {
                "field": "loss",
                "type": "quantitative",
                "title": "loss, nats a token",
                "scale": {"zero": False},
            },
            "color": {
                "field": "series",
                "type": "nominal",
                "title": None,
                "scale": scale,
                "legend": {"orient": "top", "labelLimit": 300},
            },
        },
    }


def write_chart(path: Path, specification: dict[str, Any]) -> bool:
    """Draws the chart.

    Returns:
        Whether the drawing library is installed and the file was written.
    """
    try:
        import vl_convert  # noqa: PLC0415 - of the dashboard's extra; the report does without
    except ImportError:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    write_durably(path, vl_convert.vegalite_to_svg(specification))
    return True
