"""What this machine has of what Treering needs: packages by role, devices, programs, and a folder to write runs to."""

import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final, Literal

from treering.collect.nvml import open_nvml
from treering.errors import TreeringError
from treering.runlog.lock import acquire, is_held

CheckState = Literal["ready", "missing", "fault"]

_REQUIREMENT: Final = re.compile(
    r"(?P<name>[\w.-]+)(?:\[[\w,-]+\])?(?P<specifier>[^;]*)(?:;.*extra == ['\"](?P<extra>[\w-]+)['\"])?.*"
)
_ROLES: Final = {
    "data": "curate and tokenize text",
    "trainer": "train with DeepSpeed and megatron-core",
    "evaluation": "score checkpoints",
    "registry": "ship runs to MLflow",
    "ledger": "search runs of all projects in the ledger",
    "team": "serve MLflow with users and passwords",
    "dashboard": "show the dashboard",
    "attestation": "sign checkpoints, write an ML-BOM",
    "report": "draw the report's chart",
    "pipeline": "run the pipeline by DVC",
    "s3": "keep data in S3, for DVC too",
    "ray": "curate and tokenize on a Ray cluster",
}
_PROGRAMS: Final = {
    "git": ("commit and changes of the code are not recorded", "install git"),
    "dvc": ("the pipeline cannot run by DVC", "pip install 'treering[pipeline]'"),
}
_LEAST_FREE: Final = 1 << 30
_SLOW_SYNC_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        what: the thing.
        state: `ready`; `missing`: something cannot be done on this machine; `fault`: something would go wrong.
        text: what was found.
        remedy: the command or the act that helps; empty where nothing is needed.
    """

    what: str
    state: CheckState
    text: str
    remedy: str = ""


def check_machine(runs: Path) -> Iterator[Check]:
    """Looks at everything in turn.

    Args:
        runs: the folder that runs are written to; it need not exist.
    """
    version = ".".join(map(str, sys.version_info[:3]))
    yield Check("Python", "ready", version)
    yield from _packages()
    nvml, reason = open_nvml()
    if nvml is None:
        yield Check("GPUs", "missing", f"none that NVML knows ({reason}); training runs on the processor")
    else:
        count = len(list(nvml.handles()))
        nvml.close()
        yield Check("GPUs", "ready", f"{count}")
    for program, (lost, remedy) in _PROGRAMS.items():
        found = shutil.which(program)
        yield Check(program, "ready", found) if found else Check(program, "missing", lost, remedy)
    yield from _folder(runs)


def _packages() -> Iterator[Check]:
    """The packages of each role: whether they are installed, in the version that is pinned."""
    wanted: dict[str, list[tuple[str, str]]] = {role: [] for role in _ROLES}
    for requirement in metadata.requires("treering") or ():
        match = _REQUIREMENT.fullmatch(requirement)
        if match and match["extra"] in wanted:
            wanted[match["extra"]].append((match["name"], match["specifier"].strip()))
    for role, requirements in wanted.items():
        absent, other = [], []
        for name, specifier in requirements:
            try:
                found = metadata.version(name)
            except metadata.PackageNotFoundError:
                absent.append(name)
                continue
            if specifier.startswith("==") and found.split("+")[0] != specifier[2:]:
                other.append(f"{name} {found} (expected {specifier[2:]})")
        what, remedy = f"packages: {role}", f"pip install 'treering[{role}]'"
        if absent:
            yield Check(what, "missing", f"cannot {_ROLES[role]}: {', '.join(absent)}", remedy)
        elif other:
            yield Check(what, "fault", f"untested versions: {', '.join(other)}", remedy)
        else:
            yield Check(what, "ready", f"can {_ROLES[role]}")


def _folder(runs: Path) -> Iterator[Check]:
    """Whether runs can be written: rights, locks, syncs and space of the file system."""
    place = next(folder for folder in (runs, *runs.parents) if folder.is_dir())
    try:
        with tempfile.TemporaryDirectory(prefix=".doctor-", dir=place) as folder:
            lock = acquire(Path(folder, "lock"))
            held = is_held(Path(folder, "lock"))
            os.close(lock)
            started = time.perf_counter()
            with Path(folder, "file").open("wb") as file:
                file.write(bytes(4096))
                file.flush()
                os.fsync(file.fileno())
            seconds = time.perf_counter() - started
    except (OSError, TreeringError) as error:
        yield Check(
            f"folder {runs}", "fault", f"runs cannot be written: {error}", "choose another folder or file system"
        )
        return
    if not held:
        text = "the file system takes locks and does not hold them: two trainers could write one run"
        yield Check(f"folder {runs}", "fault", text, "choose another file system")
    elif seconds > _SLOW_SYNC_SECONDS:
        text = f"a sync of 4 KiB takes {seconds:.1f} s: checkpoints and rings wait for it"
        yield Check(f"folder {runs}", "fault", text, "choose another file system")
    else:
        yield Check(f"folder {runs}", "ready", f"writes, locks, and syncs in {seconds * 1000:.1f} ms")
    free = shutil.disk_usage(place).free
    state: CheckState = "ready" if free >= _LEAST_FREE else "fault"
    remedy = "" if state == "ready" else "make space: a full disk ends a training"
    yield Check("disk", state, f"{free / 1e9:.1f} GB free", remedy)
