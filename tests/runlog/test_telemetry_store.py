"""Telemetry on disk: live files become parts, whatever kills the process meanwhile; roll-up, energy, damage."""

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from treering.files import open_regular
from treering.runlog.telemetry import ingest as ingest_module
from treering.runlog.telemetry import live as live_module
from treering.runlog.telemetry.ingest import ingest
from treering.runlog.telemetry.live import LiveWriter, Segment, parse, segments
from treering.runlog.telemetry.minutes import Place
from treering.runlog.telemetry.parts import PART_ROWS, PartName, part_names, read_part, sources
from treering.runlog.telemetry.reading import TelemetryFolder
from treering.runlog.telemetry.rolled_up import not_rolled_up, record_rolled_up

START = 1_764_000_000.0  # begins a minute


def sample(writer, second, ranks=(0, 1), **more):
    """A row for each rank: power 100 W a rank and one more each second, a counter of joules for rank 0 alone."""
    values = {
        "device/power": [100.0 * (rank + 1) + second for rank in ranks],
        "device/energy": [1000 + 100 * second if rank == 0 else None for rank in ranks],
        "rank/compute": [0.25 + rank / 1000 for rank in ranks],
        **more,
    }
    writer.append(START + second, list(ranks), list(ranks), values)


def minutes(folder, number, *, node=0, seconds=60, first=0):
    """Closed live files of some minutes, and an empty one after them."""
    writer = LiveWriter(folder, node)
    for minute in range(first, first + number):
        for second in range(seconds):
            sample(writer, 60 * minute + second)
        writer.close_segment()
    return writer


def content(folder):
    readings = TelemetryFolder(folder).read().readings.sorted()
    names = sorted(readings.values)
    found = {
        (node, rank, device, time): tuple(readings.values[name][row] for name in names)
        for row, (node, rank, device, time) in enumerate(
            zip(readings.nodes, readings.ranks, readings.devices, readings.times, strict=True)
        )
    }
    assert len(found) == len(readings), "no reading is there twice"
    return found


def test_readings_are_the_same_live_and_in_parts(tmp_path):
    for node in (0, 8):
        minutes(tmp_path, 3, node=node)
    before = content(tmp_path)
    assert len(before) == 2 * 3 * 60 * 2
    assert ingest(tmp_path) == 2 * 2 * 60 * 2, "the newest file of each node may still grow"
    assert np.array_equal(list(content(tmp_path).values()), list(before.values()), equal_nan=True)
    assert ingest(tmp_path, {0, 8}) == 2 * 60 * 2
    assert np.array_equal(list(content(tmp_path).values()), list(before.values()), equal_nan=True)
    assert segments(tmp_path) == []


def test_the_roll_up_and_the_energy_outlive_the_readings(tmp_path):
    minutes(tmp_path, 3)
    ingest(tmp_path, {0})
    before = TelemetryFolder(tmp_path)
    rolled, (energy, _), rows = before.minutes(), before.energy(), len(before.read().readings)
    assert not_rolled_up(tmp_path) == ""
    record_rolled_up(tmp_path)
    after = TelemetryFolder(tmp_path)
    assert (after.minutes(), len(after.read().readings), after.read().left_out) == (rolled, rows, 0), "still there"
    shutil.rmtree(tmp_path / "parts")
    assert after.exists()
    assert after.minutes() == rolled
    assert str(after.energy()[0].devices) == str(energy.devices)
    assert (len(after.read().readings), after.read().left_out) == (0, rows)
    assert after.read(until=START - 1).left_out == 0
    assert after.read(since=START + 3600).left_out == 0


@pytest.mark.parametrize("fault", ["minutes", "totals.json"])
def test_readings_that_are_not_rolled_up_stay(tmp_path, fault):
    minutes(tmp_path, 1)
    ingest(tmp_path, {0})
    if fault == "minutes":
        next((tmp_path / "minutes").iterdir()).write_bytes(b"torn")
        assert "the roll-up of 00000000-00000000." in not_rolled_up(tmp_path)
    else:
        (tmp_path / fault).unlink()
        assert "the energy of the newest readings is not in totals.json yet" in not_rolled_up(tmp_path)


