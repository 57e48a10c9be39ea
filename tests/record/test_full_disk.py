"""A disk that is really full: rings end the training and say why, telemetry counts what it lost and goes on."""

import json

import pytest
from small_disk import on_small_disk

pytestmark = pytest.mark.slow

RINGS = """
import os, sys
from pathlib import Path
import treering
from treering.runlog.find import find_recorded_runs

def train(first, last):
    run = treering.start("full", folder="disk/runs", resume_step=first - 1)
    fill(12_288) if first == 1 else None
    for step in range(first, last + 1):
        print(step, flush=True)
        run.step(loss=1 / step)

if os.fork() == 0:
    train(1, 1000)  # ends with the error
os.wait()
(run,) = find_recorded_runs(Path("disk/runs"))
(attempt,) = run.attempts()
kept = len(list(attempt.rings()))
os.remove("disk/ballast")
if os.fork() == 0:
    train(kept + 1, kept + 10)
    os._exit(0)
os.wait()
steps = [ring.step for segment in run.path_to_end() for ring in segment.rings()]
assert steps == list(range(1, kept + 11)), steps
print("kept", kept)
"""


def test_rings_end_the_training_and_go_on_when_there_is_room(tmp_path):
    done = on_small_disk(RINGS, tmp_path)
    assert done.returncode == 0, done.stderr
    *steps, kept = done.stdout.splitlines()
    last = int(kept.removeprefix("kept "))
    assert 10 < last < 990
    assert list(map(int, steps)) == list(range(1, last + 12))[: last + 1] + list(range(last + 1, last + 11))
    assert f"the ring of step {last + 1} could not be written (No space left on device)" in done.stderr
    assert "so training must not go on; make room on the disk, then start again" in done.stderr


TELEMETRY = """
import json, time
from pathlib import Path
from treering.collect.node_collector import NodeCollector
from treering.collect.rank_messages import RankMessage
from treering.runlog.telemetry.reading import TelemetryFolder

folder = Path("disk/telemetry")
collector = NodeCollector(folder, 0, ingests=False)
samples = 0

def sample():
    global samples
    samples += 1
    collector.hear(RankMessage(0, (), {"process/rss": float(samples)}, {}))
    collector.sample()

sample()
fill(12_288)
while not collector._lost:
    sample()
full = samples
for _ in range(10):
    sample()
Path("disk/ballast").unlink()
for _ in range(5):
    sample()
found = TelemetryFolder(folder)
readings = found.read().readings
values = readings.take(readings.ranks == 0).column("process/rss").tolist()
print(json.dumps([full, samples, values, found.events().lost, found.events().reasons["live"]]))
"""


def test_telemetry_counts_what_it_lost_and_goes_on(tmp_path):
    done = on_small_disk(TELEMETRY, tmp_path)
    assert done.returncode == 0, done.stderr
    full, samples, values, lost, reason = json.loads(done.stdout)
    assert values == [*range(1, full), *range(samples - 4, samples + 1)]
    assert lost == 2 * 11  # the rows of the node and of the rank
    assert "No space left on device" in reason or "wrote" in reason
