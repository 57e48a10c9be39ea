"""The collector of a node and the ranks that talk to it: real processes, real psutil, recorded answers of NVML."""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from recorded_nvml import environment

from treering.collect.host_sensors import HOST_METRICS, HostSensors, ProcessSensors, attempt
from treering.collect.node_collector import NodeCollector
from treering.collect.rank_messages import RankMessage, address
from treering.collect.telemetry import RankTelemetry, StepReadings
from treering.runlog.metric_catalog import METRICS
from treering.runlog.telemetry.live import LiveWriter, segments
from treering.runlog.telemetry.reading import TelemetryFolder
from treering.runlog.telemetry.schema import STEP_METRICS


def wait_for(condition):
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def rows(folder):
    return len(TelemetryFolder(folder).read().readings)


def of_rank(folder, rank):
    readings = TelemetryFolder(folder).read().readings
    return readings.take(readings.ranks == rank)


@pytest.fixture
def recorded(monkeypatch):
    """Makes collectors that are started from here load recorded answers."""

    def use(name):
        for key, value in environment(name).items():
            monkeypatch.setenv(key, value)

    return use


def test_two_ranks_of_a_node_have_one_collector_and_a_device_each(tmp_path, recorded):
    recorded("a100")
    folder = tmp_path / "telemetry"
    first = RankTelemetry(folder, rank=8, devices=[0], interval_s=0.05)
    second = RankTelemetry(folder, rank=9, devices=[1], first=False, interval_s=0.05)
    first.start()
    second.start()
    for seconds in (1.0, 2.0):
        second.add(dict.fromkeys(STEP_METRICS, seconds))
    wait_for(lambda: len(of_rank(folder, 9)) >= 3)
    second.stop()
    first.stop()
    assert [segment.node for segment in segments(folder)] == [8]
    rank = of_rank(folder, 9)
    assert set(rank.devices) == {1}
    assert set(rank.column("device/power")) == {312.5}
    steps = rank.column("rank/step")
    assert steps[~np.isnan(steps)].tolist() == [1.5]
    assert max(rank.column("process/rss")) > 10e6
    node = of_rank(folder, -1)
    assert set(node.devices) == {-1}
    assert 0 <= max(node.column("host/cpu_utilisation")) <= 100
    events = TelemetryFolder(folder).events()
    assert events.hosts == {8: socket.gethostname()}
    assert {place: facts["uuid"] for place, facts in events.devices.items()} == {
        (8, 0): "GPU-a100-0",
        (8, 1): "GPU-a100-1",
    }
    assert [(xid.node, xid.device, xid.code) for xid in events.xids] == [(8, 1, 79)]
    assert 79 in rank.column("device/xid")
    assert events.reasons["device/retired_pages"] == "nvmlDeviceGetRetiredPages: Not Supported"
    assert events.lost == 0
    assert {*HOST_METRICS, *node.values, *rank.values} <= METRICS.keys()


