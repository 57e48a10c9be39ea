"""Where a step's time goes: parts that add up, a slow rank that shows, a bubble that is measured.

No assertion depends on how busy the machine is: seconds that were slept are a lower bound, sums are compared with
wholes, and shares are computed on a clock that the test moves.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from trained import run_of

from treering.metrics.ranks import rank_speeds
from treering.runlog.metric_catalog import METRICS
from treering_trainer.core import timing
from treering_trainer.core.timing import StepTimer, pipeline_wait

pytestmark = [pytest.mark.trainer, pytest.mark.slow]

PARTS = {"data_wait", "forward_backward", "communication", "optimizer"}
BETWEEN = {"checkpoint", "record", "validation"}
OVER_RANKS = {"compute_fastest", "compute_slowest"}
OF_PIPELINE = {"pipeline", "pipeline_bubble"}


def check_parts(rings, expected):
    """Each part is measured, none twice."""
    for ring in rings:
        times = ring.time_s
        assert times.keys() - BETWEEN == expected
        assert all(f"time/{part}" in METRICS for part in times)
        assert min(times.values()) >= 0
        assert sum(times[part] for part in PARTS) <= times["step"]


def check_ranks(ring):
    """The ring holds the seconds of rank 0, which are not below the fastest rank's nor above the slowest rank's."""
    times = ring.time_s
    computed = times["forward_backward"] + times["optimizer"]
    assert times["compute_fastest"] <= computed <= times["compute_slowest"]
    assert times["communication"] > 0


def test_parts_add_up_to_the_step(reference):
    """Two replicas; the time between two steps is in neither step."""
    found = list(reference.path_rings())
    check_parts(found, {"step"} | PARTS | OVER_RANKS)
    for ring in found:
        check_ranks(ring)
        assert ("validation" in ring.time_s) == (ring.validation is not None)
        assert ("checkpoint" in ring.time_s) == (ring.step in (5, 9, 13)), "saved after the step before"
        assert ("record" in ring.time_s) == (ring.step > 1), "the ring before was appended"


def test_a_rank_alone_has_no_others(zygote, project, tmp_path):
    zygote.train(project, tmp_path, "--set=parallel.data=1", "--set=schedule.train_tokens=1280")
    check_parts(list(run_of(tmp_path).path_rings()), {"step"} | PARTS)


def test_a_slow_stage_is_a_bubble_and_its_rank_is_known(zygote, project, tmp_path):
    slow = {"rank": 1, "seconds": 0.1}
    zygote.train(project, tmp_path, "--set=parallel.pipeline=2", "--set=schedule.train_tokens=1280", slow_stage=slow)
    run = run_of(tmp_path)
    found = list(run.path_rings())
    check_parts(found, {"step"} | PARTS | OVER_RANKS | OF_PIPELINE)
    for ring in found:
        check_ranks(ring)
        slept_s = 0.1 * ring.global_batch_size / 2
        assert ring.time_s["compute_slowest"] > slept_s
        assert 0 < ring.time_s["pipeline_bubble"] < ring.time_s["pipeline"]
        assert ring.time_s["pipeline"] > slept_s
        # Rank 0 goes through the same step, and waits in it for rank 1.
        assert sum(ring.time_s[part] for part in PARTS) > slept_s
    speeds = {speed.rank: speed for speed in rank_speeds(run.attempts()[0])}
    assert speeds.keys() == {0, 1}
    assert speeds[1].compute_s > 0.1 * found[0].global_batch_size / 2
    assert speeds[1].tflops > 0


def test_a_folded_pipeline_is_measured_alike(zygote, project, tmp_path):
    settings = ("model.num_layers=4", "parallel.pipeline=2", "parallel.data=1", "parallel.pipeline_schedule=dualpipev")
    settings += ("parallel.micro_batch_size=1", "schedule.train_tokens=1280")
    zygote.train(project, tmp_path, *(f"--set={setting}" for setting in settings), "--no-publish")
    found = list(run_of(tmp_path).path_rings())
    check_parts(found, {"step"} | PARTS | OVER_RANKS | OF_PIPELINE)
    for ring in found:
        check_ranks(ring)
        assert 0 < ring.time_s["pipeline_bubble"] < ring.time_s["pipeline"]


def test_bubble_is_what_ranks_wait_on_average():
    # Two stages, four micro-batches, passes of a second forward and two backward: 1F1B takes (4 + 1) x 3 seconds.
    assert pipeline_wait(np.array([12.0, 12.0]), np.array([15.0, 13.0])) == (15.0, 3.0)
    # A stage that is twice as slow: the other one waits for half of its time.
    assert pipeline_wait(np.array([12.0, 24.0]), np.array([27.0, 25.0])) == (27.0, 9.0)


@pytest.fixture
def clock(monkeypatch):
    """A clock that only the test moves."""
    hands = SimpleNamespace(now_s=100.0)
    monkeypatch.setattr(timing.time, "perf_counter", lambda: hands.now_s)
    return hands


class Channel:
    """Stands for torch's communication classes: an exchange lasts as long as a test asks for."""

    def __init__(self, clock):
        self.clock = clock

    def exchange(self, seconds):
        self.clock.now_s += seconds


def test_a_step_is_split_without_a_gap(clock):
    StepTimer.watch(Channel, "exchange")
    channel, timer = Channel(clock), StepTimer(SimpleNamespace(num_stages=1))
    channel.exchange(50.0)  # before the step
    timer.start()
    clock.now_s += 2.0
    channel.exchange(4.0)
    timer.optimizer_begins()
    channel.exchange(8.0)
    clock.now_s += 16.0
    timer.optimizer_ends()
    clock.now_s += 32.0
    found = timer.stop()
    channel.exchange(50.0)  # after the step
    assert (found.forward_backward_s, found.optimizer_s, found.communication_s) == (34.0, 16.0, 12.0)
    assert (found.compute_s, found.passes_s, found.pipeline_s) == (50.0, 0.0, 0.0)


def test_the_bubble_of_a_stage_that_waits(clock):
    """A stage forwards for 2 s, waits 3 s for the next stage, and goes backward for 4 s: 6 of 9 s are passes."""

    def act(_engine, seconds):
        clock.now_s += seconds

    engine = SimpleNamespace(num_stages=2, _INSTRUCTION_MAP=dict.fromkeys(
        (timing.schedule.ForwardPass, timing.schedule.BackwardPass, timing.schedule.RecvGrad), act
    ))  # fmt: skip
    timer = StepTimer(engine)
    forward, backward, receive = engine._INSTRUCTION_MAP.values()
    timer.start()
    forward(engine, 2.0)
    receive(engine, 3.0)
    backward(engine, 4.0)
    clock.now_s += 1.0  # the update
    found = timer.stop()
    assert (found.passes_s, found.pipeline_s) == (6.0, 9.0)
    assert pipeline_wait(np.array([found.passes_s, 8.0]), np.array([found.pipeline_s, 9.0])) == (9.0, 2.0)
