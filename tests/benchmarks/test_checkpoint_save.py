"""The benchmark of saving: its figures have their shape; what they say is for a quiet machine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "experiments/benchmarks/checkpoint_save.py"


@pytest.mark.slow
@pytest.mark.trainer
def test_the_ways_to_save_stand_side_by_side(tmp_path):
    out = tmp_path / "out.json"
    options = ("--rounds=3", "--layers=1", "--hidden=32", f"--folder={tmp_path}", f"--json={out}")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *options], capture_output=True, text=True, timeout=300, check=True
    )
    found = json.loads(out.read_text())
    assert len(found["rounds"]) == 3
    ways = ["native", "rank 0", "each", "beside", "slower steps"]
    for each in found["rounds"]:
        assert list(each) == ways
        assert all(each[way] > 0 for way in ways[:4])
    assert found["bytes"] > 4 * 4 * 8192 * 32  # the embedding: weight, its copy in fp32 and two moments
    seconds = sorted(each["each"] for each in found["rounds"])
    assert (found["lowest_s"]["each"], found["median_s"]["each"]) == (seconds[0], seconds[1])
    ratio = seconds[0] / found["lowest_s"]["native"]
    assert f"each          {seconds[0]:>10.2f}{seconds[1]:>10.2f}{ratio:>12.2f}" in done.stdout
    assert list(tmp_path.iterdir()) == [out]
