"""The shipped ablation of fused kernels on the tiny project."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from trained import resolved

pytestmark = [pytest.mark.trainer, pytest.mark.slow]

SCRIPT = Path(__file__).parents[2] / "experiments/ablations/fused_kernels.py"
SHORT = ("schedule.train_tokens=640", "schedule.warmup_tokens=64", "parallel.data=1", "validation=null")


def kernels_of(name):
    """The settings that the script trains with."""
    found = runpy.run_path(str(SCRIPT))["KERNELS"][name]
    return [f"--set=kernels.{operation}={kernel}" for operation, kernel in found.items()]


def test_fused_kernels_on_and_off(zygote, project, tmp_path):
    """One half is trained before, so the script trains the other half and finds the first."""
    command = [sys.executable, str(SCRIPT), "tiny.yaml", f"--runs={tmp_path}", f"--json={tmp_path / 'found.json'}"]
    command += [f"--set={setting}" for setting in SHORT]
    before = [*kernels_of("eager"), *(f"--set={setting}" for setting in SHORT), "--no-publish"]
    zygote.train(project, tmp_path / "eager", *before)
    first = subprocess.run(command, cwd=project.root, capture_output=True, text=True, timeout=600, check=False)
    assert first.returncode == 0, first.stderr
    assert first.stderr.count("nothing to train") == 1
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


def test_a_config_that_does_not_hold_is_refused(project, tmp_path):
    command = [sys.executable, str(SCRIPT), "tiny.yaml", f"--runs={tmp_path}", "--set=seed=-1"]
    done = subprocess.run(command, cwd=project.root, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 2
    assert "seed: found -1" in done.stderr
    assert not list(tmp_path.iterdir())
