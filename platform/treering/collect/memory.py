"""How much main memory this process may use, and how often the kernel killed a process that used too much."""

from pathlib import Path
from typing import Final

import psutil

_CGROUPS: Final = Path("/sys/fs/cgroup")
_OWN: Final = Path("/proc/self/cgroup")
_NODE: Final = Path("/proc/vmstat")


def memory_limit(total: int | None = None, cgroups: Path = _CGROUPS, own: Path = _OWN) -> int:
    """Bytes of main memory that this process and its children may use together, without swap.

    Slurm, containers and systemd limit jobs by control groups. The smallest limit of the process's group and the groups
    above it counts.

    Args:
        total: the machine's memory; default: as psutil reports it.
        cgroups: where control groups are mounted.
        own: the file that names this process's groups, in version 2 `0::/path`, in version 1 `n:memory:/path`.

    Source: docs.kernel.org, admin-guide/cgroup-v2 (`memory.max`) and cgroup-v1/memory (`memory.limit_in_bytes`).
    """
    limits = [psutil.virtual_memory().total if total is None else total]
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return limits[0]
    for line in lines:
        _number, controllers, path = line.split(":", 2)
        if controllers == "":
            folder, name = cgroups, "memory.max"
        elif "memory" in controllers.split(","):
            folder, name = cgroups / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = Path(path.lstrip("/"))
        for parent in (group, *group.parents):
            try:
                text = (folder / parent / name).read_text().strip()
            except OSError:  # the root group has none; inside a container the groups above are hidden
                continue
            if text.isdecimal():
                limits.append(int(text))
    return min(limits)


def count_oom_kills(cgroups: Path = _CGROUPS, own: Path = _OWN, node: Path = _NODE) -> int | None:
    """Processes that the kernel has killed for memory in this process's control group, else on the whole node.

    A higher count than before means that a process was killed; it does not name the process.

    Args:
        cgroups: where control groups are mounted.
        own: the file that names this process's groups; those of version 1 are left out.
        node: the node's counters.

    Returns:
        The count since the group or the node was started, None where the kernel does not report it.
    """
    try:
        lines = own.read_text().splitlines()
    except OSError:
        lines = []
    groups = [line.removeprefix("0::").lstrip("/") for line in lines if line.startswith("0::")]
    for file in (*(cgroups / group / "memory.events" for group in groups), node):
        try:
            counters = dict(line.split() for line in file.read_text().splitlines())
        except OSError:
            continue
        if "oom_kill" in counters:
            return int(counters["oom_kill"])
    return None
