"""The Run page's sensors: devices, processors, and the ranks that compute longest."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from dashboard_charts import panel
from dashboard_page import page, texts

from treering.runlog.directory import RunDirectory
from treering.runlog.telemetry import reading
from treering.runlog.telemetry.events import append_event
from treering.runlog.telemetry.ingest import ingest
from treering.runlog.telemetry.live import LiveWriter
from treering_dashboard.frames import telemetry
from treering_dashboard.frames.rings import read_run


@pytest.mark.slow
def test_sensors_of_devices_stand_on_the_steps(lay_run) -> None:
    run = lay_run(steps=60, device="cuda")
    rings = list(RunDirectory(run).attempts()[0].rings())
    app = page("run", run=run.name)
    power = panel(app, "Power")
    band = line = power.lines[0]
    assert line["x"].tolist() == [ring.consumed_tokens for ring in rings]
    assert line["y"].tolist() == [310.0 + ring.step for ring in rings]
    assert (band["lo"].iloc[0], band["hi"].iloc[0]) == (301.0, 321.0)
    assert power.labels == [f"{310 + rings[-1].step} W"]
    assert panel(app, "Device memory").labels == ["65 GB"]
    band = panel(app, "Computing by rank").lines[0]
    assert (set(band["lo"]), set(band["hi"])) == ({0.3}, {0.35}), "the highest is the rank that others wait for"
    assert "Mean over 2 ranks" in texts(app)
    assert "device/temperature: none, not supported" in texts(app)


def readings_of(run: Path, ranks: Iterable[int], slowest: int) -> None:
    """Telemetry of many ranks, three readings in the last steps; one rank computes longer than all others."""
    folder = run / "attempts" / "0001" / "telemetry"
    folder.mkdir()
    ended_at = [ring.ended_at for ring in RunDirectory(run).path_rings()][-3:]
    for rank in ranks:
        compute = 0.9 if rank == slowest else 0.3 + 0.0001 * (rank % 100)
        values = {"rank/step": 1.0, "rank/compute": compute, "rank/communication": 1 - compute, "rank/tflops": 1.0}
        rows = [{"time": moment - 0.05, "rank": rank, "values": values} for moment in ended_at]
        (folder / f"rank-{rank}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.slow
def test_every_rank_of_2240_is_read_and_the_slowest_is_named(lay_run) -> None:
    """Rank 2,239 is the last in order of numbers, and far from the first 64 in order of texts."""
    run = lay_run(stop_at=110, ranks=2240)
    readings_of(run, range(2240), slowest=2239)
    app = page("run", run=run.name)
    band = panel(app, "Computing by rank").lines[0]
    assert (band["hi"].max(), band["lo"].min()) == (0.9, 0.3)
    shown = texts(app)
    assert "Mean over 2\u2009240 ranks" in shown
    assert "Rank 2239 computes longest, 0.900 s a step; rank 2200 shortest, 0.300 s; of 2\u2009240 ranks" in shown


def test_ranks_without_readings_are_counted(lay_run) -> None:
    run = lay_run(stop_at=110, ranks=2240)
    readings_of(run, range(64), slowest=63)
    shown = texts(page("run", run=run.name))
    assert "Mean over 64 of 2\u2009240 ranks" in shown
    assert "Rank 63 computes longest" in shown


@pytest.mark.slow
def test_a_long_file_says_how_much_of_it_is_read(lay_run, monkeypatch) -> None:
    monkeypatch.setattr(reading, "OLD_ALL_BYTES", 2 * 8192)
    run = lay_run(device="cpu")
    shown = texts(page("run", run=run.name))
    assert "Earlier readings are left out" in shown


@pytest.mark.slow
def test_sensors_of_the_processor_without_a_device(lay_run) -> None:
    app = page("run", run=lay_run(steps=60, device="cpu").name, steps="last 100")
    assert set(panel(app, "CPU of the node").lines[0]["y"]) == {50.0}
    assert panel(app, "Memory of the rank").labels == ["700 MB"]
    assert "device: none, no device" in texts(app)


def test_the_newest_reading_of_a_sensor_may_be_before_the_last_step(lay_run) -> None:
    run = lay_run(steps=60)
    folder = run / "attempts" / "0001" / "telemetry"
    folder.mkdir()
    before, last = [ring.ended_at for ring in RunDirectory(run).path_rings()][-2:]
    rows = [
        {"time": before, "rank": 0, "values": {"device/power": 300.0, "device/temperature": 50.0}},
        {"time": last, "rank": 0, "values": {"device/temperature": 60.0}},
    ]
    (folder / "rank-0.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    app = page("run", run=run.name)
    assert (panel(app, "Power").labels, panel(app, "Temperature").labels) == (["300 W"], ["60 °C"])


def test_a_run_without_readings_says_so(lay_run) -> None:
    assert "No readings on record." in texts(page("run", run=lay_run(steps=60).name))


@pytest.mark.slow
def test_readings_of_parts_and_live_files_are_drawn_and_earlier_ones_by_the_minute(lay_run, monkeypatch) -> None:
    run = RunDirectory(lay_run(steps=60, step_s=10.0))
    folder = run.attempts()[0].telemetry.path
    ended_at = [ring.ended_at for ring in run.path_rings()]
    count, live = len(ended_at), 15
    writer = LiveWriter(folder, 0)
    for number, moment in enumerate(ended_at):
        values = {"device/power": [None, 300.0 + number, 340.0 + number], "rank/compute": [None, 0.3, 0.4]}
        writer.append(moment - 0.05, [-1, 0, 1], [-1, 0, 1], values)
        if number in (29, count - live - 1):
            writer.close_segment()
            ingest(folder, {0})
    append_event(folder, 0, {"time": 1.0, "host": "dgx1", "reasons": {"device/energy": "not supported"}, "lost": 3})
    whole = telemetry.read_telemetry(run, read_run(run).path)
    assert whole.steps["device_power"].tolist() == [320.0 + number for number in range(count)]
    assert (whole.steps["device_power_min"].iloc[3], whole.steps["device_power_max"].iloc[3]) == (303.0, 343.0)
    assert (whole.ranks, whole.dropped, whole.by_minute, whole.damaged) == (2, 3, 0, 0)
    assert whole.reasons == {"device/energy": "not supported"}
    monkeypatch.setattr(telemetry, "MOST_ROWS", 10)
    newest = telemetry.read_telemetry(run, read_run(run).path)
    assert newest.by_minute == (count - live) * 3
    is_late = newest.steps["step"] > count - live
    early, late = newest.steps[~is_late], newest.steps[is_late]
    assert 0 < len(early) < count - live
    assert early["device_power_min"].min() == 300.0
    assert early["device_power_max"].max() <= 340.0 + count - live
    assert (early["device_power_min"] < early["device_power"]).all()
    assert (early["device_power"] < early["device_power_max"]).all()
    # The step at the border may have the end of the last minute as well.
    assert late["device_power"].tolist()[1:] == [320.0 + number for number in range(count - live + 1, count)]
