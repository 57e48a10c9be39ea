"""How `treering launch` starts a training on several nodes: by DeepSpeed's launcher over a hostfile, or by Slurm."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from treering.cli.output import console, print_json
from treering.files import read_text, reason, write_durably

if TYPE_CHECKING:
    from collections.abc import Mapping

    from treering.launch.hostfile import Host
    from treering.launch.start import Start


def read_hostfile(file: Path) -> "tuple[str, tuple[Host, ...]]":
    """The text of a hostfile, and its hosts.

    Raises:
        UserError: the file cannot be read.
    """
    from treering.errors import UserError
    from treering.launch.hostfile import parse_hostfile

    try:
        text = read_text(file)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{file}: found no readable hostfile ({reason(error)}), expected lines like `dgx001 slots=8`"
        ) from None
    return text, parse_hostfile(text, str(file))


def launch_over_hosts(
    start: "Start",
    text: str,
    hosts: "tuple[Host, ...]",
    launcher: Literal["pdsh", "openmpi"],
    address: str | None,
    *,
    dry_run: bool,
    json: bool,
) -> None:
    """Keeps the hostfile, and becomes DeepSpeed's launcher."""
    import shlex

    from treering.launch.hostfile import check_program, command, meeting_address, shared_variables
    from treering.launch.start import keep, kept

    path = kept(start, text, "hostfile")
    shared = shared_variables(os.environ, path, address or meeting_address(hosts))
    words = command(start, hosts, path, launcher, address)
    document = {
        "run": start.run.name, "layout": start.layout, "hosts": {host.name: host.slots for host in hosts},
        "hostfile": str(path), "command": words, "variables": shared,
    }  # fmt: skip
    if dry_run:
        print_json(document) if json else sys.stdout.write(f"{shlex.join(words)}\n")
        return
    check_program(start.python, hosts, launcher)
    keep(start, text, "hostfile")
    names = keep(start, "".join(f"{name}={value}\n" for name, value in shared.items()), "env")
    print_json(document) if json else console.print(f"run {start.run.name}: {start.layout} on {len(hosts)} hosts")
    sys.stdout.flush()
    os.execvpe(words[0], words, {**os.environ, **shared, "DS_ENV_FILE": str(names)})  # noqa: S606 - becomes the launcher


def write_batch_job(
    start: "Start", text: str, output: Path | None, *, submit: bool, dry_run: bool
) -> dict[str, str | None]:
    """Keeps the script of a batch job, and submits it if asked; a dry run only says what would be kept.

    Returns:
        Run, layout, path and text of the script, and the job if it was submitted: its number, its state if it was in
        the queue before, and what is not known of earlier jobs.

    Raises:
        UserError: `--output` cannot be written.
    """
    from treering.errors import UserError
    from treering.launch.slurm_queue import submit as submit_once
    from treering.launch.start import keep, kept

    path = kept(start, text, "sbatch")
    script = {"run": start.run.name, "layout": start.layout, "script": str(path), "text": text}
    document = {**script, "job": None, "queued": None, "doubt": None}
    if dry_run:
        return document
    keep(start, text, "sbatch")
    if output is not None:
        try:
            write_durably(output, text)
        except OSError as error:
            raise UserError(f"--output {output}: found {error.strerror}, expected a file to write") from None
    if not submit:
        return document
    submitted = submit_once(path)
    return {**script, "job": submitted.job, "queued": submitted.queued, "doubt": submitted.doubt or None}


def print_batch_job(document: "Mapping[str, str | None]", *, dry_run: bool) -> None:
    """Prints where a script is, and its job or the command that submits the script; of a dry run the script itself."""
    if dry_run:
        sys.stdout.write(document["text"] or "")
        return
    console.print(f"run {document['run']}: {document['layout']} (TP x PP x DP)", f"script {document['script']}")
    job, queued = document["job"], document["queued"]
    if job is None:
        console.print(f"submit it: sbatch {document['script']}")
    elif queued is None:
        console.print(f"job {job}", *filter(None, [document["doubt"]]))
    else:
        console.print(f"job {job} is in the queue already ({queued}): no other job is submitted")
