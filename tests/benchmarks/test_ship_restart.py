"""The benchmark of the shipper's restart: what it ships is whole; its times are for a quiet machine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "experiments/benchmarks"


@pytest.mark.slow
def test_a_restart_sends_nothing_again(tmp_path):
    out = tmp_path / "out.json"
    command = [sys.executable, str(BENCHMARKS / "ship_restart.py"), "--steps", "300", "--json", str(out)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    (found,) = json.loads(out.read_text())
    assert (found["steps"], found["most_points_of_a_metric"]) == (300, 300)
    assert (found["restart_sent"]["ring"], found["new_ring_sent"]["ring"]) == (0, 1)
    assert found["points"] >= 300 * 5