def test_a_live_reading_has_the_digits_that_it_has_in_a_part(tmp_path):
    writer = LiveWriter(tmp_path, 0)
    values = {"device/power": 312.4999, "rank/tflops": 0.1, "rank/compute": 1 / 3, "own": 1 / 3, "device/energy": 7.0}
    writer.append(START + 1 / 3, [0], [0], {name: [value] for name, value in values.items()})
    live = content(tmp_path)
    found = TelemetryFolder(tmp_path).read().readings
    assert {name: found.values[name][0] for name in values} == {
        "device/power": 312.5,
        "rank/tflops": float(np.float32(0.1)),
        "rank/compute": 0.33333,
        "own": 1 / 3,
        "device/energy": 7,
    }
    ingest(tmp_path, {0})
    assert content(tmp_path) == live


def test_a_window_and_some_columns_are_read(tmp_path):
    minutes(tmp_path, 3)
    ingest(tmp_path)
    found = TelemetryFolder(tmp_path).read(["device/power"], since=START + 58, until=START + 61).readings.sorted()
    assert list(found.values) == ["device/power"]
    assert (found.times - START).tolist() == [59, 60, 61] * 2
    assert found.values["device/power"].tolist() == [159.0, 160.0, 161.0, 259.0, 260.0, 261.0]
    newest = TelemetryFolder(tmp_path).read(newest_s=2).readings
    assert sorted(set(newest.times - START)) == [178.0, 179.0]


def test_of_more_rows_than_asked_for_the_newest_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(ingest_module, "PART_ROWS", 120)
    for minute in range(4):
        minutes(tmp_path, 1, first=minute)
        ingest(tmp_path, {0})
    found = TelemetryFolder(tmp_path).read(most_rows=130)
    assert (len(found.readings), found.left_out) == (240, 240)
    assert min(found.readings.times) == START + 120


def test_small_parts_are_merged(tmp_path):
    writer = LiveWriter(tmp_path, 0)
    for second in range(20):
        sample(writer, second)
        writer.close_segment()
        ingest(tmp_path)
    ingest(tmp_path, {0})
    names = part_names(tmp_path)
    assert len(names) <= 5
    assert sum(name.rows for name in names) == 40
    assert len(content(tmp_path)) == 40
    assert len(list((tmp_path / "minutes").iterdir())) == len(names)
    assert PART_ROWS < 4 * 60 * 2240, "parts of a fleet are merged a few times at most"


class DiedError(Exception):
    """Stands for the death of the process."""


@pytest.mark.parametrize("survived", range(8))
def test_a_process_that_dies_between_any_two_files_loses_and_doubles_nothing(tmp_path, monkeypatch, survived):
    minutes(tmp_path, 1)
    ingest(tmp_path, {0})
    minutes(tmp_path, 3, first=1)
    before = content(tmp_path)
    left = [survived]

    def dying(operation):
        def step(*arguments, **options):
            if not left[0]:
                raise DiedError
            left[0] -= 1
            return operation(*arguments, **options)

        return step

    with monkeypatch.context() as patched:
        patched.setattr(ingest_module, "write_durably", dying(ingest_module.write_durably))
        patched.setattr(Path, "unlink", dying(Path.unlink))
        try:
            ingest(tmp_path, {0})
            died = False
        except DiedError:
            died = True
    assert died == (survived < 8)
    assert np.array_equal(list(content(tmp_path).values()), list(before.values()), equal_nan=True)
    energy = TelemetryFolder(tmp_path).energy()[0].devices[0, 0].counted_j
    assert energy == 100 * 239
    ingest(tmp_path, {0})
    assert np.array_equal(list(content(tmp_path).values()), list(before.values()), equal_nan=True)
    assert TelemetryFolder(tmp_path).energy()[0].devices[0, 0].counted_j == energy
    assert [minute.count for minute in TelemetryFolder(tmp_path).minutes(["device/power"])] == [120] * 4
    assert segments(tmp_path) == []


COLLECTOR = """
import sys
from pathlib import Path
from treering.runlog.telemetry.ingest import ingest
from treering.runlog.telemetry.live import LiveWriter
folder, first = Path(sys.argv[1]), int(sys.argv[2])
writer = LiveWriter(folder, 0)
for number in range(first, first + 100_000):
    writer.append(float(number), [0], [0], {"device/power": [number]})
    print(number, flush=True)
    if number % 7 == 0:
        writer.close_segment()
        ingest(folder)
"""


