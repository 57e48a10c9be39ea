"""How often a test kills a process at a random moment: a few times, or `TREERING_KILLS` times for the long form."""

import os
import random
import signal
import time
from pathlib import Path


def num_kills(few):
    """`TREERING_KILLS`, or `few` where that is unset."""
    return int(os.environ.get("TREERING_KILLS", str(few)))


def kill_at_random(process, longest_s, draw: random.Random):
    """Kills a child with -9 after a random time below `longest_s`; whether it lived until then."""
    time.sleep(draw.random() * longest_s)
    ended, _ = os.waitpid(process, os.WNOHANG)
    if not ended:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    return not ended


def kill_itself(number: int, _task: int) -> None:
    """Sends a signal to the process that calls it."""
    os.kill(os.getpid(), number)


def kill_itself_once(folder: Path, task: str) -> str:
    """Kills the process that calls it for the first time with a task; then gives the task back."""
    if not (folder / task).exists():
        (folder / task).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return task
