"""What a board of panels is to the browser: a head as JSON, and numbers that follow it.

The numbers are arrays with names. A board that grew sends the head and the ends of its arrays alone: the head says how
much of each array the browser keeps. The browser asks for the whole where it lacks what it should keep.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from treering.foreign import shown
from treering_dashboard.panels.axis import Placement
from treering_dashboard.panels.charts import Board, Line, Panel

Arrays = dict[str, npt.NDArray[np.float64]]

_FORMATS = {"~s": "prefix", ".2~p": "percent"}
_CUT_SHARE = 0.01
"""Of the values of a panel, how many its robust limits may cut at each end."""


def board_head(board: Board, x: Placement) -> tuple[dict[str, Any], Arrays]:
    """The head of a board and its arrays by name; equal arrays have one name.

    Args:
        board: what is drawn.
        x: the page's axis.
    """
    arrays = _Named()
    panels = [_panel(panel, arrays, robust=board.robust) for panel in board.panels]
    numbers = iter(range(len(panels)))
    head = {
        "groups": [{"title": title, "panels": [next(numbers) for _ in group]} for title, group in board.groups.items()],
        "panels": panels,
        "x": {
            "title": x.title,
            "column": x.column,
            "unit": x.unit,
            "format": "plain" if x.axis.span else "prefix",
            "extent": _widened(x.extent),
            "window": None if x.window is None else _widened(x.window),
        },
        "restarts": _labelled(board.marks.restarts),
        "incidents": _labelled(board.marks.incidents),
        "at": board.at,
        "alt": shown(board.alt),
        "rest": shown(board.rest),
        "overview": _overview(board),
        "whole": None if board.overview is None else _columns(board.overview, ("x", "y"), arrays),
    }
    return head, arrays.arrays


@dataclass(frozen=True, slots=True)
class Sent:
    """What a browser has of a board.

    Attributes:
        token: of head and arrays.
        arrays: by name.
        data: the bytes that were sent last.
    """

    token: str
    arrays: Arrays
    data: bytes


def encoded(head: Mapping[str, Any], arrays: Arrays, before: Sent | None) -> Sent:
    """What the browser gets: the same bytes again where nothing changed, else the head and the new ends of the arrays.

    Args:
        head: of the board.
        arrays: of the board.
        before: what the browser has; None: nothing.
    """
    seen = hashlib.blake2b(json.dumps(head, allow_nan=False).encode(), digest_size=8)
    for name, array in arrays.items():
        seen.update(f"{name} {len(array)}".encode() + array.tobytes())
    token = seen.hexdigest()
    if before is not None and before.token == token:
        return before
    old = before.arrays if before is not None else {}
    kept = {name: _same_start(old.get(name), array) for name, array in arrays.items()}
    sizes = {name: (kept[name], len(array) - kept[name]) for name, array in arrays.items()}
    base = before.token if before is not None else ""
    text = json.dumps({**head, "arrays": sizes, "base": base, "token": token}, allow_nan=False).encode()
    rest = [array[kept[name] :].tobytes() for name, array in arrays.items()]
    return Sent(token, arrays, b"".join([len(text).to_bytes(4, "little"), text, *rest]))


def decoded(data: bytes) -> tuple[dict[str, Any], Arrays]:
    """The head and the arrays of what `encoded` made for a browser that has nothing."""
    size = int.from_bytes(data[:4], "little")
    head = json.loads(data[4 : 4 + size])
    values, found, at = np.frombuffer(data[4 + size :]), {}, 0
    for name, (_, count) in head["arrays"].items():
        found[name], at = values[at : at + count], at + count
    return head, found


def robust_limits(panel: Panel) -> tuple[tuple[float, float] | None, str]:
    """The y of a panel without its most extreme hundredths, and a text of what is not shown; None where all is."""
    parts = [line.data[name].to_numpy(np.float64) for line in panel.lines for name in _drawn_columns(line)]
    values = np.concatenate([np.zeros(0), *parts])
    values = values[np.isfinite(values)]
    values = np.log10(values[values > 0]) if panel.log else values
    if not len(values):
        return None, ""
    low, high = (float(np.quantile(values, share)) for share in (_CUT_SHARE, 1 - _CUT_SHARE))
    low, high = low - (high - low) / 2, high + (high - low) / 2
    if high <= low or (values.min() >= low and values.max() <= high):
        return None, ""
    limits = (max(low, float(values.min())), min(high, float(values.max())))
    bottom, top = (10.0**limit for limit in limits) if panel.log else limits
    above, below = (_outside(panel, limit, above=above) for limit, above in ((top, True), (bottom, False)))
    texts = [
        f"{_points(count)} {word}"
        for count, word in ((above, f"above {top:.4g}"), (below, f"below {bottom:.4g}"))
        if count
    ]
    return (bottom, top), f"{' and '.join(texts)} not shown" if texts else ""


def _points(count: int) -> str:
    return f"{count} point{'' if count == 1 else 's'}"


def _outside(panel: Panel, limit: float, *, above: bool) -> int:
    """How many drawn points have a part on the far side of a limit."""
    found = 0
    for line in panel.lines:
        name = ("hi" if above else "lo") if "hi" in line.data else "y"
        values = line.data[name].to_numpy(np.float64)
        found += int(((values > limit) if above else (values < limit)).sum())
    return found


def _drawn_columns(line: Line) -> list[str]:
    return [name for name in ("y", "lo", "hi") if name in line.data]


class _Named:
    """Arrays by name; an array that was seen gets the name that it has."""

    def __init__(self) -> None:
        self.arrays: Arrays = {}
        self._seen: dict[bytes, str] = {}

    def name(self, wanted: str, values: npt.NDArray[np.float64]) -> str:
        key = hashlib.blake2b(values.tobytes(), digest_size=16).digest()
        found = self._seen.setdefault(key, wanted)
        self.arrays.setdefault(found, values)
        return found


def _panel(panel: Panel, arrays: _Named, *, robust: bool) -> dict[str, Any]:
    limits, cut = robust_limits(panel) if robust else (None, "")
    return {
        "title": shown(panel.title),
        "unit": shown(panel.unit),
        "log": panel.log,
        "zero": panel.zero,
        "format": _FORMATS.get(panel.y_format, "plain"),
        "height": panel.height,
        "limits": limits,
        "cut": cut,
        "note": shown(panel.note),
        "alarms": [] if panel.alarms is None or panel.alarms.empty else panel.alarms["x"].tolist(),
        "spikes": _spikes(panel),
        "lines": [_line(f"{panel.title}/{number}", line, arrays) for number, line in enumerate(panel.lines)],
    }


def _line(name: str, line: Line, arrays: _Named) -> dict[str, Any]:
    data = line.data
    has_band = "lo" in data and bool((data["hi"] > data["lo"]).any())
    wanted = ["x", "y", "step", "segment", *(["tokens"] if "tokens" in data else [])]
    wanted += [*(("lo", "hi") if has_band else ()), *(["value"] if "value" in data else [])]
    if "bad" in data and (data["bad"] > 0).any():
        wanted.append("bad")
    return {
        "label": shown(line.label),
        "latest": shown(line.latest),
        "colour": line.colour,
        "points": line.points,
        "muted": line.muted,
        "dashed": line.dashed,
        "level": line.level,
        "layer": "value" in data,
        **_columns(line, wanted, arrays, name),
    }


def _columns(line: Line, names: Sequence[str], arrays: _Named, of: str = "overview") -> dict[str, str]:
    columns = {name: np.ascontiguousarray(line.data[name].to_numpy(np.float64)) for name in names}
    return {name: arrays.name(f"{of}/{name}", values) for name, values in columns.items()}


def _overview(board: Board) -> tuple[int, int] | None:
    """The panel and the line that the overview draws: the first that is not muted."""
    for number, panel in enumerate(board.panels):
        for index, line in enumerate(panel.lines):
            if not line.muted and len(line.data) > 1:
                return number, index
    return None


def _spikes(panel: Panel) -> list[tuple[float, str, float]]:
    if panel.spikes is None or panel.spikes.empty:
        return []
    rows = panel.spikes.to_dict("records")
    return [
        (row["x"], f"{row['rule']} at step {row['step']}: {row['value']:.3g} against {row['background']:.3g}", row["y"])
        for row in rows
        if math.isfinite(row["x"])
    ]


def _labelled(marks: Any) -> list[tuple[float, str]]:
    return list(zip(marks["x"].tolist(), marks["label"].tolist(), strict=True)) if len(marks) else []


def _same_start(old: npt.NDArray[np.float64] | None, new: npt.NDArray[np.float64]) -> int:
    """How many numbers at the start of two arrays are equal, bit by bit."""
    if old is None:
        return 0
    size = min(len(old), len(new))
    differs = np.flatnonzero(old[:size].view(np.int64) != new[:size].view(np.int64))
    return int(differs[0]) if len(differs) else size


def _widened(extent: tuple[float, float]) -> tuple[float, float]:
    """An extent of some width: a run of one step has none."""
    low, high = extent
    return (low, high) if high > low else (low - 0.5, high + 0.5)
