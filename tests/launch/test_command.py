"""`treering launch`: what it prints, keeps, refuses."""

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest
import text_project
from typer.testing import CliRunner

from treering.cli import app
from treering.config.canonical import digest_file
from treering.errors import ConfigError, UserError

MT_NLG = Path(__file__).parents[2] / "experiments" / "mt-nlg-530b.yaml"

EXPERIMENT = text_project.experiment(
    "small",
    seed=7,
    optimizer={"peak_learning_rate": 0.003, "min_learning_rate": 0.0003},
    schedule={"train_tokens": 3200, "global_batch_size": 8, "warmup_tokens": 640},
    parallel={"micro_batch_size": 2},
    checkpoint={"every_steps": 4},
)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return text_project.lay(tmp_path_factory.mktemp("launch"), EXPERIMENT)


@pytest.fixture
def invoke(project, monkeypatch):
    monkeypatch.chdir(project.root)
    return lambda *arguments: CliRunner().invoke(app, ["launch", *map(str, arguments)], catch_exceptions=False)


def kept(project, suffix):
    return sorted(project.runs.glob(f"*/launch/*.{suffix}"))


def test_a_script_for_280_nodes_is_shown_and_nothing_is_written(invoke, project):
    text = invoke(MT_NLG, "--slurm", "--nodes", 280, "--time", "2d", "--account", "nlp", "--dry-run").stdout
    assert "on 280 nodes of 8 ranks, layout 8x35x8 (TP x PP x DP)" in text
    assert "#SBATCH --account=nlp" in text
    assert not project.runs.exists()


def test_a_script_is_kept_with_its_run(invoke, project, tmp_path):
    output = tmp_path / "job.sbatch"
    small = ("small.yaml", "--slurm", "--nodes", 2, "--gpus-per-node", 0, "--tasks-per-node", 1)
    printed = invoke(*small, "--set", "parallel.data=2", "--output", output, "--continue-changed").stdout
    (script,) = kept(project, "sbatch")
    assert f"submit it: sbatch {script}" in printed
    assert script.read_bytes() == output.read_bytes()
    assert digest_file(script).removeprefix("sha256:").startswith(script.stem)
    command = script.read_text().partition("\nsrun ")[2].partition("\ncode=")[0]
    words = shlex.split(command.replace("\\\n", " "))
    assert words[-4:] == ["small.yaml", "--set=parallel.data=2", "--continue-changed", "--time-limit=86100"]
    assert os.access(words[1], os.X_OK)
    document = json.loads(invoke(*small, "--set", "parallel.data=2", "--continue-changed", "--json").stdout)
    assert document["script"] == str(script)
    assert (document["layout"], document["job"], document["text"]) == ("1x1x2", None, script.read_text())


def test_what_cannot_be_written_is_named(invoke, tmp_path):
    small = ("small.yaml", "--slurm", "--nodes", 2, "--gpus-per-node", 0, "--tasks-per-node", 1)
    with pytest.raises(UserError, match=r"--output .*/none/job.sbatch: found No such file or directory"):
        invoke(*small, "--output", tmp_path / "none/job.sbatch")
    (tmp_path / "runs").touch()
    with pytest.raises(UserError, match=r"/launch/.*sbatch: found Not a directory, expected a folder to write to"):
        invoke(*small, "--runs", tmp_path / "runs")


