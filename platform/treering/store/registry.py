"""The registry: MLflow behind the few methods that shipping needs.

Every failure of the server or database comes out as `StoreError`: the run log still holds everything, and the same
call made again writes nothing twice.
"""

import json
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import mlflow.entities
import requests
import sqlalchemy.exc
from mlflow.data.code_dataset_source import CodeDatasetSource
from mlflow.exceptions import MlflowException
from mlflow.utils.mlflow_tags import MLFLOW_MODEL_IS_EXTERNAL

from treering.config.canonical import short
from treering.errors import StoreError
from treering.project import Project
from treering.redact import redact
from treering.store.image import Image
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

_log = logging.getLogger(__name__)

PROMOTED_TAG: Final = "treering.promoted"
"""Of a version of a registered model, with the alias behind it: when the version got the alias, Unix seconds."""

MAX_PARAMS: Final = 100
"""Params in one call."""


def default_uri(project: Project) -> str:
    """`MLFLOW_TRACKING_URI`, or the embedded database of the project."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{project.root.resolve() / 'mlflow.db'}"


class Registry:
    """One MLflow tracking store.

    Not thread-safe: one shipper owns it.

    Args:
        uri: tracking URI.

    Raises:
        StoreError: from every method, when the store does not answer or refuses.
        UserError: the URI names a database that cannot be opened here: an unknown kind, or a driver that is missing.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        if not uri.startswith(("http://", "https://")):
            from treering.store.database import prepare_database  # noqa: PLC0415 - a server needs no SQLAlchemy here

            note = prepare_database(uri)
            if note:
                _log.warning("%s", note)
        with self._answers():
            self._client = mlflow.MlflowClient(tracking_uri=uri)

    @contextmanager
    def _answers(self) -> Iterator[None]:
        try:
            yield
        except (MlflowException, requests.RequestException, sqlalchemy.exc.SQLAlchemyError, OSError) as error:
            text = str(error).strip() or type(error).__name__
            raise StoreError(
                f"registry {redact(self.uri)}: {redact(text.splitlines()[0])[:500]}; nothing is lost, "
                "`treering ship` goes on once it answers"
            ) from None

    def experiment(self, name: str) -> str:
        """Id of an experiment by name; made if it is missing."""
        with self._answers():
            found = self._client.get_experiment_by_name(name)
            if found is None:
                return str(self._client.create_experiment(name, artifact_location=_artifact_location(self.uri)))
            if found.lifecycle_stage == "deleted":
                self._client.restore_experiment(found.experiment_id)
            return str(found.experiment_id)

    def has_experiment(self, name: str) -> bool:
        """Whether there is an experiment of a name, and it is not deleted."""
        with self._answers():
            found = self._client.get_experiment_by_name(name)
        return found is not None and found.lifecycle_stage != "deleted"

    def find_runs(self, experiment_id: str, tags: Mapping[str, str]) -> list[StoredRun]:
        """The runs that carry all of these tags, newest first."""
        condition = " and ".join(f"tags.`{key}` = '{value}'" for key, value in tags.items())
        with self._answers():
            found = self._client.search_runs([experiment_id], condition, order_by=["attributes.start_time DESC"])
        return [_stored(run) for run in found]

    def get_run(self, run_id: str) -> StoredRun:
        """One run by its id."""
        with self._answers():
            return _stored(self._client.get_run(run_id))

    def create_run(self, experiment_id: str, name: str, start_time_ms: int, tags: Mapping[str, str]) -> StoredRun:
        """A new run, RUNNING."""
        with self._answers():
            return _stored(self._client.create_run(experiment_id, start_time_ms, short_tags(tags), name))

    def rename(self, run_id: str, name: str) -> None:
        """Gives a run another name."""
        with self._answers():
            self._client.update_run(run_id, name=name)

    def set_status(self, run_id: str, status: RunStatus, end_time_ms: int | None) -> None:
        """Sets the run's status; every status except RUNNING and SCHEDULED has an end time."""
        with self._answers():
            if status in {"RUNNING", "SCHEDULED"}:
                self._client.update_run(run_id, status=status)
            else:
                self._client.set_terminated(run_id, status, end_time_ms)

    def log(self, run_id: str, points: Sequence[Point] = (), tags: Mapping[str, str] | None = None) -> None:
        """Stores at most `MAX_METRICS` points, then tags, in one call; equal points are stored once."""
        metrics = [
            mlflow.entities.Metric(
                stored_key(point.key),
                drawn(point.value),
                point.timestamp_ms,
                point.step,
                model_id=point.model_id,
                dataset_name=point.dataset[0] if point.dataset else None,
                dataset_digest=short(point.dataset[1], DATASET_DIGEST_CHARACTERS) if point.dataset else None,
            )
            for point in points
        ]
        entities = [mlflow.entities.RunTag(key, value) for key, value in short_tags(tags or {}).items()]
        with self._answers():
            self._client.log_batch(run_id, metrics=metrics, tags=entities, synchronous=True)

    def log_params(self, run_id: str, params: Mapping[str, str]) -> None:
        """Stores params; see `stored_params`."""
        entities = [mlflow.entities.Param(key, value) for key, value in stored_params(params).items()]
        with self._answers():
            for start in range(0, len(entities), MAX_PARAMS):
                self._client.log_batch(run_id, params=entities[start : start + MAX_PARAMS], synchronous=True)

    def log_datasets(self, run_id: str, datasets: Sequence[DatasetInput]) -> None:
        """Records what the run reads; one that is recorded already stays as it is."""
        with self._answers():
            self._client.log_inputs(run_id, datasets=[_dataset_entity(dataset) for dataset in datasets])

    def models(self, experiment_id: str, run_id: str, tag: str) -> dict[str, str]:
        """LoggedModels of a run: value of `tag` to model id."""
        return {model.tags[tag]: model.model_id for model in self._models(experiment_id, run_id) if tag in model.tags}

    def _models(self, experiment_id: str, run_id: str) -> list[Any]:
        found: list[Any] = []
        token: str | None = None
        with self._answers():
            while True:
                page = self._client.search_logged_models(
                    [experiment_id], f"source_run_id = '{run_id}'", max_results=50, page_token=token
                )
                found += page
                token = page.token
                if not token:
                    return found

    def image(self, stored: StoredRun) -> Image:
        """Everything that the store holds of a run."""
        with self._answers():
            run = self._client.get_run(stored.run_id)
            histories = {key: self._client.get_metric_history(stored.run_id, key) for key in run.data.metrics}
        models = self._models(stored.experiment_id, stored.run_id)
        inputs = run.inputs.dataset_inputs if run.inputs else ()
        return Image(
            name=run.info.run_name,
            status=run.info.status,
            params=dict(run.data.params),
            tags=dict(run.data.tags),
            points={key: [(p.step, p.timestamp, p.value) for p in points] for key, points in histories.items()},
            datasets={(each.dataset.name, each.dataset.digest) for each in inputs},
            models={model.name: (dict(model.tags), dict(model.params)) for model in models},
        )

    def create_model(
        self, experiment_id: str, run_id: str, name: str, tags: Mapping[str, str], params: Mapping[str, str]
    ) -> str:
        """Makes a LoggedModel whose files are outside MLflow (a checkpoint); returns its id."""
        with self._answers():
            model = self._client.create_logged_model(
                experiment_id,
                stored_model_name(name),
                source_run_id=run_id,
                tags={**tags, MLFLOW_MODEL_IS_EXTERNAL: "true"},
                params=dict(params),
                model_type="checkpoint",
            )
            return str(model.model_id)

    def finish_model(self, run_id: str, model_id: str, step: int) -> None:
        """Marks a LoggedModel ready and as its run's output at a step; call it once: MLflow would list it twice."""
        with self._answers():
            self._client.finalize_logged_model(model_id, mlflow.entities.LoggedModelStatus.READY)
            self._client.log_outputs(run_id, [mlflow.entities.LoggedModelOutput(model_id, step)])

    def delete_model(self, model_id: str) -> None:
        """Deletes a LoggedModel; MLflow hides it and keeps its record."""
        with self._answers():
            self._client.delete_logged_model(model_id)

    def promote(self, run_id: str, model_id: str, alias: Alias) -> None:
        """Gives a checkpoint an alias: a version of the registered model that has the experiment's name.

        The version that got the alias last keeps it, by the times of the promotions, in whatever order they arrive.

        Args:
            run_id: id of the MLflow run.
            model_id: the checkpoint's LoggedModel.
            alias: the alias.
        """
        name, tag = re.sub("[/:']", "-", alias.experiment), f"{PROMOTED_TAG}.{alias.name}"
        with self._answers():
            if not self._client.search_registered_models(f"name = '{name}'"):
                with suppress(MlflowException):  # another shipper has made it
                    self._client.create_registered_model(name)
            found = self._client.search_model_versions(f"name = '{name}'")
            versions = {each.tags.get(alias.identity[0]): each for each in found}
            if any(float(each.tags.get(tag, "0")) > alias.at for each in versions.values()):
                return
            version = versions.get(alias.identity[1])
            if version is None:
                source = self._client.get_logged_model(model_id).artifact_location
                tags = dict([alias.identity])
                version = self._client.create_model_version(name, source, run_id, tags=tags, model_id=model_id)
            self._client.set_model_version_tag(name, version.version, tag, repr(alias.at))
            self._client.set_registered_model_alias(name, alias.name, version.version)


