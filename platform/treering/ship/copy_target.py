"""Copies of run folders as a target: the store of `TREERING_STORE_URL`, off by default."""

import os
from typing import Final

from treering.errors import UserError
from treering.objects import ObjectStore
from treering.project import Project
from treering.runlog.folders import RunFolder
from treering.ship.copy import TARGET, RunCopier
from treering.ship.copy_check import CopyCheck
from treering.ship.target import Difference

STORE_VARIABLE: Final = "TREERING_STORE_URL"


class Copies:
    """A store of copies. A mirror is not copied again.

    Args:
        url: of the store.
        project: the project's name in it.
    """

    name = TARGET

    def __init__(self, url: str, project: str) -> None:
        self._store = ObjectStore(url)
        self._project = project

    @property
    def place(self) -> str:
        """The store's URL, without passwords, with the project."""
        return f"{self._store.place.rstrip('/')}/{self._project}"

    def shipper(self, run: RunFolder) -> RunCopier | None:
        """Makes the shipper of a run."""
        return None if run.mirror else RunCopier(run, self._store, self._project)

    def difference(self, run: RunFolder) -> Difference | None:
        """The first difference between a run's copy and its folder; every object is read.

        Raises:
            StoreError: the store does not answer.
            EvidenceError: the store has a copy of another run under this name.
        """
        return None if run.mirror else CopyCheck(run, self._store, self._project).difference()

    def rebuild(self, run: RunFolder) -> str:
        """Puts what the store has lost or damaged again, and copies again what differs from the folder.

        Raises:
            StoreError: the store does not answer.
            EvidenceError: the store has a copy of another run under this name.
        """
        return "" if run.mirror else CopyCheck(run, self._store, self._project).mend()


def target(project: Project) -> Copies | None:
    """The store of `TREERING_STORE_URL`, None where that is unset.

    Raises:
        UserError: the URL names no store, or the project's name is no name of a folder.
    """
    url = os.environ.get(STORE_VARIABLE)
    if not url:
        return None
    if "/" in project.name or project.name.startswith("."):
        raise UserError(f"TREERING_PROJECT: found {project.name!r}, expected a name without / or a dot before it")
    return Copies(url, project.name)
