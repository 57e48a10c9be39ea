"""Ranks on several nodes: each is named if it lacks what the others have, before anything is trained."""

import json
import os
import shutil
import subprocess

import psutil
import pytest
from ports import free_port

from treering.project import Project
from treering.runlog.directory import RunDirectory

pytestmark = [pytest.mark.trainer, pytest.mark.slow]

NAMESPACES = shutil.which("unshare") and not subprocess.run(["unshare", "-mu", "true"], check=False).returncode
needs_namespaces = pytest.mark.skipif(not NAMESPACES, reason="namespaces of mounts and host names need more rights")


def step_environ(rank, tasks=2, restarts=0):
    """What `srun` sets in task `rank` of a step of two nodes with one task each; both nodes are this machine."""
    return {
        "SLURM_JOB_ID": "4711",
        "SLURM_STEP_ID": "0",
        "SLURM_RESTART_COUNT": str(restarts),
        "SLURM_JOB_NODELIST": "dgx[001-002]",
        "SLURM_STEP_NODELIST": "dgx[001-002]",
        "SLURM_STEP_NUM_TASKS": str(tasks),
        "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": "0",
        "SLURM_NODEID": str(rank),
    }


def start(zygote, project, runs, *options, nodes=({}, {}), faults=({}, {}), launch=None):
    """Two ranks, each the first one of its node."""
    port, running = free_port(), []
    for rank in range(2):
        meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        environ = {**step_environ(rank), **meet, **(launch or {}), **nodes[rank]}
        running.append(zygote.start(project, runs, *options, environ=environ, **faults[rank]))
    return running


def numbers(run):
    return [(ring.step, ring.batch_digest, ring.loss) for ring in run.path_rings(run.checkpoints()[-1])]


def run_of(runs):
    (path,) = runs.glob("*/resolved.json")
    return RunDirectory(path.parent)


def test_tasks_of_a_slurm_step_are_ranks(zygote, project, reference, tmp_path):
    script = tmp_path / "job.sbatch"
    script.write_text("#!/bin/bash\nsrun …\n")
    launch = {"TREERING_LAUNCH_SCRIPT": str(script), "TREERING_EXIT": str(tmp_path / "exit")}
    ranks = start(zygote, project, tmp_path / "runs", launch=launch)
    assert [rank.wait() for rank in ranks] == [0, 0], ranks[0].output
    assert not list(tmp_path.glob("exit*"))
    run = run_of(tmp_path / "runs")
    ours, theirs = numbers(run), numbers(reference)
    assert [(step, batch) for step, batch, _ in ours] == [(step, batch) for step, batch, _ in theirs]
    # A rank alone on its node computes with all its threads, and they add up in another order.
    assert [loss for *_, loss in ours] == pytest.approx([loss for *_, loss in theirs], abs=5e-6)
    header = run.attempts()[0].header
    assert header.environment["threads_per_rank"] == psutil.cpu_count()
    assert header.launch["launcher"] == "srun"
    assert header.launch["slurm"] == {"job": "4711", "step": "0", "restarts": "0", "nodelist": "dgx[001-002]"}
    assert header.launch["script"]["text"] == script.read_text()
    assert [(node["host"], node["rank"]) for node in header.nodes] == [
        (os.uname().nodename, 0),
        (os.uname().nodename, 1),
    ]
    assert header.nodes[1]["devices"] == list(header.environment["device_kinds"])
    assert not list(run.path.glob(".meeting-*"))


def refused(ranks, code=2):
    """What rank 0 printed; the others end with the same code and leave the word to it."""
    assert [rank.wait() for rank in ranks] == [code, code], ranks[0].output + ranks[1].output
    assert "treering:" not in ranks[1].output
    return ranks[0].output


def test_nodes_that_run_something_else_are_named(zygote, project, tmp_path):
    nodes = ({"NCCL_ALGO": "Ring"}, {"NCCL_PROTO": "LL", "NCCL_IB_HCA": "mlx5_1"})
    printed = refused(start(zygote, project, tmp_path, nodes=nodes))
    assert f"nodes differ from {os.uname().nodename} (rank 0)" in printed
    assert "(rank 1): variable NCCL_ALGO absent (there Ring), variable NCCL_PROTO LL (there absent)" in printed
    assert "NCCL_IB_HCA" not in printed, "it chooses a network and moves no number"
    assert not list(tmp_path.glob("*/attempts"))


