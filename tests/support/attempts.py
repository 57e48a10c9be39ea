"""Attempts of a trainer in processes of their own, forked from the test's process, which has imported the framework."""

import multiprocessing
import os
import signal

from treering.runlog.recorded_directory import RecordedRunDirectory

FORK = multiprocessing.get_context("fork")


def attempt(folder, main, *, die_at=0, rank=0, world_size=1, port=0, **settings):
    """Starts `main(die_at=…, **settings)` in a folder; returns the process."""
    import torch
    import torch._dynamo  # optimizers import it when they are made: once, before the forks

    def run():
        os.chdir(folder)
        if world_size > 1:
            place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world_size, "MASTER_PORT": port}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", **{name: str(value) for name, value in place.items()}}
        torch.set_num_threads(1)
        main(die_at=die_at, **settings)

    process = FORK.Process(target=run, daemon=True)
    process.start()
    return process


def finished(folder, main, **settings):
    """Trains until the end; returns the run."""
    process = attempt(folder, main, **settings)
    process.join()
    assert process.exitcode == 0
    return recorded(folder)


def killed_and_resumed(folder, main, *, die_at, **settings):
    """Trains until the kill, then to the end with `resume=True`; returns the run."""
    process = attempt(folder, main, die_at=die_at)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    return finished(folder, main, resume=True, **settings)


def die():
    """Ends the process as a lost node does."""
    os.kill(os.getpid(), signal.SIGKILL)


def recorded(folder):
    """The one run of a folder."""
    (path,) = (folder / "runs").iterdir()
    return RecordedRunDirectory(path)


def rings(run, attempt=1, rank=0):
    """The rings of an attempt, the chain checked."""
    return list(run.attempts()[attempt - 1].rings(rank))
