"""The device benchmark runs where there is no device, and says that its figures are then of no use."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "experiments/benchmarks/gpu_trainer.py"


@pytest.mark.slow
@pytest.mark.trainer
def test_it_runs_on_a_processor_and_has_no_mfu_there(tmp_path):
    out = tmp_path / "out.json"
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu"}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--cpu", "--json", str(out)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert "these are no figures of a device" in done.stdout
    results = json.loads(out.read_text())
    assert results["device"] == "cpu"
    assert results["correctness"]["largest_difference_to_cpu"] == 0.0
    assert results["correctness"]["last_loss"] < results["correctness"]["first_loss"]
    assert [case["name"] for case in results["cases"]] == ["tiny, kernels off", "tiny, bf16"]
    assert {case["mfu"] for case in results["cases"]} == {None}
    for case in results["cases"]:
        parts = case["forward_backward_s"] + case["communication_s"] + case["optimizer_s"]
        assert case["step_s"] == pytest.approx(parts)
        samples = case["micro_batch_size"] * case["micro_batches"]
        assert case["tokens_per_second"] == pytest.approx(samples * case["sequence_length"] / case["step_s"])
    alone, beside = results["cases"]
    assert beside["speed_relative_to_plain"] == pytest.approx(beside["plain_step_s"] / beside["step_s"])
    assert alone["speed_relative_to_plain"] is None