def _stored(run: Any) -> StoredRun:
    outputs = run.outputs.model_outputs if run.outputs else []
    return StoredRun(
        run.info.run_id,
        run.info.experiment_id,
        run.info.run_name,
        run.info.status,
        dict(run.data.tags),
        dict(run.data.params),
        frozenset(output.model_id for output in outputs),
    )


def _dataset_entity(dataset: DatasetInput) -> Any:
    source = CodeDatasetSource({"name": dataset.name, "digest": dataset.digest})
    tags = {"mlflow.data.context": dataset.context, "treering.digest": dataset.digest, **dataset.tags}
    return mlflow.entities.DatasetInput(
        dataset=mlflow.entities.Dataset(
            name=dataset.name,
            digest=short(dataset.digest, DATASET_DIGEST_CHARACTERS),
            source_type=source._get_source_type(),  # noqa: SLF001  (the entity wants it, MLflow has no public way)
            source=source.to_json(),
            profile=json.dumps(dict(dataset.profile)),
        ),
        tags=[mlflow.entities.InputTag(key, value) for key, value in tags.items()],
    )


def _artifact_location(uri: str) -> str | None:
    """Beside an embedded database, since MLflow's own default is the working directory; a server knows its own."""
    if not uri.startswith("sqlite:///"):
        return None
    from treering.store.sqlite_database import artifact_location  # noqa: PLC0415 - as above

    return artifact_location(Path(uri.removeprefix("sqlite:///")).resolve())
