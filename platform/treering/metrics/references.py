"""Published scores and speeds of other trainings, in `experiments/references/*.yaml`, one file a publication.

A score stands beside a run's own only where task, number of examples and metric are the same; even then prompts and
harness were the publication's, which each file says as its caveat. Speeds count FLOPs by `ptdp-2021`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from treering.config.load import read_mapping, validate_section
from treering.config.model import PositiveInt, Section
from treering.metrics.compare import Score


class PublishedScore(Section):
    """One number of a publication."""

    task: str = Field(min_length=1, description="name of the task, as lm-eval names it")
    shots: Annotated[int, Field(ge=0)] = Field(description="examples in the prompt")
    metric: str = Field(min_length=1, description="as lm-eval names it, without its filter")
    value: float = Field(allow_inf_nan=False, description="in the metric's own unit: accuracies from 0 to 1")


class PublishedSpeed(Section):
    """One training on one number of devices."""

    model: str = Field(min_length=1, description="name of the model")
    devices: PositiveInt = Field(description="how many trained")
    device: str = Field(min_length=1, description="which, as its driver names it")
    batch: PositiveInt = Field(description="global batch size, samples")
    tflops: float = Field(gt=0, allow_inf_nan=False, description="TFLOP/s of a device by ptdp-2021, recompute counted")
    seconds: float | None = Field(None, gt=0, allow_inf_nan=False, description="of a step")


class Reference(Section):
    """A publication with its scores and speeds."""

    model: str = Field(min_length=1, description="name of the model, or of the series of models")
    citation: str = Field(min_length=1, description="where the numbers are published")
    caveat: str = Field(min_length=1, description="what was not as in this project")
    scores: tuple[PublishedScore, ...] = Field((), description="scores of the model")
    speeds: tuple[PublishedSpeed, ...] = Field((), description="how fast its trainings were")


@dataclass(frozen=True, slots=True)
class Beside:
    """A published score beside the own score of the same task, number of examples and metric.

    Attributes:
        reference: the model that it is of.
        published: its value.
        own: the own score.
    """

    reference: Reference
    published: float
    own: Score


def read_references(folder: Path) -> list[Reference]:
    """The publications of a project, in the order of the files' names; none where there is no folder.

    Args:
        folder: `experiments/references`.

    Raises:
        ConfigError: a file is not a reference; names the file and the field.
    """
    files = sorted(folder.glob("*.yaml"))
    return [validate_section(file, Reference, read_mapping(file, "published scores or speeds")) for file in files]


def beside(own: Sequence[Score], references: Sequence[Reference]) -> list[Beside]:
    """The published scores that may stand beside own ones, in the order of the own."""
    return [
        Beside(reference, score.value, each)
        for each in own
        for reference in references
        for score in reference.scores
        if (score.task, score.shots, score.metric) == (each.task, each.shots, each.metric.partition(",")[0])
    ]
