"""The benchmark of copies: its figures have their shape; what they say is for a quiet machine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "experiments/benchmarks/copies.py"


@pytest.mark.slow
def test_copies_are_measured_beside_a_plain_copy(tmp_path):
    out = tmp_path / "out.json"
    subprocess.run([sys.executable, BENCHMARK, "--steps=300", f"--json={out}"], capture_output=True, check=True)
    (found,) = json.loads(out.read_text())
    assert found.pop("mirror_is_equal") is True
    assert (found["steps"], found["files_with_news"], found["parts"]) == (300, 1, 2)
    assert 0 < found["mirror_with_a_ring_bytes"] < found["rings_bytes"] / 100
    assert all(value > 0 for value in found.values())
