"""Which rank is to blame, found from heartbeats."""

import os
import subprocess
import sys
import time

import pytest

from treering_trainer.monitor.heartbeat import Heartbeat, Heartbeats, HeartbeatWriter, Part
from treering_trainer.monitor.watchdog import START_TIMEOUT_S, Stuck, Watchdog, process_state

pytestmark = pytest.mark.trainer

TIMEOUT_S = 0.1


@pytest.fixture
def sleepers():
    """Two processes that do nothing, as ranks that wait; one that still starts could wait for the disk."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    processes = [subprocess.Popen([sys.executable, "-c", "input('ready\\n')"], **pipes) for _ in range(2)]
    for process in processes:
        assert process.stdout.readline() == b"ready\n"
    yield {rank: process.pid for rank, process in enumerate(processes)}
    for process in processes:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def pens(heartbeats, monkeypatch):
    """The pens of two ranks, opened as ranks open theirs."""
    monkeypatch.setenv("TREERING_HEARTBEATS", str(heartbeats.descriptor))
    found = []
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        found.append(HeartbeatWriter.of_this_process())
    return found


def looks(watchdog, processes, seconds):
    """What is found in so many seconds, None if nothing."""
    until = time.monotonic() + seconds
    while (found := watchdog.look(processes)) is None and time.monotonic() < until:
        time.sleep(0.01)
    return found


def test_heartbeats_arrive(monkeypatch):
    heartbeats = Heartbeats(2)
    first, second = pens(heartbeats, monkeypatch)
    first.begin(3, 40)
    second(Part.READ, 41)
    second(Part.SAVE, 41)
    assert (heartbeats.attempt, heartbeats.start_step) == (3, 40)
    assert heartbeats.of(0) == Heartbeat(0, Part.START, 0)
    assert heartbeats.of(1) == second.last == Heartbeat(2, Part.SAVE, 41)
    assert str(heartbeats.of(1)) == "saving the checkpoint of step 41"
    assert (first.shared, str(first.last)) == (True, "starting")
    monkeypatch.delenv("TREERING_HEARTBEATS")
    alone = HeartbeatWriter.of_this_process()
    alone(Part.TRAIN, 2)
    assert (alone.shared, str(alone.last)) == (False, "training step 2")


def test_the_one_with_the_fewest_heartbeats_is_behind(sleepers, monkeypatch):
    heartbeats = Heartbeats(2)
    first, second = pens(heartbeats, monkeypatch)
    for part in (Part.READ, Part.AGREE, Part.TRAIN):
        first(part, 5)
        if part is not Part.TRAIN:
            second(part, 5)
    found = looks(Watchdog(heartbeats, TIMEOUT_S), sleepers, 60)
    assert (found.ranks, found.beat, found.state) == ((1,), Heartbeat(2, Part.AGREE, 5), "")
    assert found.silent_s >= TIMEOUT_S


def test_among_equals_a_stopped_one_is_to_blame(sleepers, monkeypatch):
    heartbeats = Heartbeats(2)
    for pen in pens(heartbeats, monkeypatch):
        pen(Part.TRAIN, 5)
    both = looks(Watchdog(heartbeats, TIMEOUT_S), sleepers, 60)
    assert both.ranks == (0, 1)
    assert str(both) == (
        f"ranks 0, 1 have given no sign for {both.silent_s:.0f} s while training step 5, and none is behind"
    )
    os.kill(sleepers[1], 19)
    while process_state(sleepers[1]) != "T":
        time.sleep(0.01)
    found = looks(Watchdog(heartbeats, TIMEOUT_S), sleepers, 60)
    assert (found.ranks, found.state) == ((1,), "it is stopped (SIGSTOP)")


def test_among_equals_one_that_waits_in_no_collective_is_to_blame(sleepers, monkeypatch):
    heartbeats = Heartbeats(2)
    first, second = pens(heartbeats, monkeypatch)
    first(Part.TRAIN, 5)
    second(Part.TRAIN, 5)
    first.waits(True)
    assert looks(Watchdog(heartbeats, TIMEOUT_S), sleepers, 60).ranks == (1,)
    second.waits(True)
    assert looks(Watchdog(heartbeats, TIMEOUT_S), sleepers, 60).ranks == (0, 1)
    first(Part.VALIDATE, 5)
    assert heartbeats.of(0) == Heartbeat(2, Part.VALIDATE, 5, waits=False), "a new heartbeat does not wait"
    assert looks(Watchdog(heartbeats, TIMEOUT_S), sleepers, 60).ranks == (1,), "the fewest heartbeats count first"


def test_the_first_step_has_the_patience_of_a_start(sleepers, monkeypatch):
    heartbeats = Heartbeats(2)
    first, second = pens(heartbeats, monkeypatch)
    first.begin(1, 4)
    watchdog = Watchdog(heartbeats, TIMEOUT_S)
    first(Part.LOAD)
    second(Part.TRAIN, 5)
    assert looks(watchdog, sleepers, 5 * TIMEOUT_S) is None
    assert START_TIMEOUT_S > 600
    second(Part.READ, 6)
    assert looks(watchdog, sleepers, 60).ranks == (0,), (
        "the rank that waits is past its first step, the other is behind"
    )


def test_who_is_done_is_not_waited_for(sleepers, monkeypatch):
    heartbeats = Heartbeats(2)
    for pen in pens(heartbeats, monkeypatch):
        pen(Part.DONE, 9)
    assert looks(Watchdog(heartbeats, TIMEOUT_S), sleepers, 5 * TIMEOUT_S) is None


def test_time_in_which_nobody_looked_does_not_count(sleepers, monkeypatch):
    """As when a terminal's Ctrl-Z stops launcher and ranks together."""
    heartbeats = Heartbeats(2)
    for pen in pens(heartbeats, monkeypatch):
        pen(Part.TRAIN, 5)
    watchdog = Watchdog(heartbeats, 1.5)
    watchdog.look(sleepers)
    time.sleep(1.8)
    assert watchdog.look(sleepers) is None
    assert looks(watchdog, sleepers, 60).ranks == (0, 1)


def test_a_process_that_is_gone_has_no_state(sleepers):
    assert process_state(sleepers[0]) in ("S", "R", "D")
    assert process_state(2**22 + 1) == ""
    assert str(Stuck((3,), 600.2, Heartbeat(9, Part.READ, 17), "it is stopped (SIGSTOP)")) == (
        "rank 3 has given no sign for 600 s while reading the data of step 17; it is stopped (SIGSTOP)"
    )