def test_a_refusal_of_sbatch_is_an_error(invoke, tmp_path, monkeypatch):
    small = ("small.yaml", "--slurm", "--nodes", 2, "--gpus-per-node", 0, "--tasks-per-node", 1, "--submit")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="--submit: found no sbatch in PATH"):
        invoke(*small)
    (tmp_path / "sbatch").write_text("#!/bin/sh\necho invalid partition >&2; exit 1\n")
    (tmp_path / "sbatch").chmod(0o755)
    with pytest.raises(UserError, match=r"\.sbatch: sbatch refused it: invalid partition; change the options"):
        invoke(*small)
    (tmp_path / "sbatch").write_text("#!/bin/sh\necho '4711;cluster'\n")
    assert "job 4711" in invoke(*small).stdout


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ((), UserError, "found neither --hostfile and --slurm"),
        (("--slurm", "--hostfile", "h"), UserError, "found both --hostfile and --slurm"),
        (("--slurm",), UserError, "found no --nodes"),
        (
            ("--slurm", "--nodes", 280, "--time-limit", "1h"),
            UserError,
            r"found --time-limit, which --slurm does not use; .* \(the script derives the time limit from --time\)",
        ),
        (
            ("--hostfile", "h", "--nodes", 2, "--submit"),
            UserError,
            "found --nodes, --submit, which --hostfile does not use",
        ),
        (("--slurm", "--nodes", 280, "--tasks-per-node", 4), UserError, "--tasks-per-node: found 4, expected 8"),
        (("--slurm", "--nodes", 280, "--gpus-per-node", 0), UserError, "found no --tasks-per-node"),
        (("--slurm", "--nodes", 100), ConfigError, r"parallel.pipeline: found tensor 8 x pipeline 35 = 280, expected"),
        (("--slurm", "--nodes", 70), ConfigError, r"parallel.data: found 8: .* `--set parallel.data=2`"),
        (
            ("--slurm", "--nodes", 560, "--gpus-per-node", 4),
            ConfigError,
            r"parallel.tensor: found 8, expected a divisor of 4",
        ),
        (
            ("--slurm", "--nodes", 280, "--device", "A100 40GB", "--set", "parallel.activation_recompute=none"),
            ConfigError,
            r"parallel.activation_recompute: found .* expected at most the 40 GB of",
        ),
        (("--hostfile", "none"), UserError, "none: found no readable hostfile"),
    ],
)
def test_what_cannot_run_is_refused(options, error, message, invoke):
    with pytest.raises(error, match=message):
        invoke(MT_NLG, *options, "--dry-run")


def test_what_can_only_be_planned_is_not_started(invoke, project):
    with pytest.raises(ConfigError, match="blend"):
        invoke(MT_NLG, "--slurm", "--nodes", 280)
    project.blend.rename(project.blend.with_suffix(".away"))
    try:
        with pytest.raises(UserError, match="no blend there"):
            invoke("small.yaml", "--slurm", "--nodes", 2)
    finally:
        project.blend.with_suffix(".away").rename(project.blend)


def test_a_hostfile_becomes_deepspeeds_command(invoke, project, tmp_path):
    hostfile = tmp_path / "hosts"
    hostfile.write_text("dgx001 slots=1\ndgx002 slots=1\n")
    words = shlex.split(invoke("small.yaml", "--hostfile", hostfile, "--time-limit", "1h", "--dry-run").stdout)
    assert words[1:3] == ["-m", "deepspeed.launcher.runner"]
    assert words[-3:] == ["treering_trainer.launch", "small.yaml", "--time-limit=3600"]
    document = json.loads(invoke("small.yaml", "--hostfile", hostfile, "--dry-run", "--json").stdout)
    assert document["hosts"] == {"dgx001": 1, "dgx002": 1}
    assert document["variables"]["MASTER_ADDR"] == "dgx001"
    assert not kept(project, "hostfile")


@pytest.mark.slow
@pytest.mark.trainer
def test_deepspeeds_launcher_trains(project, tmp_path):
    """Over this machine's name, which needs neither ssh nor pdsh."""
    (tmp_path / "hosts").write_text("localhost slots=2\n")
    program = "import sys; from treering.cli import main; sys.argv[0] = 'treering'; main()"
    words = ["launch", "small.yaml", f"--hostfile={tmp_path / 'hosts'}", "--no-publish", f"--runs={tmp_path / 'runs'}"]
    done = subprocess.run(
        [os.sys.executable, "-W", "ignore", "-c", program, *words],
        cwd=project.root, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    (header,) = (tmp_path / "runs").glob("*/attempts/0001/header.json")
    launched = json.loads(header.read_text())["launch"]
    assert launched["launcher"] == "deepspeed"
    assert launched["script"]["text"] == "localhost slots=2\n"
