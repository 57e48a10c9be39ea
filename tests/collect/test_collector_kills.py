"""The collector of a node is killed with -9 at random moments: what was seen stays, once, and both ranks go on."""

import os
import random
import signal
import time

import pytest
from kills import kill_at_random, num_kills

from treering.collect.telemetry import RankTelemetry
from treering.runlog.telemetry.ingest import ingest
from treering.runlog.telemetry.live import segments
from treering.runlog.telemetry.reading import TelemetryFolder
from treering.runlog.telemetry.schema import STEP_METRICS

KILLS = num_kills(4)


def wait_for(condition):
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def seen(folder):
    """Every row as a reader has it; a row that is there twice is an error."""
    found = TelemetryFolder(folder).read()
    assert found.damaged == 0
    readings = found.readings
    rows = list(zip(readings.times, readings.ranks, readings.devices, strict=True))
    assert len(set(rows)) == len(rows)
    return dict(zip(rows, map(repr, readings.column("process/rss")), strict=True))


def ingesting(folder):
    """What the collector does once a minute, in a process of its own."""
    process = os.fork()
    if process == 0:
        try:
            ingest(folder, ())
        finally:
            os._exit(0)
    return process


@pytest.mark.slow
def test_each_reading_that_was_seen_is_there_once_after_any_kill(tmp_path, monkeypatch):
    monkeypatch.setattr("treering.collect.telemetry._RESTART_S", 0.0)
    folder, draw = tmp_path / "telemetry", random.Random(5)
    ranks = [RankTelemetry(folder, rank=rank, first=rank == 0, interval_s=0.02) for rank in (0, 1)]
    for rank in ranks:
        rank.start()
    before, killed = {}, set()
    for number in range(KILLS):
        wait_for(lambda: ranks[0]._collects)
        if number % 4:  # one kill of four comes while the collector begins
            newest = max([moment for moment, *_ in before], default=0.0)
            wait_for(lambda newest=newest: {key[1] for key in seen(folder) if key[0] > newest} >= {0, 1})
        ranks[1].add(dict.fromkeys(STEP_METRICS, 1.0))
        time.sleep(draw.random() * 0.1)
        before = seen(folder)
        collector = ranks[0]._collector.pid
        os.kill(collector, signal.SIGKILL)
        wait_for(lambda collector=collector: ranks[0]._collector.pid != collector)
        killed.add(collector)
        kill_at_random(ingesting(folder), 0.1, draw)
        after = seen(folder)
        assert {key: after.get(key) for key in before} == before
    assert len(killed) == KILLS
    wait_for(lambda: len(seen(folder)) > len(before) + 6)
    for rank in reversed(ranks):
        rank.stop()
    last = seen(folder)
    assert {key: last.get(key) for key in before} == before
    ingest(folder, (0,))
    assert seen(folder) == last
    assert segments(folder) == []
    assert TelemetryFolder(folder).events().lost == 0
