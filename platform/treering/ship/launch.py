"""Starts a follower beside another process; imports neither MLflow nor anything else that a training node may lack."""

import importlib.util
import os
import subprocess
import sys

from treering.project import Project
from treering.ship.target import any_target


def start_companion(project: Project, process: int) -> bool:
    """Starts a follower that ships all runs of a project until `process` has ended and nothing trains any more.

    The follower has its own session and is not a child of this process. So it does not get the signal that ends a
    training, and a trainer that waits for its ranks does not wait for it. It inherits no descriptor, so that a run's
    lock ends with the training processes. Its output goes to `.treering/ship.log`.

    Args:
        project: whose runs.
        process: id of that process.

    Returns:
        False where nothing is installed that a target needs: shipping is then left to another machine.
    """
    if importlib.util.find_spec("stamina") is None or not any_target():
        return False
    log = project.root / ".treering" / "ship.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    between = os.fork()
    if between == 0:
        try:
            with log.open("ab") as output:
                subprocess.Popen(
                    [sys.executable, "-m", "treering.ship.follow", str(project.root.resolve()), str(process)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    close_fds=True,
                )
        finally:
            os._exit(0)
    os.waitpid(between, 0)
    return True
