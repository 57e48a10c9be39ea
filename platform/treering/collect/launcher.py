"""Who started this process: an outer launcher's variables become RANK, LOCAL_RANK, WORLD_SIZE and MASTER_*.

torchrun and DeepSpeed's launcher set them themselves; `srun` and `mpirun` speak of tasks in words of their own. What a
launcher says of itself (job, restarts, nodes, script) is evidence: an attempt's header keeps it.
"""

import re
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any, Final

from treering.config.canonical import digest_bytes
from treering.errors import UserError
from treering.files import read_bytes
from treering.redact import redact

SCRIPT_VARIABLE: Final = "TREERING_LAUNCH_SCRIPT"
"""Names a file with the text that started the job: a batch script, or a hostfile."""

EXIT_VARIABLE: Final = "TREERING_EXIT"
"""The beginning of a file's name: a rank that ends with exit code 75 makes the file `<name>-75`. A batch job of many
ranks has one exit code, that of the rank which Slurm had to kill."""

_FIRST_PORT = 20000
_PORTS = 20000
_SLURM_FACTS: Final = {
    "job": "SLURM_JOB_ID",
    "step": "SLURM_STEP_ID",
    "restarts": "SLURM_RESTART_COUNT",
    "nodelist": "SLURM_JOB_NODELIST",
    "cluster": "SLURM_CLUSTER_NAME",
    "partition": "SLURM_JOB_PARTITION",
}
_HOST_PART = re.compile(r"[^,\[\]]+|\[\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*\]", re.ASCII)
_HOST_NAME = re.compile(rf"(?:{_HOST_PART.pattern})+", re.ASCII)


def rank_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that name this process's rank, from those of `srun` or `mpirun`; empty where none are needed.

    A launcher that sets RANK is taken at its word. A Slurm allocation alone starts no ranks, a step of several tasks
    does: `treering train` in an interactive allocation trains as on any machine.

    Args:
        environ: the environment, which `MASTER_ADDR` and `MASTER_PORT` overrule.

    Raises:
        UserError: `mpirun` started ranks on several hosts and nothing says where they meet.
    """
    if "RANK" in environ:
        return {}
    if int(environ.get("SLURM_STEP_NUM_TASKS", "1")) > 1 and "SLURM_PROCID" in environ:
        nodes = expand_hosts(environ["SLURM_STEP_NODELIST"])
        found = {
            "RANK": environ["SLURM_PROCID"],
            "LOCAL_RANK": environ["SLURM_LOCALID"],
            "LOCAL_WORLD_SIZE": str(_tasks(environ["SLURM_STEP_TASKS_PER_NODE"])[int(environ["SLURM_NODEID"])]),
            "WORLD_SIZE": environ["SLURM_STEP_NUM_TASKS"],
            "MASTER_ADDR": nodes[0],
            "MASTER_PORT": str(_FIRST_PORT + int(environ["SLURM_JOB_ID"]) % _PORTS),
        }
    elif int(environ.get("OMPI_COMM_WORLD_SIZE", "1")) > 1:
        found = {
            "RANK": environ["OMPI_COMM_WORLD_RANK"],
            "LOCAL_RANK": environ["OMPI_COMM_WORLD_LOCAL_RANK"],
            "LOCAL_WORLD_SIZE": environ["OMPI_COMM_WORLD_LOCAL_SIZE"],
            "WORLD_SIZE": environ["OMPI_COMM_WORLD_SIZE"],
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(_FIRST_PORT),
        }
        if found["LOCAL_WORLD_SIZE"] != found["WORLD_SIZE"] and "MASTER_ADDR" not in environ:
            raise UserError(
                "mpirun started ranks on several hosts, found no MASTER_ADDR, expected the host of rank 0: "
                "`mpirun -x MASTER_ADDR=HOST …`"
            )
    else:
        return {}
    return {name: environ.get(name, value) if name.startswith("MASTER_") else value for name, value in found.items()}


# Not `python-hostlist`: its license is GPL 2+, ours is Apache 2.0. On lists of Slurm the two give the same names, but
# `expand_hosts` keeps a name that comes twice and refuses an empty name.
def expand_hosts(nodelist: str) -> list[str]:
    """Host names of a Slurm node list: `dgx[001-003,7],login` is dgx001, dgx002, dgx003, dgx7, login.

    A name may have several brackets, as in `rack[0-1]_blade[0-41]`; the last one changes fastest.

    Raises:
        UserError: the text is not a node list.
    """  # noqa: DOC501 the error is made by a function
    hosts = []
    for name in re.split(r",(?![^\[]*\])", nodelist):
        if _HOST_NAME.fullmatch(name) is None:
            raise _not_a_node_list(nodelist)
        parts = [_numbers(part[1:-1], nodelist) if part[0] == "[" else [part] for part in _HOST_PART.findall(name)]
        hosts += ["".join(host) for host in product(*parts)]
    return hosts


def _numbers(ranges: str, nodelist: str) -> list[str]:
    """The numbers of a bracket, with the zeros in front that the first number of a range has."""  # noqa: DOC501 as above
    found: list[str] = []
    for item in ranges.split(","):
        first, _, last = item.partition("-")
        if last and int(last) < int(first):
            raise _not_a_node_list(nodelist)
        found += [f"{number:0{len(first)}d}" for number in range(int(first), int(last or first) + 1)]
    return found


def _not_a_node_list(nodelist: str) -> UserError:
    return UserError(f"node list: found {nodelist!r}, expected names like dgx[001-280],login")


def _tasks(per_node: str) -> list[int]:
    """Tasks of each node from Slurm's short form: `8(x3),4` is 8, 8, 8, 4."""
    found: list[int] = []
    for part in per_node.split(","):
        tasks, _, times = part.partition("(x")
        found += [int(tasks)] * int(times.rstrip(")") or 1)
    return found


def launch_record(environ: Mapping[str, str]) -> dict[str, Any] | None:
    """What an attempt's header keeps of the launcher that started this rank; None where Treering started it alone.

    Returns:
        `launcher` (torchrun, srun, deepspeed, mpirun, or `environment` where only RANK is known); under Slurm `slurm`
        with job, step, restarts, node list, cluster and partition as far as they are set; `script` with the digest and
        the text of the file that `TREERING_LAUNCH_SCRIPT` names, without passwords (the digest is of the whole file).

    Raises:
        UserError: that file cannot be read.
    """
    slurm = {key: environ[name] for key, name in _SLURM_FACTS.items() if name in environ}
    script = environ.get(SCRIPT_VARIABLE)
    launcher = _launcher(environ)
    if launcher is None and not slurm and script is None:
        return None
    record: dict[str, Any] = {"launcher": launcher or "treering"}
    if slurm:
        record["slurm"] = slurm
    if script is not None:
        try:
            content = read_bytes(Path(script))
        except OSError as error:
            raise UserError(
                f"{SCRIPT_VARIABLE}: found {script}, which cannot be read ({error.strerror}), expected the script that "
                "started the job; unset the variable if there is none"
            ) from None
        record["script"] = {"digest": digest_bytes(content), "text": redact(content.decode(errors="backslashreplace"))}
    return record


def _launcher(environ: Mapping[str, str]) -> str | None:
    for variable, name in (
        ("TORCHELASTIC_RUN_ID", "torchrun"),
        ("OMPI_COMM_WORLD_RANK", "mpirun"),
        ("CROSS_RANK", "deepspeed"),
        ("SLURM_STEP_NUM_TASKS", "srun"),
    ):
        if variable in environ:
            return name
    return "environment" if "RANK" in environ else None
