"""The batch script: what it asks Slurm for, and what it does with each end of its ranks.

Slurm itself stands in no test that must always run: `srun` and `scontrol` are small programs of the test's own here.
"""

import os
import shutil
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from treering.errors import UserError
from treering.launch.slurm import IDLE_STARTS, Job, render, slurm_time
from treering.launch.start import Start, keep

SLURM = shutil.which("sbatch") and not subprocess.run(["sinfo"], capture_output=True, check=False).returncode
needs_slurm = pytest.mark.skipif(not SLURM, reason="no Slurm answers here")


def start(root, *arguments):
    return Start(root, Path("demo.yaml"), root / "runs/0123456789abcdef", "1x1x2", "python3", arguments)


def job(**changes):
    asked = {"nodes": 2, "gpus_per_node": 8, "tasks_per_node": 8, "time_s": 86_400, "warning_s": 600}
    return Job(**{**asked, **changes})


def directives(text):
    return [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH ")]


def test_what_is_asked_for(tmp_path):
    text = render(start(tmp_path), job(options=("--partition=batch", "--qos=high")))
    assert directives(text) == [
        "--job-name=treering-0123456789abcdef",
        "--nodes=2",
        "--ntasks-per-node=8",
        "--gpus-per-node=8",
        "--exclusive",
        "--mem=0",
        "--time=1-00:00:00",
        "--signal=USR1@600",
        "--requeue",
        "--open-mode=append",
        f"--chdir={tmp_path}",
        f"--output={tmp_path}/runs/0123456789abcdef/launch/slurm-%j.out",
        "--partition=batch",
        "--qos=high",
    ]
    assert "srun --kill-on-bad-exit=1 python3 -u -m treering_trainer.launch demo.yaml --time-limit=86100" in text


def test_on_processors_no_gpu_and_no_whole_node_is_asked_for(tmp_path):
    asked = directives(render(start(tmp_path), job(gpus_per_node=0, tasks_per_node=2)))
    assert "--ntasks-per-node=2" in asked
    assert not [each for each in asked if each.startswith(("--gpus", "--exclusive", "--mem"))]


def test_a_container_sees_the_project(tmp_path):
    text = render(start(tmp_path), job(container="nvcr.io/nvidia/pytorch:25.10-py3"))
    unfolded = text.replace(" \\\n    ", " ")
    assert (
        "srun --kill-on-bad-exit=1 --container-image=nvcr.io/nvidia/pytorch:25.10-py3 "
        f"--container-mounts={tmp_path}:{tmp_path} --container-workdir={tmp_path} python3 -u -m"
    ) in unfolded


def test_a_container_sees_runs_that_lie_elsewhere(tmp_path):
    begin = replace(start(tmp_path / "project"), run=tmp_path / "runs/0123456789abcdef")
    text = render(begin, job(container="image"))
    assert f"--container-mounts={tmp_path}/project:{tmp_path}/project,{tmp_path}/runs:{tmp_path}/runs" in text


def test_the_script_is_bash_whatever_the_arguments_hold(tmp_path):
    awkward = start(tmp_path, '--set=blend.components.0.weight="0.5"', "--set=description=it's $HOME `x`")
    text = render(awkward, job())
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    unfolded = text.replace(" \\\n    ", " ")
    assert """'--set=blend.components.0.weight="0.5"' '--set=description=it'"'"'s $HOME `x`'""" in unfolded


@pytest.mark.parametrize(
    ("seconds", "text"), [(60, "0-00:01:00"), (86_399, "0-23:59:59"), (86_400 * 3 + 3_723, "3-01:02:03")]
)
def test_time_as_slurm_reads_it(seconds, text):
    assert slurm_time(seconds) == text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"warning_s": 59}, "--warning: found 59 s, expected 60 s to half of --time"),
        ({"time_s": 600, "warning_s": 301}, "--warning: found 301 s"),
        ({"options": ("partition=x",)}, "--sbatch: found 'partition=x', expected an option of sbatch"),
        ({"options": ("--a\nrm",)}, "--sbatch: found"),
    ],
)
def test_what_cannot_be_asked_for(changes, message):
    with pytest.raises(UserError, match=message):
        job(**changes)


def test_a_path_that_no_directive_can_hold(tmp_path):
    for name in ("my project", "100%", "a#b"):
        with pytest.raises(UserError, match="expected a path that an #SBATCH line can hold"):
            render(start(tmp_path / name), job())