@pytest.mark.slow
def test_killed_at_random_moments_every_acknowledged_reading_is_there_once(tmp_path):
    chance = random.Random(7)
    acknowledged, first = 0, 0
    for _ in range(8):
        process = subprocess.Popen(
            [sys.executable, "-c", COLLECTOR, str(tmp_path), str(first)], stdout=subprocess.PIPE, text=True
        )
        for _line in range(chance.randint(1, 400)):
            acknowledged = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
        acknowledged = max([acknowledged, *map(int, process.stdout.read().split())])
        process.wait()
        times = np.sort(TelemetryFolder(tmp_path).read().readings.times).astype(int).tolist()
        assert len(times) == len(set(times))
        assert times[-1] in (acknowledged, acknowledged + 1)
        assert times == list(range(times[-1] + 1))
        first = times[-1] + 1
    assert len(part_names(tmp_path)) >= 1


def test_a_torn_part_is_counted_and_never_read_as_whole(tmp_path):
    minutes(tmp_path, 3)
    ingest(tmp_path, {0})
    minutes(tmp_path, 1, first=3, seconds=5)
    ingest(tmp_path, {0})
    names = part_names(tmp_path)
    assert len(names) == 2
    damaged = tmp_path / "parts" / str(names[0])
    whole = damaged.read_bytes()
    for torn in (whole[:-20], whole[: len(whole) // 2], b"", whole[:100] + bytes(40) + whole[140:]):
        damaged.write_bytes(torn)
        found = TelemetryFolder(tmp_path).read()
        assert (found.damaged, len(found.readings)) == (1, names[1].rows)
        assert TelemetryFolder(tmp_path).energy()[1] == 0, "the totals hold the energy of a part that is damaged later"
    assert ingest(tmp_path, {0}) == 0


def test_the_newest_part_may_be_damaged_when_the_next_one_comes(tmp_path):
    minutes(tmp_path, 1)
    ingest(tmp_path, {0})
    (tmp_path / "parts" / str(part_names(tmp_path)[0])).write_bytes(b"torn")
    minutes(tmp_path, 1, first=1)
    assert ingest(tmp_path, {0}) == 120
    found = TelemetryFolder(tmp_path).read()
    assert (found.damaged, len(found.readings)) == (1, 120)


def test_a_live_file_that_cannot_be_opened_now_stays_for_the_next_time(tmp_path, monkeypatch):
    minutes(tmp_path, 2)
    expected = content(tmp_path).keys()
    opened = iter([OSError(errno.EMFILE, "Too many open files")])

    def open_once(path):
        for error in opened:
            raise error
        return open_regular(path)

    with monkeypatch.context() as patch:
        patch.setattr(live_module, "open_regular", open_once)
        assert ingest(tmp_path, {0}) == 120
    assert content(tmp_path).keys() == expected
    assert ingest(tmp_path, {0}) == 120
    assert content(tmp_path).keys() == expected
    assert segments(tmp_path) == []


def test_the_roll_up_names_whose_reading_was_lowest_and_highest(tmp_path):
    for node, ranks in ((0, (0, 1)), (8, (8, 9))):
        writer = LiveWriter(tmp_path, node)
        for second in range(90):
            sample(writer, second, ranks)
        writer.close_segment()
    ingest(tmp_path, {0, 8})
    LiveWriter(tmp_path, 8).append(START + 119, [8], [8], {"device/power": [5000.0]})
    first, second = TelemetryFolder(tmp_path).minutes(["device/power"])
    assert (first.began, first.count, first.low, first.high) == (START, 240, 100.0, 1059.0)
    assert first.mean == pytest.approx((100 + 200 + 900 + 1000) / 4 + 29.5)
    assert (first.low_place, first.high_place) == (Place(0, 0, 0), Place(8, 9, 9))
    assert (second.count, second.low, second.high, str(second.high_place)) == (121, 160.0, 5000.0, "rank 8, device 8")


def test_energy_is_counted_where_there_is_a_counter_and_else_integrated(tmp_path):
    minutes(tmp_path, 3)
    writer = LiveWriter(tmp_path, 0)
    sample(writer, 300)  # two minutes later than the last reading
    for until in ({0}, set()):
        devices = TelemetryFolder(tmp_path).energy()[0].devices
        counted, integrated = devices[0, 0], devices[0, 1]
        assert (counted.counted_j, counted.counted_s, counted.integrated_j) == (100 * 300, 300, 0)
        assert integrated.integrated_j == pytest.approx(sum(200 + second + 0.5 for second in range(179)))
        assert (integrated.integrated_s, integrated.counted_j) == (179, 0), "nothing is made up for two minutes"
        ingest(tmp_path, until)


def test_a_counter_that_begins_again_is_bridged_by_power(tmp_path):
    writer = LiveWriter(tmp_path, 0)
    for second, energy in enumerate([1000, 1100, 5, 105]):
        writer.append(START + second, [0], [0], {"device/energy": [energy], "device/power": [50.0]})
    device = TelemetryFolder(tmp_path).energy()[0].devices[0, 0]
    assert (device.counted_j, device.integrated_j) == (200, 50)


def test_totals_that_are_missing_or_damaged_are_counted_again(tmp_path):
    minutes(tmp_path, 3)
    ingest(tmp_path, {0})
    file = tmp_path / "totals.json"
    for text in (None, "{", "[]", '{"last": 5}', json.dumps({"last": 9, "fields": [], "devices": []})):
        file.unlink(missing_ok=True)
        if text is not None:
            file.write_text(text)
        assert TelemetryFolder(tmp_path).energy()[0].devices[0, 0].counted_j == 100 * 179


def test_lines_that_are_no_samples_are_left_out():
    good = b'{"time":5.0,"rank":[0],"device":[-1],"values":{"a":[1]}}'
    bad = [
        b"{torn", b"[]", b"", b'{"time":1}', b'{"time":"x","rank":[0],"device":[0],"values":{}}',
        b'{"time":1,"rank":[0],"device":[0,1],"values":{}}', b'{"time":1,"rank":["a"],"device":[0],"values":{}}',
        b'{"time":1,"rank":[0],"device":[0],"values":{"a":[1,2]}}', b'{"time":1,"rank":[0],"device":[0],"values":3}',
        b"[" * 100_000,
    ]  # fmt: skip
    other = b'{"time":6.0,"rank":[0,1],"device":[-1,-1],"values":{"b":["x",2]}}'
    found = parse(b"\n".join([*bad, good, *bad, other, b""]), 4)
    assert found.times.tolist() == [5.0, 6.0, 6.0]
    assert found.nodes.tolist() == [4, 4, 4]
    assert np.array_equal(found.values["a"], [1, np.nan, np.nan], equal_nan=True)
    assert np.array_equal(found.values["b"], [np.nan, np.nan, 2], equal_nan=True)


def test_names_of_files_come_back():
    assert PartName.parse(str(PartName(1, 12, -5, 7, 3))) == PartName(1, 12, -5, 7, 3)
    assert Segment.parse(Segment(123_456, 1_764_000_000_123).name) == Segment(123_456, 1_764_000_000_123)
    for other in (".00000001-00000001.1_2.3.parquet.tmp", "x.parquet", "node-1-2.jsonl"):
        assert PartName.parse(other) is None
        assert Segment.parse(other) is None


def test_values_that_do_not_fit_a_series_are_no_readings(tmp_path):
    writer = LiveWriter(tmp_path, 0)
    values = {"device/power": [float("nan"), 1.5], "process/rss": [float("inf"), 2**52], "own": [float("inf"), 0.1]}
    writer.append(START, [0, 1], [-1, -1], values)
    ingest(tmp_path, {0})
    found = read_part(tmp_path, part_names(tmp_path)[0])
    assert np.array_equal(found.values["device/power"], [np.nan, 1.5], equal_nan=True)
    assert np.array_equal(found.values["process/rss"], [np.nan, 2**52], equal_nan=True)
    assert found.values["own"].tolist() == [float("inf"), 0.1]
    assert len(sources(tmp_path, part_names(tmp_path)[0])) == 1


def test_earlier_versions_are_read_beside_the_new_form(tmp_path):
    for rank in (0, 1):
        lines = [
            {"time": START - 10 + second, "rank": rank, "values": {"device/power": 50.0, "process/rss": 7}}
            for second in range(3)
        ]
        lines[0]["reasons"] = {"device/energy": "not supported"}
        lines[2]["dropped"] = 2 + rank
        (tmp_path / f"rank-{rank}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"time": 1')
    minutes(tmp_path, 1)
    found = TelemetryFolder(tmp_path)
    assert len(found.read().readings) == 6 + 120
    assert (found.events().reasons, found.events().lost) == ({"device/energy": "not supported"}, 5)
    devices = found.energy()[0].devices
    assert (devices[1, 0].integrated_j, devices[1, 0].integrated_s) == (100.0, 2.0)


def test_a_folder_that_is_not_there_is_empty(tmp_path):
    found = TelemetryFolder(tmp_path / "nothing")
    assert len(found.read().readings) == 0
    assert (found.minutes(), found.energy()[0].devices, found.events().lost) == ([], {}, 0)
