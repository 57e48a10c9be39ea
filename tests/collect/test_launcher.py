"""Whose rank this process is, from the words of each launcher."""

import pytest

from treering.collect.launcher import expand_hosts, launch_record, rank_variables
from treering.config.canonical import digest_bytes
from treering.errors import UserError

STEP = {
    "SLURM_JOB_ID": "123456",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "dgx[009-010,113]",
    "SLURM_STEP_NUM_TASKS": "20",
    "SLURM_STEP_TASKS_PER_NODE": "8(x2),4",
    "SLURM_PROCID": "17",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "2",
}
MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "3",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
}


def test_a_task_of_a_slurm_step():
    assert rank_variables(STEP) == {
        "RANK": "17",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "4",
        "WORLD_SIZE": "20",
        "MASTER_ADDR": "dgx009",
        "MASTER_PORT": "23456",
    }
    told = rank_variables({**STEP, "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"})
    assert (told["MASTER_ADDR"], told["MASTER_PORT"]) == ("10.0.0.1", "29500")


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"RANK": "0", **STEP},
        {**STEP, "SLURM_STEP_NUM_TASKS": "1"},
        # A batch script, or a shell in an allocation of 16 tasks: nothing has started them yet.
        {"SLURM_JOB_ID": "1", "SLURM_PROCID": "0", "SLURM_NTASKS": "16", "SLURM_LOCALID": "0"},
        {**MPI, "OMPI_COMM_WORLD_SIZE": "1"},
    ],
    ids=["alone", "torchrun", "one task", "batch script", "mpirun -n 1"],
)
def test_who_needs_no_words_of_ours(environ):
    assert rank_variables(environ) == {}


def test_a_process_of_mpirun():
    assert rank_variables(MPI) == {
        "RANK": "3",
        "LOCAL_RANK": "3",
        "LOCAL_WORLD_SIZE": "4",
        "WORLD_SIZE": "4",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "20000",
    }
    several = {**MPI, "OMPI_COMM_WORLD_SIZE": "8"}
    with pytest.raises(UserError, match="mpirun -x MASTER_ADDR=HOST"):
        rank_variables(several)
    assert rank_variables({**several, "MASTER_ADDR": "node-a"})["MASTER_ADDR"] == "node-a"


@pytest.mark.parametrize(
    ("nodelist", "hosts"),
    [
        ("dgx1", ["dgx1"]),
        ("dgx[08-11]", ["dgx08", "dgx09", "dgx10", "dgx11"]),
        ("dgx[1,3-4]-ib,login", ["dgx1-ib", "dgx3-ib", "dgx4-ib", "login"]),
        ("a[1-2],b[7]", ["a1", "a2", "b7"]),
        ("rack[0-1]_blade[08-09]", ["rack0_blade08", "rack0_blade09", "rack1_blade08", "rack1_blade09"]),
        ("a,a", ["a", "a"]),
    ],
)
def test_node_lists(nodelist, hosts):
    assert expand_hosts(nodelist) == hosts


@pytest.mark.parametrize("nodelist", ["", "dgx[", "dgx[]", "dgx[3-1]", "dgx[,]", "dgx[1-]", "a,,b", "a[1]]"])
def test_what_is_no_node_list(nodelist):
    with pytest.raises(UserError, match=r"node list: found .* expected names like"):
        expand_hosts(nodelist)


def test_what_a_header_keeps_of_a_launcher(tmp_path):
    assert launch_record({}) is None
    assert launch_record({"RANK": "0"}) == {"launcher": "environment"}
    assert launch_record({"RANK": "0", "TORCHELASTIC_RUN_ID": "x"}) == {"launcher": "torchrun"}
    assert launch_record({"RANK": "0", "CROSS_RANK": "0"}) == {"launcher": "deepspeed"}
    assert launch_record(MPI) == {"launcher": "mpirun"}
    # An allocation in which Treering starts its own ranks.
    assert launch_record({"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "2"}) == {
        "launcher": "treering",
        "slurm": {"job": "7", "restarts": "2"},
    }
    script = tmp_path / "job.sbatch"
    script.write_bytes(b"#!/bin/bash\n\xff")
    record = launch_record({**STEP, "RANK": "17", "TREERING_LAUNCH_SCRIPT": str(script)})
    assert record["launcher"] == "srun"
    assert record["script"] == {"digest": digest_bytes(script.read_bytes()), "text": "#!/bin/bash\n\\xff"}
    with pytest.raises(UserError, match=r"TREERING_LAUNCH_SCRIPT: found .*gone, which cannot be read"):
        launch_record({"TREERING_LAUNCH_SCRIPT": str(tmp_path / "gone")})
