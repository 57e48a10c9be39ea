"""The benchmark of columns: its figures have their shape; what they say is for a quiet machine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "experiments/benchmarks/columns.py"


@pytest.mark.slow
def test_columns_are_built_and_read_beside_their_peers(tmp_path):
    out = tmp_path / "out.json"
    sizes = ["--steps=3000", "--many-steps=50", "--command-steps=300", "--rounds=1"]
    done = subprocess.run(
        [sys.executable, BENCHMARK, *sizes, f"--json={out}"], capture_output=True, text=True, check=True
    )
    found = json.loads(out.read_text())
    assert found["one"].pop("spike") is True
    assert found["one"]["steps"] == 3000
    assert found["many"]["runs"] == 50
    assert found["commands"]["steps"] == 300
    assert all(value > 0 for part in found.values() for value in part.values())
    assert found["one"]["columns_bytes_a_point"] < found["one"]["rings_bytes_a_point"]
    assert "spike                        True" in done.stdout
