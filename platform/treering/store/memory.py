"""A store that is only memory: what a shipper needs of MLflow, to see what a run's folder gives."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from treering.config.canonical import short
from treering.store.image import Image, Point3
from treering.store.values import (
    DATASET_DIGEST_CHARACTERS,
    Alias,
    DatasetInput,
    Point,
    RunStatus,
    StoredRun,
    drawn,
    short_tags,
    stored_key,
    stored_model_name,
    stored_params,
)


class Writable(Protocol):
    """What a shipper needs of a store; see `treering.store.registry.Registry`."""

    def experiment(self, name: str) -> str:
        """Id of an experiment."""

    def find_runs(self, experiment_id: str, tags: Mapping[str, str]) -> list[StoredRun]:
        """The runs with all of these tags."""

    def get_run(self, run_id: str) -> StoredRun:
        """One run."""

    def create_run(self, experiment_id: str, name: str, start_time_ms: int, tags: Mapping[str, str]) -> StoredRun:
        """A new run."""

    def rename(self, run_id: str, name: str) -> None:
        """Another name."""

    def set_status(self, run_id: str, status: RunStatus, end_time_ms: int | None) -> None:
        """Another status."""

    def log(self, run_id: str, points: Sequence[Point] = (), tags: Mapping[str, str] | None = None) -> None:
        """Points and tags."""

    def log_params(self, run_id: str, params: Mapping[str, str]) -> None:
        """Params."""

    def log_datasets(self, run_id: str, datasets: Sequence[DatasetInput]) -> None:
        """What the run reads."""

    def models(self, experiment_id: str, run_id: str, tag: str) -> dict[str, str]:
        """LoggedModels: value of `tag` to model id."""

    def create_model(
        self, experiment_id: str, run_id: str, name: str, tags: Mapping[str, str], params: Mapping[str, str]
    ) -> str:
        """A new LoggedModel."""

    def finish_model(self, run_id: str, model_id: str, step: int) -> None:
        """Marks a LoggedModel ready."""

    def delete_model(self, model_id: str) -> None:
        """Deletes a LoggedModel."""

    def promote(self, run_id: str, model_id: str, alias: Alias) -> None:
        """Gives a checkpoint an alias."""


class MemoryRegistry:
    """Holds one run in memory, in the form that MLflow would give it."""

    def __init__(self) -> None:
        self._points: dict[str, set[Point3]] = {}
        self.image = Image(points=self._points)

    def experiment(self, name: str) -> str:
        """The name itself."""
        return name

    def find_runs(self, experiment_id: str, tags: Mapping[str, str]) -> list[StoredRun]:
        """No run: what is compared is made from the beginning."""
        return []

    def get_run(self, run_id: str) -> StoredRun:
        """The run as it is now."""
        image = self.image
        return StoredRun(run_id, "", image.name, image.status, image.tags, image.params, frozenset())

    def create_run(self, experiment_id: str, name: str, start_time_ms: int, tags: Mapping[str, str]) -> StoredRun:
        """Begins the run."""
        self.image.name, self.image.status = name, "RUNNING"
        self.image.tags |= short_tags(tags)
        return self.get_run("")

    def rename(self, run_id: str, name: str) -> None:
        """Gives the run another name."""
        self.image.name = name

    def set_status(self, run_id: str, status: RunStatus, end_time_ms: int | None) -> None:
        """Gives the run another status."""
        self.image.status = status

    def log(self, run_id: str, points: Sequence[Point] = (), tags: Mapping[str, str] | None = None) -> None:
        """Keeps points and tags."""
        for point in points:
            known = self._points.setdefault(stored_key(point.key), set())
            known.add((point.step, point.timestamp_ms, drawn(point.value)))
        self.image.tags |= short_tags(tags or {})

    def log_params(self, run_id: str, params: Mapping[str, str]) -> None:
        """Keeps params."""
        self.image.params |= stored_params(params)

    def log_datasets(self, run_id: str, datasets: Sequence[DatasetInput]) -> None:
        """Keeps what the run reads."""
        self.image.datasets |= {(each.name, short(each.digest, DATASET_DIGEST_CHARACTERS)) for each in datasets}

    def models(self, experiment_id: str, run_id: str, tag: str) -> dict[str, str]:
        """The models so far."""
        return {tags[tag]: name for name, (tags, _) in self.image.models.items() if tag in tags}

    def create_model(
        self,
        experiment_id: str,
        run_id: str,
        name: str,
        tags: Mapping[str, str],
        params: Mapping[str, str],
    ) -> str:
        """Keeps a model."""
        stored = stored_model_name(name)
        self.image.models[stored] = (dict(tags), dict(params))
        return stored

    def finish_model(self, run_id: str, model_id: str, step: int) -> None:
        """Nothing: a model in memory is ready."""

    def delete_model(self, model_id: str) -> None:
        """Forgets a model."""
        del self.image.models[model_id]

    def promote(self, run_id: str, model_id: str, alias: Alias) -> None:
        """Nothing: aliases are of an experiment, not of a run."""
