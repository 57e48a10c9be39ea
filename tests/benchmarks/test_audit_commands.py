"""The commands answer on a synthetic project as on any other."""

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "experiments" / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import audit_commands

    yield audit_commands
    for name in ("audit_commands", "synthetic_project", "synthetic_index"):
        sys.modules.pop(name, None)


@pytest.mark.slow
def test_every_command_ends_well(benchmark, tmp_path):
    found = benchmark.measure(tmp_path / "project", 9000, 9_000_000, 3, 32)
    assert [each["exit_code"] for each in found["commands"]] == [0] * 9
    assert all(each["peak_mb"] >= each["anonymous_mb"] > 5 for each in found["commands"])
    assert (found["documents"], found["steps"]) == (9000, 3)
    text = benchmark.table({"machine": {"load_average": 1.0}, "projects": [found]})
    assert "audit --summary                  0" in text
    assert "9,000 documents" in text