def test_a_node_with_other_code_is_named(zygote, project, tmp_path):
    other = shutil.copytree(zygote.sources, tmp_path / "sources")
    for name in ("core/optim.py", "monitor/hooks.py"):  # the second decides no number; versions must not be mixed
        (other / "trainer/treering_trainer" / name).open("a").write("ANOTHER = True\n")
    port = free_port()
    ranks = [
        zygote.start(
            project,
            tmp_path / "runs",
            code_root=root,
            environ={**step_environ(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
        )
        for rank, root in enumerate((zygote.sources, other))
    ]
    files = "trainer/treering_trainer/core/optim.py, trainer/treering_trainer/monitor/hooks.py"
    assert f"(rank 1): code ({files})" in refused(ranks)


@needs_namespaces
@pytest.mark.parametrize("what", ["runs", "data"])
def test_a_node_without_the_shared_folder_is_named(what, zygote, project, tmp_path):
    runs = tmp_path / "runs"
    runs.mkdir()
    folder = runs if what == "runs" else project.corpora
    faults = ({}, {"another_node": {"host": "dgx002", "disk": str(folder)}})
    printed = refused(start(zygote, project, runs, faults=faults))
    assert "nodes without what every node needs: dgx002 (rank 1): " in printed
    assert ("what rank 0 wrote there is not visible" in printed) == (what == "runs")
    assert "mount it there, or leave these nodes out" in printed
    assert not list(runs.glob("*/attempts"))
    assert not list(runs.glob("*/.meeting-*"))


def test_one_node_lacks_the_memory(zygote, project, tmp_path):
    """The first stage of a model of 100 billion parameters: no rank is refused alone, no memory is taken."""
    large = [f"--set=model.{name}" for name in ("hidden_size=16384", "num_attention_heads=128", "num_layers=32")]
    faults = ({"kill_past_checks": {}}, {"kill_past_checks": {}})
    printed = refused(start(zygote, project, tmp_path, *large, faults=faults))
    assert "(rank 0), " in printed
    assert "tiny.yaml: parallel: found at least" in printed
    assert "GB of memory that this node gives them: fewer ranks on the node" in printed


def test_world_size_and_layout(zygote, project, tmp_path):
    four = ("--set=parallel.data=4", "--set=parallel.micro_batch_size=1")
    printed = refused(start(zygote, project, tmp_path, *four))
    assert "layout 1x1x4 (TP x PP x DP) has 4 ranks, WORLD_SIZE is 2; start 4 ranks" in printed


def test_a_config_that_one_node_lacks_is_missed_there(zygote, tmp_path):
    """As under Slurm where the working directory is not mounted: nobody waits for that node in silence."""
    rank = zygote.start(Project(tmp_path), tmp_path, environ=step_environ(1))
    assert rank.wait() == 2
    assert rank.output.startswith(f"treering: {os.uname().nodename}: tiny.yaml: ")


def test_an_error_that_would_come_again_is_said_to_the_script(zygote, project, tmp_path):
    launch = {"TREERING_EXIT": str(tmp_path / "exit")}
    ranks = start(zygote, project, tmp_path / "runs", "--set=parallel.data=3", launch=launch)
    assert [rank.wait() for rank in ranks] == [2, 2]
    assert [path.name for path in tmp_path.glob("exit*")] == ["exit-2"]


def test_a_launch_script_that_is_gone(zygote, project, tmp_path):
    gone = {"TREERING_LAUNCH_SCRIPT": str(tmp_path / "gone")}
    assert "TREERING_LAUNCH_SCRIPT: found" in refused(start(zygote, project, tmp_path / "runs", launch=gone))


def test_headers_before_this_field_are_read(reference):
    header = reference.attempts()[0].header
    assert header.launch is None
    assert header.nodes is None
    assert json.loads((reference.attempts()[0].path / "header.json").read_text())["launch"] is None


def test_mt_nlg_is_refused_before_anything_starts(zygote, project, tmp_path):
    """530 billion parameters on this machine: the model of the paper, cut as it was."""
    sizes = ("num_layers=105", "hidden_size=20480", "num_attention_heads=128", "padded_vocab_size=51200")
    layout = ("pipeline=35", "tensor=8", "data=2", "micro_batch_size=2", "activation_recompute=full")
    overrides = [f"--set=model.{size}" for size in sizes] + [f"--set=parallel.{size}" for size in layout]
    printed = zygote.train(project, tmp_path, *overrides, expect=2, kill_past_checks={})
    assert "tiny.yaml: parallel: found at least" in printed
    assert "GB for 560 ranks of 8x35x2 on this node, expected at most the" in printed
    assert not list(tmp_path.iterdir())


def test_a_batch_that_does_not_divide_is_refused_before_anything_starts(zygote, project, tmp_path):
    printed = zygote.train(project, tmp_path, "--set=parallel.micro_batch_size=3", expect=2)
    assert "schedule: found a stage with global batch 4 from step 1 on, expected every stage divisible by" in printed
    assert not list(tmp_path.iterdir())
