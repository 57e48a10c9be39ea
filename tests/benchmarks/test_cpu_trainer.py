"""The benchmark of the trainer on a processor: its figures have their shape; what they say is for a quiet machine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "experiments/benchmarks/cpu_trainer.py"
TINY = (
    "model={num_layers: 1, hidden_size: 32, num_attention_heads: 2, padded_vocab_size: 8192}",
    "blend.sequence_length=32",
    "schedule.global_batch_size=4",
    "parallel.micro_batch_size=2",
)


@pytest.mark.slow
@pytest.mark.trainer
def test_both_loops_run_side_by_side(tmp_path):
    out = tmp_path / "out.json"
    command = [sys.executable, str(SCRIPT), "--blocks=3", "--steps=2", f"--json={out}"]
    done = subprocess.run(
        [*command, *(f"--set={each}" for each in TINY)], capture_output=True, text=True, timeout=300, check=True
    )
    found = json.loads(out.read_text())
    assert len(found["blocks"]) == 3
    assert found["model"] | {"parameters": 0} == {
        "parameters": 0, "num_layers": 1, "hidden_size": 32, "sequence_length": 32, "precision": "fp32",
        "micro_batch_size": 2, "micro_batches": 2,
    }  # fmt: skip
    for block in found["blocks"]:
        assert 0 < block["engine"]["wall_s"] < block["ours"]["wall_s"], "the engine's work is a part of ours"
        assert block["plain"]["wall_s"] > 0
        assert block["telemetry"]["wall_s"] == 0
    ratios = sorted(block["plain"]["wall_s"] / block["ours"]["wall_s"] for block in found["blocks"])
    assert found["speed_relative_to_plain"]["wall_s"] == pytest.approx(ratios[1])
    steps = sorted(block["ours"]["wall_s"] / 2 for block in found["blocks"])
    assert found["tokens_per_second"] == pytest.approx(4 * 32 / steps[1])
    assert f"speed relative to the plain loop{ratios[1]:>22.3f}" in done.stdout
    assert found["machine"]["cores"] >= 1