@pytest.fixture
def batch(tmp_path):
    """Runs a rendered script as Slurm would, with stand-ins for `srun` and `scontrol`."""
    programs = tmp_path / "bin"
    programs.mkdir()

    def stand_in(name, body):
        (programs / name).write_text(f"#!/bin/bash\n{body}\n")
        (programs / name).chmod(0o755)

    stand_in(
        "scontrol", f'if [[ $1 == show ]]; then echo dgx001; echo dgx002; else echo "$@" >> {tmp_path}/requeued; fi'
    )
    begin = start(tmp_path)
    script = keep(begin, render(begin, job()), "sbatch")

    def run(srun, restarts=None):
        stand_in("srun", srun)
        environ = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "SLURM_JOB_ID": "20007",
            "SLURM_JOB_NODELIST": "dgx[001-002]",
        }
        if restarts is not None:
            environ["SLURM_RESTART_COUNT"] = str(restarts)
        return subprocess.Popen(["bash", str(script)], env=environ, stdout=subprocess.PIPE, text=True)

    run.script, run.requeued = script, tmp_path / "requeued"
    return run


@pytest.mark.parametrize(
    ("code", "requeued"),
    [(0, False), (1, True), (2, False), (3, False), (5, False), (75, True), (137, True), (143, True)],
)
def test_which_ends_go_back_into_the_queue(code, requeued, batch):
    process = batch(f"exit {code}")
    printed, _ = process.communicate(timeout=300)
    assert process.returncode == code
    assert (batch.requeued.exists() and batch.requeued.read_text() == "requeue 20007\n") is requeued, printed


def test_a_job_that_makes_no_progress_leaves_the_queue(batch, tmp_path):
    """Progress is a new checkpoint; it counts from there again."""
    checkpoints = tmp_path / "runs/0123456789abcdef/checkpoints"
    checkpoints.mkdir(parents=True)
    for restarts, srun in enumerate(
        (*["exit 75"] * 2, f"mkdir {checkpoints}/step-00000100; exit 75", *["exit 137"] * 3)
    ):
        printed, _ = batch(srun, restarts).communicate(timeout=300)
    assert f"exit code 137: {IDLE_STARTS} starts in a row without a new checkpoint; not requeued" in printed
    assert batch.requeued.read_text().count("\n") == 5


@pytest.mark.parametrize(
    ("left", "code", "requeued"),
    [
        ((75,), 75, True),
        ((1, 5), 5, False),
        ((1, 2), 2, False),
        ((3, 75), 3, False),
        ((1,), 143, True),
        ((), 143, True),
    ],
)
def test_what_ranks_leave_counts_more_than_the_code_of_srun(left, code, requeued, batch):
    """One rank ended, srun killed the others: its code is theirs. What an earlier start left is gone."""
    batch('touch "$TREERING_EXIT-5"; exit 5', 0).communicate(timeout=300)
    assert not batch.requeued.exists()
    process = batch("; ".join([*(f'touch "$TREERING_EXIT-{each}"' for each in left), "exit 143"]), 0)
    printed, _ = process.communicate(timeout=300)
    assert process.returncode == code, printed
    assert batch.requeued.exists() is requeued


def test_a_cancelled_job_stays_out_of_the_queue(batch, tmp_path):
    """Slurm sends TERM to the ranks and to this shell; the ranks save a checkpoint and end with 75."""
    process = batch(f"touch {tmp_path}/running; while [[ ! -e {tmp_path}/told ]]; do sleep 0.05; done; exit 75")
    while not (tmp_path / "running").exists():
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    (tmp_path / "told").touch()
    printed, _ = process.communicate(timeout=300)
    assert process.returncode == 75
    assert "cancelled or preempted" in printed
    assert not batch.requeued.exists()


def test_ranks_are_told_where_to_meet_and_what_started_them(batch, tmp_path):
    process = batch(f'echo "$MASTER_ADDR $MASTER_PORT $OMP_NUM_THREADS $TREERING_LAUNCH_SCRIPT $#" > {tmp_path}/told')
    process.communicate(timeout=300)
    address, port, threads, script, count = (tmp_path / "told").read_text().split()
    assert (address, port, threads, count) == ("dgx001", "20007", "1", "7")
    assert Path(script).name == "job-20007.sbatch"
    assert Path(script).read_text() == batch.script.read_text()


@needs_slurm
def test_slurm_takes_the_script(tmp_path):
    begin = start(tmp_path)
    script = keep(begin, render(begin, job(nodes=1, gpus_per_node=0, tasks_per_node=1)), "sbatch")
    done = subprocess.run(["sbatch", "--test-only", str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
