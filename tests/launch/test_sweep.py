"""Sweeps before anything is trained: the grid, the plan, and the batch jobs of Slurm."""

import json
import shlex
import time
from argparse import Namespace
from pathlib import Path

import pytest
import text_project
import yaml
from typer.testing import CliRunner

from treering.cli import app
from treering.config.load import load_experiment
from treering.config.sweep import load_sweep
from treering.errors import ConfigError, UserError
from treering.launch.sweep import plan_sweep
from treering_trainer.launch.sweep import _words

SHIPPED = Path(__file__).parents[2] / "experiments/ablations/learning_rate.yaml"

EXPERIMENT = text_project.experiment(
    "small",
    seed=7,
    optimizer={"peak_learning_rate": 0.003, "min_learning_rate": 0.0003},
    schedule={"train_tokens": 3200, "global_batch_size": 8},
    parallel={"micro_batch_size": 2},
    checkpoint={"every_steps": 4},
)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return text_project.lay(tmp_path_factory.mktemp("sweep"), EXPERIMENT)


@pytest.fixture
def sweep(project, tmp_path):
    """Writes a sweep's file beside the project."""

    def write(grid, **others):
        file = tmp_path / "sweep.yaml"
        file.write_text(yaml.safe_dump({"experiment": str(project.root / "small.yaml"), "grid": grid, **others}))
        return file

    return write


@pytest.fixture
def invoke(project, monkeypatch):
    monkeypatch.chdir(project.root)
    return lambda *arguments: CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)


def test_the_last_line_of_a_grid_varies_fastest_and_every_value_comes_back_as_it_was(sweep, project):
    grid = {
        "description": ["it's 1e-3: [x]", None],
        "optimizer": [{"peak_learning_rate": 1e-5, "min_learning_rate": 0}],
        "seed": [1, 2],
    }
    file = sweep(grid)
    file.write_text(yaml.safe_dump({"experiment": str(project.root / "small.yaml"), "grid": grid}, sort_keys=False))
    points = load_sweep(file).points
    assert [(point.values["description"], point.values["seed"]) for point in points] == [
        ("it's 1e-3: [x]", 1),
        ("it's 1e-3: [x]", 2),
        (None, 1),
        (None, 2),
    ]
    experiment = load_experiment(project.root / "small.yaml", points[1].overrides)
    assert (experiment.description, experiment.seed) == ("it's 1e-3: [x]", 2)
    assert experiment.optimizer.peak_learning_rate == 1e-5


def test_the_plan_is_printed_and_nothing_is_written(invoke, sweep, project):
    file = sweep({"optimizer.peak_learning_rate": [0.003, 0.001], "seed": [1, 2, 3]})
    text = invoke("train", "--sweep", file, "--dry-run", "--set", "schedule.train_tokens=6400").stdout
    assert "6 of 6 runs" in text
    assert [line.split()[1:] for line in text.splitlines() if "seed=2" in line][1] == [
        "optimizer.peak_learning_rate=0.001,",
        "seed=2",
        "25",
        "new",
    ]
    runs = json.loads(invoke("train", "--sweep", file, "--dry-run", "--json").stdout)["runs"]
    assert len({run["run"] for run in runs}) == 6
    assert runs[5] | {"run": ""} == {
        "run": "",
        "values": {"optimizer.peak_learning_rate": 0.001, "seed": 3},
        "state": "empty",
        "steps": 13,
    }
    assert not project.runs.exists()


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({}, "grid: found .*, expected"),
        ({"seed": []}, "found seed without a value, expected a list of values"),
        ({"seed": [1, 2, 1]}, "found seed with 1 twice, expected each value once"),
        ({"seed": 1}, "grid.seed: found 1, expected a valid list"),
        ({"a..b": [1]}, "found 'a..b', expected a dotted path"),
        ({"seed": list(range(101)), "blend.seed": list(range(101))}, "found 10,201 runs, expected at most 10,000"),
        ({"model.num_layer": [1]}, "model.num_layer: found an unknown key, expected .* did you mean num_layers"),
        ({"seed": [1, -5]}, r"with --set seed=-5: seed: found -5"),
    ],
)
def test_a_wrong_grid_is_refused_before_anything_begins(invoke, sweep, grid, message):
    with pytest.raises(ConfigError, match=message):
        invoke("train", "--sweep", sweep(grid), "--dry-run")


