"""Starts a follower beside a training; imports neither MLflow nor anything else that a training node may lack."""

import subprocess
import sys

from treering.project import Project
from treering.runlog.directory import RunDirectory


def start_follower(project: Project, run: RunDirectory) -> subprocess.Popen[bytes]:
    """Starts a follower of one run in a session of its own; its words go to `ship.log` in the run's directory.

    No descriptor is passed on, so that the run's lock dies with the training processes alone.
    """
    with (run.path / "ship.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "treering.ship.follow", str(project.root.resolve()), str(run.path.resolve())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            close_fds=True,
        )
