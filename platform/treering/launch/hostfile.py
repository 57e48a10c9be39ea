"""A training over a hostfile: DeepSpeed's launcher reaches every host by pdsh (over ssh) or mpirun."""

import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from treering.collect.environment import variables
from treering.collect.launcher import SCRIPT_VARIABLE
from treering.errors import UserError
from treering.launch.start import Start

Remote = Literal["pdsh", "openmpi"]

PORT: Final = 29500
"""DeepSpeed's own default for the port at which ranks meet."""

_PROGRAMS: Final[dict[Remote, str]] = {"pdsh": "pdsh", "openmpi": "ompi_info"}
_LINE = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s+slots=(?P<slots>[0-9]+)")
_HERE = ("localhost", "127.0.0.1")


@dataclass(frozen=True, slots=True)
class Host:
    """One line of a hostfile: a host that ssh reaches without a password, and how many ranks it takes."""

    name: str
    slots: int


def parse_hostfile(text: str, source: str) -> tuple[Host, ...]:
    """Reads hosts in the order of their ranks.

    Args:
        text: lines such as `dgx001 slots=8`; `#` begins a comment line.
        source: the file's name, for errors.

    Raises:
        UserError: names the line: no such line, no slots, a host twice, other slots than the first host's; or no host.
    """
    hosts: list[Host] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.strip().startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise UserError(f"{source}: line {number}: found {line.strip()!r}, expected a line like `dgx001 slots=8`")
        host = Host(match["name"], int(match["slots"]))
        if host.slots < 1:
            raise UserError(f"{source}: line {number}: found {host.name} with 0 slots, expected at least 1; or no line")
        if any(host.name == other.name for other in hosts):
            raise UserError(f"{source}: line {number}: found {host.name} twice, expected one line with all its slots")
        if hosts and host.slots != hosts[0].slots:
            raise UserError(
                f"{source}: line {number}: found {host.name} with {host.slots} slots, expected {hosts[0].slots} as "
                f"{hosts[0].name} has: DeepSpeed's launcher numbers local ranks right only on equal hosts"
            )
        hosts.append(host)
    if not hosts:
        raise UserError(f"{source}: found no host, expected a line like `dgx001 slots=8` for each")
    if len(hosts) > 1 and any(host.name in _HERE for host in hosts):
        raise UserError(
            f"{source}: found localhost among {len(hosts)} hosts, expected a name that the other hosts know it by"
        )
    return tuple(hosts)


def command(start: Start, hosts: tuple[Host, ...], hostfile: Path, remote: Remote, address: str | None) -> list[str]:
    """The command that starts every rank.

    DeepSpeed would ask the first host for its addresses and take the first one; here ranks meet at its name.

    Args:
        start: what to start.
        hosts: the hosts.
        hostfile: the file that names them, as it is kept with the run.
        remote: how hosts are reached.
        address: where rank 0 listens, None for the first host's name.
    """
    alone = len(hosts) == 1
    words = [start.python, "-m", "deepspeed.launcher.runner", f"--hostfile={hostfile}", f"--launcher={remote}"]
    words += [f"--master_addr={address or meeting_address(hosts)}", f"--master_port={PORT}"]
    words += ["--no_ssh_check"] if alone and hosts[0].name in _HERE else []
    module = start.module if alone or remote == "openmpi" else tuple(_for_remote_shell(word) for word in start.module)
    return [*words, "--no_local_rank", "--module", *module]


def _for_remote_shell(word: str) -> str:
    """An argument as pdsh must be given it, since a shell of the other host reads it once more.

    DeepSpeed puts double quotes around a word with blanks, and leaves all others as they are.

    Raises:
        UserError: a word that does not survive that.
    """
    if "\n" in word or (" " in word and set(word) & set("\\$`")):
        raise UserError(
            f"argument {word!r}: found a line end, or blanks beside $, backquotes or backslashes, which do not reach "
            "other hosts whole over pdsh; put the value into the experiment's file"
        )
    return word if " " in word else shlex.quote(word)


def meeting_address(hosts: tuple[Host, ...]) -> str:
    """Where ranks meet: at the first host."""
    return "127.0.0.1" if hosts[0].name in _HERE else hosts[0].name


def shared_variables(environ: Mapping[str, str], hostfile: Path, address: str) -> dict[str, str]:
    """What every rank must find in its environment: what is recorded of ours, and where ranks meet, for mpirun.

    DeepSpeed passes on a few variables by itself, NCCL's among them; the others would differ from host to host.

    Raises:
        UserError: a value that cannot stand on one line between double quotes.
    """
    found = {
        **variables(environ), SCRIPT_VARIABLE: str(hostfile), "MASTER_ADDR": address, "MASTER_PORT": str(PORT)
    }  # fmt: skip
    found.setdefault("OMP_NUM_THREADS", "1")
    found.pop("CUDA_VISIBLE_DEVICES", None)  # DeepSpeed's launcher sets it on each host
    for name, value in found.items():
        if set(value) & set('"\\$`\n'):
            raise UserError(
                f"variable {name}: found {value!r}, which does not reach other hosts whole; expected a value without "
                "quotes, backslashes, $ and line ends: unset it, or set it on every host"
            )
    return found


def check_program(python: str, hosts: tuple[Host, ...], remote: Remote) -> None:
    """Refuses to begin where the interpreter, or the program that reaches other hosts, is missing.

    Raises:
        UserError: names it.
    """
    if shutil.which(python) is None:
        raise UserError(f"--python: found no program {python}, expected the interpreter that has the trainer")
    if len(hosts) > 1 and shutil.which(_PROGRAMS[remote]) is None:
        other = "openmpi" if remote == "pdsh" else "pdsh"
        raise UserError(
            f"--launcher {remote}: found no {_PROGRAMS[remote]} in PATH, which DeepSpeed needs for {len(hosts)} hosts; "
            f"install it, or use `--launcher {other}`, `--slurm`, or torchrun on each host"
        )
