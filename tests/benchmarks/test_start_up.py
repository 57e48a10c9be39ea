"""The benchmark of start-up: its figures have their shape; what they say is for a quiet machine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "experiments/benchmarks/start_up.py"


@pytest.mark.slow
def test_each_command_stands_beside_its_peers(tmp_path):
    out = tmp_path / "out.json"
    done = subprocess.run(
        [sys.executable, BENCHMARK, "--rounds=1", f"--json={out}"], capture_output=True, text=True, check=True
    )
    found = json.loads(out.read_text())
    assert list(found) == ["python", "typer and rich", "treering --help", "treering runs"]
    assert all(seconds > 0 for seconds in found.values())
    assert [line[:15].rstrip() for line in done.stdout.splitlines()] == [name[:15] for name in found]
    assert "1.00 of typer and rich" in done.stdout
