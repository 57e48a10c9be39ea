"""The benchmark of the index of texts: its figures have their shape; what they say is for a quiet machine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import text_project

BENCHMARK = Path(__file__).parents[2] / "experiments/benchmarks/index_build.py"


@pytest.mark.slow
def test_the_index_is_built_and_asked_beside_its_peers(tmp_path):
    document = text_project.experiment(
        "tiny",
        seed=7,
        optimizer={"peak_learning_rate": 1e-3, "min_learning_rate": 1e-4},
        schedule={"train_tokens": 32 * 48, "global_batch_size": 8},
        parallel={"micro_batch_size": 2, "data": 2},
        checkpoint={"every_steps": 3},
    )
    project, out = text_project.lay(tmp_path, document), tmp_path / "out.json"
    done = subprocess.run(
        [sys.executable, BENCHMARK, f"--corpora={project.corpora}", "--copies=3", f"--json={out}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(out.read_text())
    assert found["documents"] == 3 * 120
    one, many, part, python, suffixes = found["builds"]
    assert one["tokens"] == many["tokens"] == 3 * part["tokens"] == 3 * python["tokens"] == 3 * suffixes["tokens"]
    assert one["index_bytes"] == many["index_bytes"]
    assert abs(one["index_bytes"] - 3 * part["index_bytes"]) < 64  # blocks
    assert suffixes["index_bytes"] == 6 * suffixes["tokens"]
    assert all(each["wall_s"] > 0 and each["cpu_s"] > 0 and each["peak_bytes"] > 0 for each in found["builds"])
    assert list(found["lookup"]) == ["held_first_us", "held_again_us", "absent_first_us", "absent_again_us"]
    assert f"{found['tokens']:,} tokens, 360 documents" in done.stdout
