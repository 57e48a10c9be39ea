"""Starts a process that outlives this one, beside a training: it ships its run, or evaluates its checkpoints."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil


def start_apart(command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
    """Starts a command in a session of its own.

    The process is not a child of this one. So it does not get the signal that ends a training, and a trainer that waits
    for its ranks does not wait for it. It inherits no descriptor, so that a run's lock ends with the training's own
    processes.

    Args:
        command: the program and its arguments.
        log: file that its output is appended to.
        environment: its environment variables; default those of this process.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    between = os.fork()
    if between == 0:
        try:
            with log.open("ab") as output:
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    close_fds=True,
                    env=environment,
                )
        finally:
            os._exit(0)
    os.waitpid(between, 0)


def process_of(number: int | None) -> psutil.Process | None:
    """The process with that id; None where there is none."""
    try:
        return None if number is None else psutil.Process(number)
    except psutil.NoSuchProcess:
        return None


def lives(process: psutil.Process | None) -> bool:
    """Whether a process has not ended; its id may be another process's by now."""
    try:
        return process is not None and process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
