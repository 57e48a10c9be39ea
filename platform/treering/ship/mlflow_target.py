"""MLflow as a target: the server or database of `MLFLOW_TRACKING_URI`, by default the project's `mlflow.db`."""

from treering.project import Project
from treering.redact import redact
from treering.runlog.directory import RunDirectory
from treering.runlog.folders import RunFolder
from treering.ship.shipper import TARGET, MlflowShipper
from treering.store.registry import Registry, default_uri


class MlflowTarget:
    """An MLflow tracking store.

    Args:
        uri: tracking URI.
    """

    name = TARGET

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._registry: Registry | None = None

    @property
    def place(self) -> str:
        """The tracking URI, without passwords."""
        return redact(self._uri)

    def shipper(self, run: RunFolder) -> MlflowShipper | None:
        """Makes the shipper of a run.

        Raises:
            StoreError: MLflow does not answer.
            UserError: the URI names a database that cannot be opened here.
        """
        if not isinstance(run, RunDirectory):
            return None
        self._registry = self._registry or Registry(self._uri)
        return MlflowShipper(run, self._registry)


def target(project: Project) -> MlflowTarget:
    """The MLflow of a project."""
    return MlflowTarget(default_uri(project))
