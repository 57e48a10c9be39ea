"""Panels: small charts of one unit each over one x, with one crosshair through all of them.

A panel shows the last value of every bucket as its line and minimum to maximum as a band; restarts cut the line.
Okabe-Ito colours in a fixed order, so that a colour means the same on every page.

- The server cuts a curve into at most 1000 buckets. Each keeps minimum, maximum, last value and how many values were no
  numbers. A zoom is cut anew.
- The pointer shows every panel's value at its x; where a curve has no point there, its nearest one with the step.
- A restart is a dashed rule and ends the line. Steps that it did again are grey and off by default ("Replaced steps").
- Alarms are triangles on the metric that shows them, and thin rules through loss and gradient norm. NaN, and zero or
  below on a log axis, are crosses above the x axis.
- Incidents are diamonds at the upper edge of every panel, at the last step before each, those of attempts off the path
  too; their table is below the curves.
- Scores are points with a band of one standard error up and down.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import pandas as pd

from treering_dashboard.panels.palette import PALETTE, Theme

OKABE_ITO: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C8C8C")

SPIKE: Final = "#D55E00"
GREY: Final = "#8C8C8C"
PANEL_HEIGHT: Final = 100

PLAIN: Final = ".3~g"
"""Ticks of plain numbers."""


class Stroke(NamedTuple):
    """How a curve is drawn among others."""

    colour: str
    dashed: bool


@dataclass(frozen=True, slots=True)
class Line:
    """One curve.

    Attributes:
        data: columns x, y, step, tokens and segment; lo and hi where there is a band; bad where values may be no
            numbers; value where the curve is the upper edge of a layer, from lo to hi, that is as thick as value.
        label: in the panel's header; empty for the only curve of a panel.
        latest: its newest value as text.
        colour: of line and label.
        points: whether each row is drawn as a point as well.
        muted: drawn thin, without header and tooltip.
        dashed: distinguishes curves that share a colour.
        level: whether it is one number, of no step of this run.
    """

    data: pd.DataFrame
    label: str
    latest: str
    colour: str = OKABE_ITO[0]
    points: bool = False
    muted: bool = False
    dashed: bool = False
    level: bool = False

    @property
    def has_numbers(self) -> bool:
        """Whether a point of it can be drawn."""
        return bool(self.data["y"].notna().any())


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart of a stack.

    Attributes:
        title: what is drawn.
        unit: of the y axis, empty for pure numbers.
        lines: its curves.
        log: logarithmic y.
        spikes: flagged points, columns x, y, step, rule, value, background.
        alarms: x of every flagged step of the run, drawn as thin rules through panels that belong together.
        y_format: d3 format of the ticks.
        zero: whether y starts at zero.
        note: below the panel.
    """

    title: str
    unit: str
    lines: tuple[Line, ...]
    log: bool = False
    spikes: pd.DataFrame | None = None
    alarms: pd.DataFrame | None = None
    y_format: str = "~s"
    zero: bool = False
    note: str = ""
    height: int = field(default=PANEL_HEIGHT)


@dataclass(frozen=True, slots=True)
class Marks:
    """What happened to a run beside its numbers, drawn through all panels of a stack.

    Attributes:
        restarts: columns x and label; a dashed rule each.
        incidents: columns x and label; a diamond at the panel's upper edge each.
    """

    restarts: pd.DataFrame
    incidents: pd.DataFrame


def strokes(num_curves: int) -> list[Stroke]:
    """Colours in their fixed order; where there are more curves than colours, the next round is dashed."""
    return [Stroke(OKABE_ITO[i % len(OKABE_ITO)], dashed=i // len(OKABE_ITO) % 2 == 1) for i in range(num_curves)]


@dataclass(frozen=True, slots=True)
class Board:
    """Panels over one x with one crosshair.

    Attributes:
        groups: panels by the title over them; an empty title is not drawn.
        marks: of restarts and incidents.
        alt: what the panels show, for readers who do not see them.
        rest: what the line above the panels says while the pointer is elsewhere.
        robust: whether the y axes leave out the most extreme hundredths.
        overview: the curve of the whole run, where the panels show a part of it; else their first curve is it.
        at: the x of the step that was clicked.
    """

    groups: Mapping[str, Sequence[Panel]]
    marks: Marks
    alt: str = ""
    rest: str = ""
    robust: bool = False
    overview: Line | None = None
    at: float | None = None

    @property
    def panels(self) -> list[Panel]:
        """All panels in order."""
        return [panel for group in self.groups.values() for panel in group]


def on_page(board: Board, of: Theme) -> Board:
    """The board in the colours of a theme: Okabe and Ito's own are too light in part for a white page, or too dark."""
    colours = dict(zip(OKABE_ITO, PALETTE[of], strict=True))

    def placed(line: Line) -> Line:
        return replace(line, colour=colours.get(line.colour, line.colour))

    groups = {
        title: [replace(panel, lines=tuple(map(placed, panel.lines))) for panel in group]
        for title, group in board.groups.items()
    }
    return replace(board, groups=groups, overview=board.overview and placed(board.overview))
