"""Deterministic mode changes no bit on processors, and a training that does not repeat is found."""

import json

import pytest
from trained import assert_identical, run_of
from typer.testing import CliRunner

from treering.cli import app
from treering.collect.determinism import DETERMINISTIC_VARIABLES, known_nondeterminism
from treering.ending import EXIT_DIFFERS
from treering.errors import UserError
from treering.runlog.records import Kernel

pytestmark = [pytest.mark.trainer, pytest.mark.slow]

NOISE = """
import os
import torch
from treering_trainer.monitor.hooks import Hook
from treering_trainer.core.engine import Engine

class Noise(Hook):
    def __init__(self):
        train = Engine.train
        def noisy(self, *arguments):
            for parameter in self.engine.module.parameters():
                other = torch.Generator().manual_seed(int.from_bytes(os.urandom(4)))
                parameter.data.add_(1e-3 * torch.randn(parameter.shape, generator=other))
            return train(self, *arguments)
        Engine.train = noisy
"""


@pytest.fixture
def repeats(trials, project, monkeypatch):
    """Runs the self-test with trainings that the zygote forks."""
    monkeypatch.setattr("treering.reproduce.repeat.start_trainer", trials.start)
    monkeypatch.chdir(project.root)

    def check(*options):
        return CliRunner().invoke(app, ["train", "tiny.yaml", "--check-determinism", *options])

    return check


def test_deterministic_mode_is_on_record_and_changes_no_bit_on_processors(zygote, project, reference, tmp_path):
    zygote.train(project, tmp_path, "--set=deterministic=true")
    run = run_of(tmp_path)
    assert run.id == reference.id, "a setting of the attempt"
    header = run.attempts()[0].header
    assert header.config.deterministic
    assert header.environment["variables"].items() >= DETERMINISTIC_VARIABLES.items()
    assert header.nondeterminism.operations == ()
    assert header.nondeterminism.reason.startswith("none is known on processors")
    assert_identical(run, reference)


def test_a_wrong_experiment_is_the_users_error(repeats):
    done = repeats("--set=optimizer.beta9=2")
    assert isinstance(done.exception, UserError)
    assert "its first 2 steps could not be trained, exit code 2" in str(done.exception)


def test_a_training_that_repeats_is_identical(repeats):
    done = repeats("--json")
    found = json.loads(done.stdout)
    assert (done.exit_code, found["state"], found["numbers"]["compared_steps"]) == (0, "identical", 2)
    assert found["weights"]["steps"][-1]["differences"] == []


def test_planted_noise_is_found_with_step_and_number(repeats, trials, tmp_path):
    (tmp_path / "noise.py").write_text(NOISE)
    (tmp_path / "noise-1.dist-info").mkdir()
    (tmp_path / "noise-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: noise\nVersion: 1\n")
    (tmp_path / "noise-1.dist-info/entry_points.txt").write_text("[treering.hooks]\nnoise = noise:Noise\n")
    trials.faults = {"install": {"folder": str(tmp_path)}}
    done = repeats("--set", "hooks=[{name: noise}]")
    assert done.exit_code == EXIT_DIFFERS
    assert done.stdout.startswith("Same data, numbers differ from step 1 on: loss ")


def test_what_is_known_of_gpus_depends_on_kernels_ranks_and_the_mode():
    flash = (Kernel(operation="attention", requested="sdpa_auto", used="sdpa_flash"),)
    found = known_nondeterminism("cuda", 2, flash, deterministic=False)
    names = [each.operation for each in found.operations]
    assert names == ["attention (sdpa_flash)", "embedding", "matrix product", "all-reduce"]
    math = (flash[0].model_copy(update={"used": "sdpa_math"}),)
    assert [each.operation for each in known_nondeterminism("cuda", 1, math, deterministic=False).operations] == names[
        1:3
    ]
    assert known_nondeterminism("cuda", 2, flash, deterministic=True).operations == ()
