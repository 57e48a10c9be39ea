"""MLflow as a target: the server or database of `MLFLOW_TRACKING_URI`, by default the project's `mlflow.db`."""

from pathlib import Path

from treering.project import Project
from treering.redact import redact
from treering.runlog.folders import RunFolder
from treering.ship.projection import BRANCH_TAG, POSITION_TAG, RUN_TAG
from treering.ship.shipper import TARGET, MlflowShipper, source_of
from treering.ship.tail import Position
from treering.ship.target import Difference
from treering.store.image import Image
from treering.store.memory import MemoryRegistry
from treering.store.registry import Registry, default_uri
from treering.store.values import StoredRun

_EMBEDDED = "sqlite:///"


class MlflowTarget:
    """An MLflow tracking store.

    Args:
        uri: tracking URI.
    """

    name = TARGET

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._opened: Registry | None = None

    @property
    def place(self) -> str:
        """The tracking URI, without passwords."""
        return redact(self._uri)

    @property
    def _registry(self) -> Registry:
        self._opened = self._opened or Registry(self._uri)
        return self._opened

    def shipper(self, run: RunFolder) -> MlflowShipper | None:
        """Makes the shipper of a run; a mirror has none, since it may be behind what its own folder has sent.

        Raises:
            StoreError: MLflow does not answer.
            UserError: the URI names a database that cannot be opened here.
        """
        return None if run.mirror_file.exists() else MlflowShipper(run, self._registry)

    def difference(self, run: RunFolder) -> Difference | None:
        """The first difference between the run's MLflow run and the one that a rebuild makes.

        Abandoned branches are not compared: MLflow has one where a rewind came after its rings had been sent. Of a run
        that is behind, what was sent of its rings is compared.

        Raises:
            StoreError: MLflow does not answer.
            EvidenceError: the run's folder is damaged.
        """
        if run.mirror_file.exists():
            return None
        expected = _image(run)
        held = self._current(run)
        if not expected.name:
            return Difference(f"found {len(held)} MLflow runs, expected none: the run has no attempt") if held else None
        if not held:
            return Difference("found no MLflow run, expected one", behind=True)
        if len(held) > 1:
            return Difference(f"found {len(held)} MLflow runs, expected one")
        image = self._registry.image(held[0])
        position = image.tags.get(POSITION_TAG, "")
        if position == expected.tags[POSITION_TAG]:
            text = expected.difference(image)
            return Difference(text) if text else None
        return _behind(run, image, expected.tags[POSITION_TAG])

    def rebuild(self, run: RunFolder) -> str:
        """Ships the run into a new MLflow run; the one before is kept, nested below it, with the tag `replaced`.

        Raises:
            StoreError: MLflow does not answer.
            EvidenceError: the run's folder is damaged.
        """
        _image(run)  # a damaged run keeps what MLflow has
        shipper, held = MlflowShipper(run, self._registry), self._current(run)
        for old in held:
            shipper.put_aside(old, "replaced", "by a rebuild")
        shipper.ship()
        names = ", ".join(old.run_id for old in held)
        return f"MLflow run {names} is kept with the tag treering.branch = replaced" if held else ""

    def _current(self, run: RunFolder) -> list[StoredRun]:
        if self._uri.startswith(_EMBEDDED) and not Path(self._uri.removeprefix(_EMBEDDED)).exists():
            return []
        source = source_of(run)
        if not self._registry.has_experiment(source.experiment):
            return []
        experiment = self._registry.experiment(source.experiment)
        return self._registry.find_runs(experiment, {RUN_TAG: source.identity, BRANCH_TAG: "current"})


def _image(run: RunFolder, until: Position | None = None) -> Image:
    """What MLflow is to hold of a run, up to a position or as a whole."""
    memory = MemoryRegistry()
    MlflowShipper(run, memory, until).ship()
    return memory.image


def _behind(run: RunFolder, image: Image, newest: str) -> Difference:
    """What of the rings that were sent differs; nothing but the newest ones missing counts as behind."""
    sent = Position.parse(image.tags.get(POSITION_TAG, ""))
    if sent is not None and sent.step:
        before = _image(run, sent)
        if before.tags[POSITION_TAG] == str(sent) and (text := before.difference(image, rings_only=True)):
            return Difference(text)
    return Difference(f"found rings up to step {sent.step if sent else 0}, expected {newest.split()[1]}", behind=True)


def target(project: Project) -> MlflowTarget:
    """The MLflow of a project."""
    return MlflowTarget(default_uri(project))
