"""Rings fail closed: whatever ends the process or fills the disk, each acknowledged ring is there once.

`TREERING_KILLS` is the number of kill -9 of the long test, 6 by default.
"""

import json
import os
import random
import signal
import struct
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path

import pytest
from kills import num_kills

from treering.errors import RunLockedError
from treering.record.start import start
from treering.runlog.columns.attempt import AttemptColumns
from treering.runlog.find import find_recorded_runs
from treering.runlog.ring_file import compress

KILLS = num_kills(6)
ACK = struct.Struct("<QQd")


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def forked(work):
    """Runs `work` in a process of its own."""
    process = os.fork()
    if process == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001 - said, and the test sees that the process ended
            traceback.print_exc()
        os._exit(0)
    return process


def kill_after(process, seconds):
    time.sleep(seconds)
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


def train():
    """Reports steps without an end; each is acknowledged in a file after `step` has returned."""
    before = acknowledged()
    last = before[-1][1] if before else 0
    acks = os.open("acks", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    run = start("killed", resume_step=last)
    for step in range(last + 1, last + 100_000):
        loss = random.random()
        run.step(loss=loss, tokens=[[step, step + 1]] if step % 7 else None)
        os.write(acks, ACK.pack(run.attempt, step, loss))
        if run.attempt % 3:
            time.sleep(0.001)


def look():
    """What readers and `treering archive` do meanwhile."""
    (run,) = find_recorded_runs(Path("runs"))
    for attempt in run.attempts():
        AttemptColumns(attempt).head()
        compress(attempt.rings_file)


def acknowledged():
    data = Path("acks").read_bytes() if Path("acks").exists() else b""
    return list(ACK.iter_unpack(data))


@pytest.mark.slow
def test_each_acknowledged_ring_is_there_once_after_kills_at_random_moments():
    chance = random.Random(11)
    start("warm", folder="elsewhere").finish()  # what is imported now costs no trainer time
    for number in range(KILLS):
        before, trainer = len(acknowledged()), forked(train)
        while number % 4 and len(acknowledged()) == before:  # one kill of four comes while the attempt begins
            assert os.waitpid(trainer, os.WNOHANG) == (0, 0), "the trainer ended by itself"
            time.sleep(0.002)
        kill_after(trainer, chance.uniform(0, 0.2))
        kill_after(forked(look), chance.uniform(0, 0.1))
    (run,) = find_recorded_runs(Path("runs"))

    found = [(each.number, ring.step, ring.metrics["loss"]) for each in run.attempts() for ring in each.rings()]
    acks = acknowledged()
    assert len(set(found)) == len(found)
    assert set(acks) <= set(found)
    assert len(found) - len(acks) <= len(run.attempts())  # at most the ring whose return was never seen
    path = [ring.step for segment in run.path_to_end() for ring in segment.rings()]
    assert path == list(range(1, len(path) + 1))
    for attempt in run.attempts():
        kept, built = AttemptColumns(attempt), AttemptColumns(attempt, keep=False)
        assert kept.head().place == built.head().place
        assert kept.head().metrics == built.head().metrics
        assert kept.tokens() == built.tokens()
        for series in (kept.history("loss"), built.history("loss")):
            assert series.values.tolist() == [ring.metrics["loss"] for ring in attempt.rings()]


def test_two_trainers_of_one_run_never_write_at_once(tmp_path):
    first = start("twice")
    first.step(loss=1.0)
    code = "import treering; run = treering.start('twice'); run.step(loss=2.0)"
    second = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert second.returncode == 1
    assert f"another process group trains this run (process {os.getpid()})" in second.stderr
    with pytest.raises(RunLockedError, match=f"process {os.getpid()}"):
        start("twice")
    first.step(loss=3.0)
    first.finish()
    (run,) = find_recorded_runs(Path("runs"))
    (attempt,) = run.attempts()
    assert [ring.metrics["loss"] for ring in attempt.rings()] == [1.0, 3.0]


FULL = """
import resource, treering
run = treering.start("full")
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
for step in range(1, 1000):
    try:
        run.step(loss=1 / step)
    except OSError as error:
        try:
            run.step(loss=0.0)
        except OSError as again:
            assert str(again) == str(error)
        print(step, flush=True)
        raise
"""


def test_a_full_disk_stops_the_training_and_says_why(tmp_path):
    done = subprocess.run([sys.executable, "-c", FULL], capture_output=True, text=True, check=False, cwd=tmp_path)
    step = int(done.stdout)
    assert done.returncode == 1
    assert f"the ring of step {step} could not be written (File too large), so training must not go on" in done.stderr
    assert "rings.jsonl" in done.stderr
    (run,) = find_recorded_runs(Path("runs"))
    (attempt,) = run.attempts()
    assert [ring.step for ring in attempt.rings()] == list(range(1, step))
    assert attempt.rings_file.stat().st_size == 20_000
    assert AttemptColumns(attempt).head().last_step == step - 1

    with start("full", resume_step=step - 1) as again:  # there is room again
        again.step(loss=2.0)
    assert [ring.step for segment in run.path_to_end() for ring in segment.rings()] == list(range(1, step + 1))


def test_a_clock_that_goes_back_disturbs_nothing(monkeypatch, treering):
    now = time.time()
    times = iter([now + 7200, now - 86_400, now + 3600, 0.5])
    with start("clock") as run:
        for step in range(1, 5):
            with monkeypatch.context() as patched:
                at = next(times)
                patched.setattr("treering.record.run.time.time", lambda at=at: at)
                run.step(loss=1 / step, tokens=[[step]])
    (found,) = find_recorded_runs(Path("runs"))
    (attempt,) = found.attempts()
    assert [ring.step for ring in attempt.rings()] == [1, 2, 3, 4]
    history = AttemptColumns(attempt).history("loss")
    assert (history.steps.tolist(), history.values.tolist()) == ([1, 2, 3, 4], [1, 1 / 2, 1 / 3, 1 / 4])
    line = json.loads(treering("runs", "--json")[1])[0]
    assert (line["state"], line["step"], line["loss"]) == ("finished", 4, 0.25)
    for command in (("runs",), ("show", found.id), ("show", found.id, "--full"), ("audit", found.id)):
        code, out, _ = treering(*command)
        assert code == 0
        assert "-" not in out.split("age")[-1].split("\n")[0] if command == ("runs",) else out


PRINTS = """
import sys, time
for step in range(1, 401):
    print(f"step {step} loss {1 / step}", flush=True)
    time.sleep(0.002)
"""


@pytest.mark.slow
def test_a_recorder_that_is_killed_leaves_whole_rings(tmp_path):
    Path("prints.py").write_text(PRINTS)
    words = ["record", "--metrics", r"step (?P<step>\d+) loss (?P<loss>\S+)", "--", sys.executable, "prints.py"]
    chance, rings = random.Random(12), {}

    def record():
        return subprocess.Popen([sys.executable, "-m", "treering", *words], stdout=subprocess.DEVNULL, cwd=tmp_path)

    for number in range(max(2, KILLS // 3)):
        recorder, seen = record(), sum(map(len, rings.values()))
        while number % 4 and sum(map(len, rings.values())) == seen and recorder.poll() is None:
            time.sleep(0.02)
            rings = reported()
        time.sleep(chance.uniform(0, 0.3))
        before = reported()
        recorder.kill()
        recorder.wait()
        rings = reported()
        assert all(rings[attempt][: len(found)] == found for attempt, found in before.items())
    assert record().wait() == 0
    rings = reported()
    assert len(rings) >= 2
    assert len(rings[max(rings)]) == 400
    for found in rings.values():
        assert found == [(step, 1 / step) for step in range(1, len(found) + 1)]


def reported():
    """Steps and losses by attempt, the chain checked; a ring that another process has seen must stay."""
    return {
        each.number: [(ring.step, ring.metrics["loss"]) for ring in each.rings()]
        for run in find_recorded_runs(Path("runs"))
        for each in run.attempts()
    }
