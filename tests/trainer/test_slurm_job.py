"""A batch script from its first start to its last, with real ranks.

Slurm cannot be assumed where tests run: this test has its own `srun` and `scontrol`. What they cannot show
was looked at on a real Slurm by hand (experiments/benchmarks/README.md).
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from treering.launch.slurm import Job, render
from treering.launch.start import Start, keep
from treering.runlog.directory import RunDirectory

pytestmark = [pytest.mark.trainer, pytest.mark.slow]

SRUN = '''#!{python}
"""Two tasks on this machine. Like srun: the highest code counts, one bad end ends the others."""
import os, pathlib, subprocess, sys, time

command = [word for word in sys.argv[1:] if not word.startswith("--kill")]
common = {{"SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "localhost", "SLURM_STEP_NUM_TASKS": "2",
          "SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_NODEID": "0"}}
tasks = [
    subprocess.Popen(command, env={{**os.environ, **common, "SLURM_PROCID": str(task), "SLURM_LOCALID": str(task)}})
    for task in range(2)
]
pathlib.Path("{tasks}").write_text(" ".join(str(task.pid) for task in tasks))
while any(task.poll() is None for task in tasks):
    if any(task.poll() for task in tasks):
        for task in tasks:
            if task.poll() is None:
                task.terminate()
        for task in tasks:
            task.wait()
    time.sleep(0.05)
sys.exit(max(task.returncode if task.returncode >= 0 else 128 - task.returncode for task in tasks))
'''

SCONTROL = """#!/bin/bash
if [[ $1 == show ]]; then echo localhost; else echo "$@" >> {requeued}; fi
"""


LONG = ("--set=schedule.train_tokens=32000", "--set=checkpoint.every_steps=10", "--set=validation=null")
"""Long enough that a rank is killed after its first checkpoint, not after its last step."""


@pytest.fixture
def whole(zygote, project, tmp_path):
    """The same run without interruption."""
    zygote.train(project, tmp_path / "whole", "--no-publish", *LONG)
    (path,) = (tmp_path / "whole").glob("*/resolved.json")
    return RunDirectory(path.parent)


@pytest.fixture
def start(project, tmp_path, whole):
    """Starts the job like Slurm: the same script, another number of restarts."""
    run = tmp_path / "runs" / whole.path.name
    arguments = ("--no-publish", f"--runs={run.parent}", *LONG)
    begin = Start(project.root, Path("tiny.yaml"), run, "1x1x2", sys.executable, arguments)
    job = Job(nodes=1, gpus_per_node=0, tasks_per_node=2, time_s=3600, warning_s=600)
    script = keep(begin, render(begin, job), "sbatch")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (
        ("srun", SRUN.format(python=sys.executable, tasks=tmp_path / "tasks")),
        ("scontrol", SCONTROL.format(requeued=tmp_path / "requeued")),
    ):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)

    def begin_again(restarts):
        return subprocess.Popen(
            ["bash", str(script)],
            cwd=project.root,
            env={
                **os.environ,
                "PATH": f"{programs}:{os.environ['PATH']}",
                "SLURM_JOB_ID": "4711",
                "SLURM_JOB_NODELIST": "localhost",
                "SLURM_RESTART_COUNT": str(restarts),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    begin_again.run, begin_again.script = RunDirectory(run), script
    return begin_again


def numbers(run):
    return [(ring.step, ring.batch_digest, ring.loss, ring.grad_norm) for ring in run.path_rings(run.checkpoints()[-1])]


def test_a_job_whose_rank_is_killed_comes_back_and_ends_as_if_nothing_had_happened(start, whole, tmp_path):
    first = start(0)
    while not start.run.checkpoints():
        assert first.poll() is None, first.stdout.read()
        time.sleep(0.02)
    os.kill(int((tmp_path / "tasks").read_text().split()[1]), signal.SIGKILL)
    printed, _ = first.communicate(timeout=300)
    # The other rank lost contact: start me again. Or it was ended before it could say so.
    assert first.returncode in {75, 128 + signal.SIGKILL, 128 + signal.SIGTERM}, printed
    assert "back into the queue" in printed
    assert (tmp_path / "requeued").read_text() == "requeue 4711\n"

    second = start(1)
    printed, _ = second.communicate(timeout=300)
    assert second.returncode == 0, printed
    assert numbers(start.run) == numbers(whole)
    launches = [attempt.header.launch for attempt in start.run.attempts()]
    assert [launch["slurm"]["restarts"] for launch in launches] == ["0", "1"]
    assert [launch["slurm"]["job"] for launch in launches] == ["4711", "4711"]
    assert {launch["script"]["text"] for launch in launches} == {start.script.read_text()}
    assert (tmp_path / "requeued").read_text().count("\n") == 1
