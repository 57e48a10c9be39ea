"""The benchmark of reporting a step: its figures have their shape; what they say is for a quiet machine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "experiments/benchmarks/record_step.py"


@pytest.mark.slow
def test_each_writer_stands_beside_its_peers(tmp_path):
    out = tmp_path / "out.json"
    done = subprocess.run(
        [sys.executable, BENCHMARK, "--steps=200", f"--json={out}"], capture_output=True, text=True, check=True
    )
    found = json.loads(out.read_text())
    assert list(found) == ["treering run.step", "JSON, fsync each step", "JSON, fsync each 50", "mlflow, SQLite"]
    assert all(0 < each["mean_us"] <= each["p99_us"] * 100 for each in found.values())
    assert done.stdout.splitlines()[0].endswith("1.00 of ours")
