"""The shipped ablation of fused kernels on the tiny project."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from trained import resolved

pytestmark = [pytest.mark.trainer, pytest.mark.slow]

SCRIPT = Path(__file__).parents[2] / "experiments/ablations/fused_kernels.py"
SHORT = ("schedule.train_tokens=640", "schedule.warmup_tokens=64", "parallel.data=1", "validation=null")


def test_fused_kernels_on_and_off(project, tmp_path):
    command = [sys.executable, str(SCRIPT), "tiny.yaml", f"--runs={tmp_path}", f"--json={tmp_path / 'found.json'}"]
    command += [f"--set={setting}" for setting in SHORT]

    def run():
        return subprocess.run(command, cwd=project.root, capture_output=True, text=True, timeout=600, check=False)

    first = run()
    assert first.returncode == 0, first.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["run"] == resolved(project, *SHORT).run_id
    assert found["steps"] == resolved(project, *SHORT).schedule.num_steps == 5
    assert found["same_batches"]
    assert found["largest_loss_difference"] < 5e-6
    assert found["speed_ratio"] > 0
    kernels = {name: (each["eager"]["used"], each["fused"]["used"]) for name, each in found["kernels"].items()}
    assert kernels.pop("optimizer")[1] == "torch_fused"
    assert kernels == {
        "attention": ("sdpa_math", "sdpa_flash"),
        "bias_gelu": ("eager", "compiled"),
        "bias_dropout_add": ("eager", "compiled"),
        "layer_norm": ("torch", "torch"),
        "softmax": ("torch", "within attention"),
        "cross_entropy": ("eager", "compiled"),
    }
    assert f"run {found['run']}: 5 steps each, the same batches" in first.stdout
    assert "| attention | sdpa_math | sdpa_flash | torch's choice" in first.stdout
    again = run()
    assert again.stdout == first.stdout
    assert again.stderr.count("nothing to train") == 2


def test_a_config_that_does_not_hold_is_refused(project, tmp_path):
    command = [sys.executable, str(SCRIPT), "tiny.yaml", f"--runs={tmp_path}", "--set=seed=-1"]
    done = subprocess.run(command, cwd=project.root, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 2
    assert "seed: found -1" in done.stderr
    assert not list(tmp_path.iterdir())