def test_points_that_are_one_run_are_refused(invoke, sweep):
    with pytest.raises(UserError, match=r"are the same run .*, expected points that differ in the recipe"):
        invoke("train", "--sweep", sweep({"parallel.cpu_processes": [1, 2]}), "--dry-run")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("train", "small.yaml", "--sweep"), "train --sweep: found CONFIG, expected the sweep's file alone"),
        (("train", "--start-over", "--sweep"), "train --sweep: found --start-over"),
        (("train", "--stop-after", 3, "--sweep"), "train --sweep: found --stop-after"),
        (("launch", "--hostfile", "h", "--sweep"), "launch --sweep: found --hostfile, expected --slurm"),
        (("launch", "--slurm", "--output", "f", "--sweep"), "launch --sweep: found --output"),
    ],
)
def test_options_that_a_sweep_has_no_use_for(invoke, sweep, words, message):
    with pytest.raises(UserError, match=message):
        invoke(*words, sweep({"seed": [1, 2]}))


def test_a_dry_run_without_a_sweep_and_a_sweep_of_torchrun_are_refused(invoke, sweep, monkeypatch):
    with pytest.raises(UserError, match="found --dry-run or --json without --sweep"):
        invoke("train", "small.yaml", "--dry-run")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(UserError, match="found RANK, which an outer launcher such as torchrun sets"):
        invoke("train", "--sweep", sweep({"seed": [1, 2]}))


SQUEUE = """#!/bin/sh
here=$(dirname "$0")
if [ -e "$here/asks" ]; then cat "$here/asks" >&2; exit 1; fi
[ "$*" = "--noheader --format=%T --jobs=4711" ] && echo PENDING
"""


def test_each_run_that_is_left_gets_a_job_of_slurm(invoke, sweep, project, tmp_path, monkeypatch):
    file = sweep({"optimizer.peak_learning_rate": [0.003, 0.001], "seed": [1, 2]})
    small = ("launch", "--sweep", file, "--slurm", "--nodes", 1, "--gpus-per-node", 0, "--tasks-per-node", 1)
    shown = json.loads(invoke(*small, "--dry-run", "--json", "--set", "parallel.data=1").stdout)["runs"]
    assert not project.runs.exists()
    (tmp_path / "sbatch").write_text("#!/bin/sh\necho $2 >> jobs; echo 4711\n")
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "squeue").write_text(SQUEUE)
    (tmp_path / "squeue").chmod(0o755)
    printed = invoke(*small, "--submit", "--set", "parallel.data=1").stdout
    scripts = [Path(line) for line in (project.root / "jobs").read_text().splitlines()]
    assert [str(script) for script in scripts] == [run["script"] for run in shown]
    assert printed.count("job 4711") == 4
    words = shlex.split(scripts[2].read_text().partition("\nsrun ")[2].partition("\ncode=")[0].replace("\\\n", " "))
    assert words[-6:] == [
        str(project.root / "small.yaml"),
        "--set=parallel.data=1",
        "--set=optimizer.peak_learning_rate=0.001",
        "--set=seed=1",
        "--no-publish",
        "--time-limit=86100",
    ]
    # The second submit: the job of every run waits, then one has left the queue, then squeue does not answer.
    other = ("--submit", "--time", "12h", "--set", "parallel.data=1")
    assert invoke(*small, *other).stdout.count("job 4711 is in the queue already (PENDING)") == 4
    (tmp_path / "asks").write_text("slurm_load_jobs error: Invalid job id specified")
    again = json.loads(invoke(*small, *other, "--json").stdout)["runs"]
    assert [(run["job"], run["queued"], run["doubt"]) for run in again] == [("4711", None, None)] * 4
    (tmp_path / "asks").write_text("Unable to contact slurm controller")
    assert "job 4711 of this run may be in the queue too" in invoke(*small, *other).stdout
    assert len((project.root / "jobs").read_text().splitlines()) == 12


def test_every_run_gets_what_is_left_of_the_time(sweep, project):
    plan = plan_sweep(sweep({"seed": [1]}), project, ["precision=fp32"])
    options = Namespace(continue_changed=True, runs=Path("elsewhere"))
    assert _words(plan, plan.runs[0], options, time.monotonic() + 100.4) == [
        "--no-publish",
        "--set=precision=fp32",
        "--set=seed=1",
        "--continue-changed",
        "--time-limit=100",
        "--runs=elsewhere",
        "--",
        str(project.root / "small.yaml"),
    ]
    assert "--time-limit=1" in _words(plan, plan.runs[0], options, time.monotonic() - 5)


def test_the_sweep_that_comes_with_treering():
    found = load_sweep(SHIPPED)
    rates = [load_experiment(found.experiment, point.overrides).optimizer.peak_learning_rate for point in found.points]
    assert rates == [2e-3] * 3 + [1e-3] * 3