def test_a_training_that_ends_while_its_collector_starts_has_the_readings_of_every_rank(tmp_path, monkeypatch):
    start = subprocess.Popen

    def slow(command, **options):
        program = f"import time; time.sleep(0.4); import runpy; runpy.run_module({command[3]!r}, run_name='__main__')"
        return start([command[0], "-P", "-c", program, command[4]], **options)

    monkeypatch.setattr(subprocess, "Popen", slow)
    folder = tmp_path / "telemetry"
    ranks = [RankTelemetry(folder, rank=rank, first=rank == 0, interval_s=0.05, ranks_here=3) for rank in range(3)]
    for rank in ranks:
        rank.start()
    time.sleep(0.15)
    threads = [threading.Thread(target=rank.stop) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {*TelemetryFolder(folder).read().readings.ranks.tolist()} == {-1, 0, 1, 2}


def test_a_reason_is_written_once_however_often_it_comes(tmp_path):
    collector = NodeCollector(tmp_path / "telemetry", 0, ingests=False)
    for _ in range(3):
        collector.hear(RankMessage(0, (), {"process/rss": 1.0}, {"process/read": "Access denied"}))
        collector.sample()
    collector.close()
    lines = (tmp_path / "telemetry" / "node-00000.events.jsonl").read_text().splitlines()
    said = [name for line in lines for name in json.loads(line).get("reasons", {})]
    assert sorted(said) == ["device", "process/read"]
    assert rows(tmp_path / "telemetry") == 6


def test_a_device_of_two_ranks_counts_once(tmp_path):
    collector = NodeCollector(tmp_path / "telemetry", 0, ingests=False)
    collector._read_devices = lambda: {0: {"device/power": attempt(lambda: 100.0)}}
    for rank in (0, 1):
        collector.hear(RankMessage(rank, (0,), {"process/rss": 1.0}, {}))
    collector.sample()
    power = TelemetryFolder(tmp_path / "telemetry").read().readings.column("device/power")
    assert power[~np.isnan(power)].tolist() == [100.0]


def test_a_rank_that_says_nothing_has_no_readings_of_its_process(tmp_path):
    collector = NodeCollector(tmp_path / "telemetry", 0, ingests=False)
    collector.hear(RankMessage(0, (), {"process/rss": 5.0}, {}))
    collector.sample()
    collector.sample()
    rss = of_rank(tmp_path / "telemetry", 0).column("process/rss").tolist()
    assert np.array_equal(rss, [5.0, np.nan], equal_nan=True)


def test_a_killed_collector_is_started_again_and_loses_nothing_it_wrote(tmp_path, monkeypatch):
    monkeypatch.setattr("treering.collect.telemetry._RESTART_S", 0.0)
    folder = tmp_path / "telemetry"
    telemetry = RankTelemetry(folder, rank=0, interval_s=0.05)
    telemetry.start()
    wait_for(lambda: rows(folder) >= 6)
    before = telemetry._collector.pid
    os.kill(before, signal.SIGKILL)
    written = rows(folder)
    wait_for(lambda: telemetry._collector.pid != before and rows(folder) > written + 6)
    telemetry.stop()
    assert len(segments(folder)) == 2


PARENT = """
import sys, time
from pathlib import Path
from treering.collect.telemetry import RankTelemetry
telemetry = RankTelemetry(Path(sys.argv[1]), rank=0, interval_s=0.05)
telemetry.start()
time.sleep(600)
"""


def test_the_collector_of_a_killed_training_ends(tmp_path):
    folder = tmp_path / "telemetry"
    process = subprocess.Popen([sys.executable, "-c", PARENT, str(folder)])
    wait_for(lambda: rows(folder) >= 4)
    process.kill()
    process.wait()

    def gone():
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(address(folder))
            except OSError:
                return True
        return False

    wait_for(gone)


def test_a_full_disk_is_counted_and_shown_later(tmp_path):
    folder = tmp_path / "telemetry"
    folder.mkdir()
    (folder / "live").write_text("in the way")
    collector = NodeCollector(folder, 0, ingests=False)
    collector.hear(RankMessage(0, (), {"process/rss": 5.0}, {}, lost=7))
    collector.sample()
    collector.sample()
    (folder / "live").unlink()
    collector.sample()
    found = TelemetryFolder(folder)
    assert found.events().lost == 2 * 2 + 7
    assert len(found.read().readings) == 2
    assert "live" in found.events().reasons


def test_a_line_that_a_full_disk_tore_takes_no_other_line_with_it(tmp_path):
    writer = LiveWriter(tmp_path, 0)
    writer.append(1.0, [0], [-1], {"process/rss": [1]})
    path = tmp_path / "live" / segments(tmp_path)[0].name
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, before[1]))
    try:
        with pytest.raises(OSError, match="wrote 10 of"):
            writer.append(2.0, [0], [-1], {"process/rss": [2]})
        with pytest.raises(OSError, match="File too large"):
            writer.append(3.0, [0], [-1], {"process/rss": [3]})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    writer.append(4.0, [0], [-1], {"process/rss": [4]})
    assert TelemetryFolder(tmp_path).read().readings.times.tolist() == [1.0, 4.0]


def test_messages_wait_until_somebody_listens_and_are_then_lost(tmp_path):
    telemetry = RankTelemetry(tmp_path, rank=3, first=False)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as outbox:
        outbox.setblocking(False)
        for _ in range(65):
            telemetry._tell(outbox, {})
        assert (len(telemetry._waiting), telemetry._lost) == (60, 5)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as inbox:
            inbox.bind(address(tmp_path))
            telemetry._tell(outbox, {})
            assert RankMessage.parse(inbox.recv(1 << 16)).rank == 3


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"rank": "x"}', b'{"rank": 0, "devices": 1}', b"\xff"])
def test_a_datagram_of_anybody_else_is_left_out(content):
    assert RankMessage.parse(content) is None


def test_a_message_comes_as_it_was_sent():
    message = RankMessage(3, (1, 2), {"rank/step": 0.5}, {"process/read": "why"}, lost=4, ends=True, stops=True)
    assert RankMessage.parse(message.to_bytes()) == message


def test_a_sensor_that_fails_says_why_and_the_others_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr("psutil.virtual_memory", lambda: 1 / 0)
    monkeypatch.setattr("psutil.disk_io_counters", lambda: None)
    found = HostSensors(tmp_path).read()
    assert found["host/memory_used"].reason == "division by zero"
    assert found["host/disk_read"].reason == "the system does not count it"
    assert found["host/disk_free"].value > 0
    assert tuple(sorted(found)) == tuple(sorted(HOST_METRICS))


def test_the_processes_of_a_command_count_together():
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    try:
        alone = ProcessSensors(process.pid)
        wait_for(lambda: len(alone._known()) == 2)
        one = alone._first.memory_info().rss
        assert alone.read()["process/rss"].value > one + 1e6
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert "process" in alone.read()["process/rss"].reason
    assert ProcessSensors(process.pid).read()["process/rss"].reason == "the process has ended"


def test_steps_are_averaged_between_two_readings():
    steps = StepReadings()
    assert steps.read() == {}
    for seconds in (1.0, 2.0):
        steps.add(dict.fromkeys(STEP_METRICS, seconds))
    assert {name: reading.value for name, reading in steps.read().items()} == dict.fromkeys(STEP_METRICS, 1.5)
    assert steps.read() == {}
    assert set(STEP_METRICS) <= METRICS.keys()
