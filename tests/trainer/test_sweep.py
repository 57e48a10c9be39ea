"""A sweep trained for real: twelve runs of four configs, stopped on the way; then what is said about them."""

import json
import signal
import subprocess
import sys

import pytest
import text_project
import yaml
from dashboard_page import page, texts
from trained import eventually, rings_after

from treering.runlog.find import find_runs

pytestmark = [pytest.mark.trainer, pytest.mark.slow]

EXPERIMENT = text_project.experiment(
    "tiny",
    seed=7,
    optimizer={"peak_learning_rate": 0.02, "min_learning_rate": 0.002},
    schedule={"train_tokens": 32 * 8 * 12, "global_batch_size": 8, "warmup_tokens": 256},
    parallel={"micro_batch_size": 8, "cpu_processes": 1},
    checkpoint={"every_steps": 100},
    validation={"every_steps": 6, "samples": 4},
)
EXPERIMENT["model"] |= {"num_layers": 1, "hidden_size": 16, "num_attention_heads": 2}

GRID = {"optimizer.peak_learning_rate": [0.02, 0.004], "optimizer.weight_decay": [0.1, 0.11], "seed": [1, 2, 3]}
"""Learning rate makes a difference that 12 steps show; a tenth of weight decay makes none."""


def write_sweep(project, name, grid):
    (project.root / name).write_text(yaml.safe_dump({"experiment": "tiny.yaml", "grid": grid}, sort_keys=False))
    return name


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return text_project.lay(tmp_path_factory.mktemp("swept"), EXPERIMENT)


@pytest.fixture(scope="module")
def swept(zygote, project):
    """The project after its sweep: the command itself begins, is stopped in its third run, and another one goes on."""
    file = write_sweep(project, "grid.yaml", GRID)
    command = [sys.executable, "-m", "treering", "train", "--sweep", file, "--runs", "runs"]
    begun = subprocess.Popen(command, cwd=project.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert eventually(lambda: len(find_runs(project.runs)) == 3)
    third = find_runs(project.runs)[-1]
    assert eventually(lambda: rings_after(third, 1))
    begun.send_signal(signal.SIGTERM)
    text, _ = begun.communicate(timeout=300)
    assert begun.returncode == 75, text
    assert "12 of 12 runs of tiny.yaml are not finished" in text
    before = {run.id: run.state() for run in find_runs(project.runs)}
    training = zygote.start(project, project.runs, "--json", config=file, sweep=True)
    assert training.wait() == 0, training.output
    return project, before, training.output


def test_a_stopped_sweep_goes_on_and_leaves_finished_runs_alone(swept):
    project, before, output = swept
    runs = {run.id: run for run in find_runs(project.runs)}
    assert sorted(before.values()) in (["finished", "finished", "interrupted"], ["finished"] * 3)
    assert [run.state() for run in runs.values()] == ["finished"] * 12
    for name, state in before.items():
        assert len(runs[name].attempts()) == (1 if state == "finished" else 2)
    rows = json.loads(output.splitlines()[-1])["runs"]
    assert [(row["exit_code"], row["state"]) for row in rows] == [(0, "finished")] * 12
    seeds = [runs[row["run"]].resolved.recipe.seed for row in rows]
    assert seeds == [1, 2, 3] * 4
    assert not project.published.exists()


def test_four_configs_of_three_seeds_give_one_right_sentence_each(swept, monkeypatch, treering):
    """Twice: a lower learning rate learns less in 12 steps. Once: a little more weight decay changes nothing."""
    project, _, output = swept
    monkeypatch.chdir(project.root)
    names = [row["run"] for row in json.loads(output.splitlines()[-1])["runs"]]
    code, text, _ = treering("compare", *names)
    assert code == 0
    best, *found = [line for line in text.splitlines() if " against " in line]
    assert best.startswith(("A has the lowest", "B (optimizer.weight_decay 0.1 → 0.11) has the lowest"))
    assert "beyond the noise of seeds against C and D" in best
    assert "within the noise of seeds against " in best
    decay, rate, both = found
    assert decay.startswith("B against A (optimizer.weight_decay 0.1 → 0.11): held-out loss ")
    assert "3 and 3 seeds), within the noise of seeds; a difference of" in decay
    assert rate.startswith("C against A (optimizer.peak_learning_rate 0.02 → 0.004): held-out loss +")
    changes = "optimizer.peak_learning_rate 0.02 → 0.004, optimizer.weight_decay 0.1 → 0.11"
    assert both.startswith(f"D against A ({changes}): held-out loss +")
    for line in (rate, both):
        assert "3 and 3 seeds), higher beyond the noise of seeds. Both read the same data (12 common steps)." in line
    monkeypatch.setenv("TREERING_ROOT", str(project.root))
    shown = texts(page("compare", runs=names)).splitlines()
    for line in (best, decay, rate, both):
        assert line in shown


def test_a_run_that_fails_does_not_hold_up_the_next_one(zygote, project, tmp_path):
    file = write_sweep(project, "bad.yaml", {"optimizer.peak_learning_rate": [1e30, 0.02], "blend.seed": [4]})
    short = "--set=schedule.train_tokens=768"
    training = zygote.start(project, tmp_path, short, config=file, sweep=True)
    assert training.wait() == 5, training.output
    assert sorted(run.state() for run in find_runs(tmp_path)) == ["failed", "finished"]
    assert "sweep: 1 of 2 runs are finished" in training.output
    assert "optimizer.peak_learning_rate=1e+30, blend.seed=4 (" in training.output
