"""The values that go into MLflow, and the form that MLflow keeps them in. Imports no MLflow."""

import math
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from treering.config.canonical import digest_bytes

MAX_METRICS: Final = 900
"""Metrics in one call; MLflow takes 1000 entities a call, and the position's tags travel with them."""

LARGEST_VALUE: Final = 1e300
"""A larger value is stored as NaN: MLflow writes 1.8e308 for infinity, and an evaluation 1e304 for a perplexity that no
float holds."""

MAX_PARAM_CHARACTERS: Final = 6000
MAX_TAG_CHARACTERS: Final = 8000
MAX_KEY_CHARACTERS: Final = 250
DATASET_DIGEST_CHARACTERS: Final = 36
"""MLflow keeps that much of a dataset's digest; the whole digest is in the input's tags."""

_REFUSED: Final = re.compile(r"[^\w. :/-]")
_REFUSED_IN_MODELS: Final = re.compile(r"""[/:.%"']""")

RunStatus = Literal["SCHEDULED", "RUNNING", "FINISHED", "FAILED", "KILLED"]


@dataclass(frozen=True, slots=True)
class Point:
    """One value of one metric.

    Attributes:
        key: key of the metric catalog.
        value: may be NaN or infinite; both are stored as NaN, since MLflow draws ±infinity as ±1.8e308, which flattens
            every other value of a chart.
        step: optimizer step.
        timestamp_ms: when it was measured; equal points are stored once, so it must not change between two shippings.
        model_id: LoggedModel that it scores, with `dataset` what it was scored on.
        dataset: name and digest.
    """

    key: str
    value: float
    step: int
    timestamp_ms: int
    model_id: str | None = None
    dataset: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class DatasetInput:
    """A corpus or task that a run reads.

    Attributes:
        name: of the corpus or task.
        digest: its identity, whole.
        context: `training` or `evaluation`.
        profile: numbers such as tokens and documents.
        tags: more about how it is used, like its weight.
    """

    name: str
    digest: str
    context: str
    profile: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Alias:
    """An alias that a checkpoint was promoted to.

    Attributes:
        experiment: name of the experiment, whose registered model has the alias.
        name: the alias.
        identity: of the checkpoint: the name and the value of the tag that names it.
        at: when it was promoted, Unix seconds.
    """

    experiment: str
    name: str
    identity: tuple[str, str]
    at: float


@dataclass(frozen=True, slots=True)
class StoredRun:
    """What the registry knows of a run."""

    run_id: str
    experiment_id: str
    name: str
    status: str
    tags: Mapping[str, str]
    params: Mapping[str, str]
    output_models: frozenset[str]


def is_drawable(value: float) -> bool:
    """Whether MLflow stores a value as it is; infinities, and numbers as large, would flatten the rest of a chart."""
    return abs(value) < LARGEST_VALUE


def stored_key(key: str) -> str:
    """The name that MLflow stores a metric or a param by: names of other trainers may have characters that it refuses.

    A name that is changed ends with a digest of itself, so that two names stay apart.
    """
    changed = posixpath.normpath(_REFUSED.sub("_", key) or "_").lstrip("/.") or "_"
    if changed == key and len(key) <= MAX_KEY_CHARACTERS:
        return key
    digest = digest_bytes(key.encode(errors="surrogatepass")).removeprefix("sha256:")[:8]
    return f"{changed[: MAX_KEY_CHARACTERS - 9]}-{digest}"


def stored_model_name(name: str) -> str:
    """The name that MLflow takes for a LoggedModel; its end tells the checkpoints of a run apart."""
    return _REFUSED_IN_MODELS.sub("_", name)[-MAX_KEY_CHARACTERS:]


def drawn(value: float) -> float:
    """A value as MLflow stores it."""
    return value if is_drawable(value) else math.nan


def stored_params(params: Mapping[str, str]) -> dict[str, str]:
    """Params as MLflow keeps them: a value of more than 6000 characters goes on under `<key>.part-2` and so forth."""
    found = {}
    for name, value in params.items():
        key = stored_key(name)
        found[key] = value[:MAX_PARAM_CHARACTERS]
        for number, start in enumerate(range(MAX_PARAM_CHARACTERS, len(value), MAX_PARAM_CHARACTERS), 2):
            found[f"{key}.part-{number}"] = value[start : start + MAX_PARAM_CHARACTERS]
    return found


def short_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags as MLflow keeps them."""
    return {key: value[:MAX_TAG_CHARACTERS] for key, value in tags.items()}
