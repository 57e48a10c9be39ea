"""What a board is on its way to the browser: arrays once, changes alone, robust limits that say what they cut."""

import hashlib
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from treering_dashboard.panels.axis import AXES, Placement
from treering_dashboard.panels.board import PROGRAM
from treering_dashboard.panels.charts import OKABE_ITO, Board, Line, Marks, Panel, on_page
from treering_dashboard.panels.palette import PALETTE
from treering_dashboard.panels.panel_files import numbers_of
from treering_dashboard.panels.wire import board_head, decoded, encoded, robust_limits

PUBLISHED = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}
"""sha256 of the files of uPlot 1.6.32 on npm."""

NOTHING = Marks(pd.DataFrame({"x": [], "label": []}), pd.DataFrame({"x": [], "label": []}))


def placement(steps: int) -> Placement:
    return Placement(AXES["step"], 1.0, "Step", "", (1.0, float(steps)))


def line(values: list[float], **columns: list[float]) -> Line:
    steps = np.arange(1.0, len(values) + 1)
    return Line(pd.DataFrame({"x": steps, "y": values, "step": steps, "segment": 0, **columns}), "", f"{values[-1]}")


def board(*lines: Line) -> Board:
    return Board({"Health": [Panel(f"Panel {number}", "", (each,)) for number, each in enumerate(lines)]}, NOTHING)


def test_uplot_is_as_its_authors_publish_it() -> None:
    assert {name: hashlib.sha256((PROGRAM / name).read_bytes()).hexdigest() for name in PUBLISHED} == PUBLISHED
    assert "The MIT License" in (PROGRAM / "uPlot.LICENSE").read_text()


def test_the_browser_gets_every_number_and_equal_columns_once() -> None:
    head, arrays = board_head(board(line([3.0, 2.0, 1.0]), line([5.0, 6.0, 7.0])), placement(3))
    read, found = decoded(encoded(head, arrays, None).data)
    first, second = (panel["lines"][0] for panel in read["panels"])
    assert first["x"] == second["x"] == first["step"], "one array, three uses"
    assert found[first["y"]].tolist() == [3.0, 2.0, 1.0]
    assert found[second["y"]].tolist() == [5.0, 6.0, 7.0]
    assert len(found) == 4, "steps, segments and two curves"


def test_a_board_that_grew_sends_its_ends_alone_and_one_that_did_not_the_same_bytes() -> None:
    values = np.linspace(9, 2, 1000).tolist()
    first = encoded(*board_head(board(line(values)), placement(1000)), None)
    same = encoded(*board_head(board(line(values)), placement(1000)), first)
    assert same is first
    grown = encoded(*board_head(board(line([*values, 1.5])), placement(1001)), first)
    size = int.from_bytes(grown.data[:4], "little")
    assert np.frombuffer(grown.data[4 + size :]).tolist() == [1001.0, 1.5, 0.0], "one row: step, value, segment"
    head, _ = decoded(encoded(*board_head(board(line(values)), placement(1000)), None).data)
    assert head["base"] == ""
    assert decoded(grown.data[: 4 + size] + bytes(8 * 3003))[0]["base"] == first.token


def test_robust_limits_say_how_many_points_they_cut() -> None:
    values = [2.0 + 0.01 * (number % 7) for number in range(1000)]
    values[500:503] = [20.0, 30.0, 12.5]
    panel = Panel("Loss", "", (line(values),))
    limits, text = robust_limits(panel)
    assert limits is not None
    assert limits[0] == 2.0
    assert 2.06 < limits[1] < 2.2
    assert text == f"3 points above {limits[1]:.4g} not shown"
    assert robust_limits(Panel("Loss", "", (line([2.0 + number / 100 for number in range(1000)]),))) == (None, "")
    head, _ = board_head(Board({"": [panel]}, NOTHING, robust=True), placement(1000))
    assert head["panels"][0]["cut"] == text


def test_robust_limits_of_a_log_axis_are_of_its_decades() -> None:
    panel = Panel("Norm", "", (line([1.0 + (number % 5) / 10 for number in range(500)] + [1e6, 1e-6]),), log=True)
    limits, text = robust_limits(panel)
    assert limits == pytest.approx((1.0 * (1 / 1.4) ** 0.5, 1.4 * 1.4**0.5))
    assert text == f"1 point above {limits[1]:.4g} and 1 point below {limits[0]:.4g} not shown"


def test_lines_have_the_colours_of_the_page() -> None:
    drawn = board(*(replace(line([1.0, 2.0]), colour=colour) for colour in OKABE_ITO[:2]))
    shown = {of: [each.colour for panel in on_page(drawn, of).panels for each in panel.lines] for of in PALETTE}
    assert shown == {"light": ["#0072B2", "#B07800"], "dark": ["#56B4E9", "#E69F00"]}


def test_a_panel_as_a_table_has_every_drawn_number() -> None:
    panel = Panel("Loss", "nat/token", (line([3.0, 2.0], lo=[2.5, 1.5], hi=[3.5, 2.5]),))
    found = numbers_of(panel, placement(2))
    assert found.to_dict("list") == {
        "curve": ["Loss", "Loss"],
        "Step": [1.0, 2.0],
        "last": [3.0, 2.0],
        "step": [1.0, 2.0],
        "segment": [0, 0],
        "lowest": [2.5, 1.5],
        "highest": [3.5, 2.5],
    }
