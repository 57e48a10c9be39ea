"""Where a step's time goes: parts that add up, a slow rank that shows, a bubble that is measured."""

import json

import numpy as np
import pytest

from treering.runlog.catalogue import METRICS
from treering.runlog.directory import RunDirectory
from treering_trainer.timing import pipeline_wait

pytestmark = pytest.mark.trainer

PARTS = {"data_wait", "forward_backward", "communication", "optimizer"}
BETWEEN = {"checkpoint", "record", "validation"}
OVER_RANKS = {"compute_fastest", "compute_slowest"}
OF_PIPELINE = {"pipeline", "pipeline_bubble"}


def rings(runs):
    (path,) = runs.glob("*/resolved.json")
    return list(RunDirectory(path.parent).path_rings())


def check_parts(ring, expected):
    times = ring.time_s
    assert times.keys() - BETWEEN == expected
    assert all(f"time/{part}" in METRICS for part in times)
    assert min(times.values()) >= 0
    assert sum(times[part] for part in PARTS) == pytest.approx(times["step"], abs=0.2 * times["step"])
    assert sum(times[part] for part in PARTS) <= times["step"]


def test_parts_add_up_to_the_step(reference):
    """Two replicas; what lies between two steps is in no part of either."""
    found = list(reference.path_rings())
    for ring in found:
        check_parts(ring, {"step"} | PARTS | OVER_RANKS)
        assert ring.time_s["compute_fastest"] <= ring.time_s["compute_slowest"] < ring.time_s["step"]
        assert ring.time_s["communication"] > 0
        assert ("validation" in ring.time_s) == (ring.validation is not None)
        assert ("checkpoint" in ring.time_s) == (ring.step in (5, 9, 13)), "saved after the step before"
        assert ("record" in ring.time_s) == (ring.step > 1), "the ring before was laid"


def test_a_rank_alone_has_no_others(zygote, project, tmp_path):
    zygote.train(project, tmp_path, "--set=parallel.data=1", "--set=schedule.train_tokens=1280")
    for ring in rings(tmp_path):
        check_parts(ring, {"step"} | PARTS)


def test_a_slow_stage_is_a_bubble_and_its_rank_is_known(zygote, project, tmp_path):
    slow = {"rank": 1, "seconds": 0.1}
    zygote.train(project, tmp_path, "--set=parallel.pipeline=2", "--set=schedule.train_tokens=1280", slow_stage=slow)
    found = rings(tmp_path)
    for ring in found:
        check_parts(ring, {"step"} | PARTS | OVER_RANKS | OF_PIPELINE)
        times, micro_batches = ring.time_s, ring.global_batch_size // 2
        assert times["compute_slowest"] > 0.1 * micro_batches
        assert times["pipeline"] > 0.1 * micro_batches
        # Rank 0 waits for rank 1, so half of all time is lost; some of it goes by in passes of its own.
        assert 0.25 < times["pipeline_bubble"] / times["pipeline"] < 0.75
        assert times["communication"] > times["compute_fastest"]
    folder = next(tmp_path.glob("*/attempts/0001/telemetry"))
    own = {}
    for rank in (0, 1):
        lines = [json.loads(line)["values"] for line in (folder / f"rank-{rank}.jsonl").read_text().splitlines()]
        own[rank] = [values for values in lines if "rank/step" in values]
        assert all(key in METRICS for values in own[rank] for key in values if key != "device")
    assert max(values["rank/compute"] for values in own[0]) < min(values["rank/compute"] for values in own[1])
    assert own[1][-1]["rank/tflops"] == pytest.approx(found[-1].tflops_per_device, rel=0.5)


def test_bubble_is_what_ranks_wait_on_average():
    # Two stages, four micro-batches, passes of a second forward and two backward: 1F1B takes (4 + 1) x 3 seconds.
    assert pipeline_wait(np.array([12.0, 12.0]), np.array([15.0, 13.0])) == (15.0, 3.0)
    # A stage that is twice as slow: the other one waits for half of its time.
    assert pipeline_wait(np.array([12.0, 24.0]), np.array([27.0, 25.0])) == (27.0, 9.0)
