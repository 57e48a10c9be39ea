"""The benchmark of durable points a second: its figures have their shape; what they say is for a quiet machine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "experiments/benchmarks/ingest.py"


@pytest.mark.slow
def test_each_writer_stands_beside_its_peers(tmp_path):
    out = tmp_path / "out.json"
    done = subprocess.run(
        [sys.executable, BENCHMARK, "--steps=200", "--rounds=1", f"--json={out}"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(out.read_text())["points_a_second"]
    assert list(found) == ["treering run.step", "JSON lines", "SQLite", "mlflow, SQLite"]
    assert all(rate > 0 for rate in found.values())
    assert done.stdout.splitlines()[0].endswith("1.00 of ours")
