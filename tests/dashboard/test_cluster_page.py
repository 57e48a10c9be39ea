"""The page Cluster: devices of every node, ranks over the steps, and the rank that is behind, named with its reason."""

import json
from pathlib import Path

import pandas as pd
import pytest
from dashboard_page import page, table, texts
from fleet_telemetry import write_fleet

from treering.runlog.directory import RunDirectory
from treering_dashboard.frames.cluster import cluster
from treering_dashboard.panels.cluster import grid_map, steps_map
from treering_dashboard.panels.download import csv, svg
from treering_dashboard.panels.heat_maps import chart, numbers

SLOW = 1234  # device 2 of node 154


def laid(lay_run, nodes: int, slow: int, share: float = 1.05) -> RunDirectory:
    run = RunDirectory(lay_run(stop_at=110, ranks=8 * nodes, step_s=2.4))
    attempt = run.attempts()[0]
    ended_at = [ring.ended_at for ring in run.path_rings()]
    write_fleet(
        Path(attempt.path / "telemetry"), [at + 0.01 for at in ended_at[-40:]], nodes=nodes, slow=slow, share=share
    )
    return run


@pytest.mark.slow
def test_of_2240_ranks_the_slow_one_is_named_with_its_reason(lay_run) -> None:
    run = laid(lay_run, 280, SLOW)
    app = page("cluster", run=run.path.name)
    shown = texts(app)
    assert f"Rank {SLOW} (dgx154 device 2) computes 5." in shown
    assert "clock slowed by heat or power supply in 100 % of the readings; SM clock 1,215 MHz, median 1,410" in shown
    assert "2\u2009240 ranks" in shown
    worst = table(app, "Above peers")
    assert worst["Rank"].tolist()[0] == str(SLOW)
    assert worst[""].tolist() == ["▲ behind"] + [""] * 19, "no other rank is called slow"
    assert table(app, "Fault")["Rank"].tolist() == ["rank 3", f"rank {SLOW}"]


def test_equal_ranks_are_called_even(lay_run) -> None:
    shown = texts(page("cluster", run=laid(lay_run, 2, 0, share=1.0).path.name))
    assert "No rank stands out among 16 ranks" in shown


@pytest.mark.slow
def test_heat_maps_are_files_too_and_colours_end_before_an_outlier(lay_run) -> None:
    run = laid(lay_run, 90, 5, share=1.5)
    found = cluster(run, alive=False)
    grid, steps = grid_map(found, "device/temperature"), steps_map(found, "rank/compute")
    assert len(steps.frame) == 90 * 40, "the slowest rank of each node"
    assert steps.frame.loc[steps.frame["x"] == "dgx000", "rank"].tolist() == [5] * 40
    assert (grid.high < 86, grid.outside) == (True, 1)
    assert csv(numbers(grid)).decode().splitlines()[0] == "node,device of the node,value,rank,device,reading"
    assert csv(numbers(grid)).decode().splitlines()[1 + 90 * 5] == "dgx000,5,86.0,rank 5,device 5,86 °C"
    assert svg(chart(steps)).count(b"<path aria-label=") >= 90 * 40


def test_no_cell_of_a_file_begins_a_formula() -> None:
    frame = pd.DataFrame({"a": ["=1+1", "+x", "a=b"], "b": [-1.5, 2.0, 3.0]})
    assert csv(frame).decode().splitlines() == ["a,b", "'=1+1,-1.5", "'+x,2.0", "a=b,3.0"]


def test_a_run_without_readings_says_what_helps(lay_run) -> None:
    run = lay_run(steps=60)
    shown = texts(page("cluster", run=run.name))
    assert "No readings on record" in shown
    assert "treering doctor" in shown


def test_of_deleted_readings_it_says_that_none_is_left(lay_run) -> None:
    run = lay_run(steps=60, ranks=1)
    file = run / "attempts" / "0001" / "telemetry" / "rank-0.jsonl"
    file.parent.mkdir()
    file.write_text("")
    assert "attempt 1  ·  no reading left" in texts(page("cluster", run=run.name))
    moment = list(RunDirectory(run).path_rings())[-1].ended_at
    file.write_text(json.dumps({"time": moment, "rank": 0, "values": {"device/power": 300.0}}) + "\n")
    assert "attempt 1  ·  1 rank  ·  read " in texts(page("cluster", run=run.name))


def test_an_unknown_quantity_and_one_without_readings_are_told_apart(lay_run) -> None:
    run = laid(lay_run, 2, 0).path.name
    assert "No such quantity" in texts(page("cluster", run=run, quantity="Colour"))
    shown = texts(page("cluster", run=run, quantity="Memory temperature"))
    assert "Memory temperature: no device of this run has readings of it." in shown
    assert "Every device, newest minute: Computing by rank" in shown
