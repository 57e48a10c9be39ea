"""Starts a follower beside another process; imports neither MLflow nor anything else that a training node may lack."""

import importlib.util
import sys

from treering.apart import start_apart
from treering.project import Project
from treering.ship.target import any_target


def start_companion(project: Project, process: int) -> bool:
    """Starts a follower that ships all runs of a project until `process` has ended and nothing trains any more.

    Its output goes to `.treering/ship.log`.

    Args:
        project: whose runs.
        process: id of that process.

    Returns:
        False where nothing is installed that a target needs: shipping is then left to another machine.
    """
    if importlib.util.find_spec("stamina") is None or not any_target():
        return False
    start_apart(
        [sys.executable, "-m", "treering.ship.follow", str(project.root.resolve()), str(process)],
        project.root / ".treering" / "ship.log",
    )
    return True
