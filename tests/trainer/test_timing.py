"""Where a step's time goes: parts that add up, a slow rank that shows, a bubble that is measured."""

from statistics import median

import numpy as np
import pytest
from trained import run_of

from treering.metrics.ranks import rank_speeds
from treering.runlog.metric_catalog import METRICS
from treering_trainer.core.timing import pipeline_wait

pytestmark = [pytest.mark.trainer, pytest.mark.slow]

PARTS = {"data_wait", "forward_backward", "communication", "optimizer"}
BETWEEN = {"checkpoint", "record", "validation"}
OVER_RANKS = {"compute_fastest", "compute_slowest"}
OF_PIPELINE = {"pipeline", "pipeline_bubble"}


def check_parts(rings, expected):
    """A machine may stop a process anywhere, so only the sum over all steps must leave little between the parts."""
    for ring in rings:
        times = ring.time_s
        assert times.keys() - BETWEEN == expected
        assert all(f"time/{part}" in METRICS for part in times)
        assert min(times.values()) >= 0
        assert sum(times[part] for part in PARTS) <= times["step"]
    whole = sum(ring.time_s["step"] for ring in rings)
    assert sum(ring.time_s[part] for part in PARTS for ring in rings) > 0.7 * whole


def test_parts_add_up_to_the_step(reference):
    """Two replicas; what lies between two steps is in no part of either."""
    found = list(reference.path_rings())
    check_parts(found, {"step"} | PARTS | OVER_RANKS)
    for ring in found:
        assert ring.time_s["compute_fastest"] <= ring.time_s["compute_slowest"] < ring.time_s["step"]
        assert ring.time_s["communication"] > 0
        assert ("validation" in ring.time_s) == (ring.validation is not None)
        assert ("checkpoint" in ring.time_s) == (ring.step in (5, 9, 13)), "saved after the step before"
        assert ("record" in ring.time_s) == (ring.step > 1), "the ring before was laid"


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
        slept_s = 0.1 * ring.global_batch_size / 2
        assert ring.time_s["compute_slowest"] > slept_s
        assert ring.time_s["pipeline"] > slept_s
    # Rank 0 waits for rank 1, so half of all time is lost, but for what rank 0 computes meanwhile.
    assert 0.2 < median(ring.time_s["pipeline_bubble"] / ring.time_s["pipeline"] for ring in found) < 0.8
    assert median(ring.time_s["communication"] for ring in found) > median(
        ring.time_s["compute_fastest"] for ring in found
    )
    slowest, fastest = rank_speeds(run.attempts()[0])
    assert (slowest.rank, fastest.rank) == (1, 0)
    assert slowest.compute_s > 0.1
    assert slowest.tflops > 0


def test_a_folded_pipeline_is_measured_alike(zygote, project, tmp_path):
    settings = ("model.num_layers=4", "parallel.pipeline=2", "parallel.data=1", "parallel.pipeline_schedule=dualpipev")
    settings += ("parallel.micro_batch_size=1", "schedule.train_tokens=1280")
    zygote.train(project, tmp_path, *(f"--set={setting}" for setting in settings), "--no-publish")
    found = list(run_of(tmp_path).path_rings())
    check_parts(found, {"step"} | PARTS | OVER_RANKS | OF_PIPELINE)
    assert all(0 < ring.time_s["pipeline_bubble"] < ring.time_s["pipeline"] < ring.time_s["step"] for ring in found)


def test_bubble_is_what_ranks_wait_on_average():
    # Two stages, four micro-batches, passes of a second forward and two backward: 1F1B takes (4 + 1) x 3 seconds.
    assert pipeline_wait(np.array([12.0, 12.0]), np.array([15.0, 13.0])) == (15.0, 3.0)
    # A stage that is twice as slow: the other one waits for half of its time.
    assert pipeline_wait(np.array([12.0, 24.0]), np.array([27.0, 25.0])) == (27.0, 9.0)
