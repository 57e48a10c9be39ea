"""Published scores of other models, in `experiments/references/*.yaml`, one file a model.

They stand beside a run's own scores only where task, number of examples and metric are the same; even then prompts and
harness were the publication's, which each file says as its caveat.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from treering.config.load import read_mapping, validate_section
from treering.config.model import Section
from treering.metrics.compare import Score


class PublishedScore(Section):
    """One number of a publication."""

    task: str = Field(min_length=1, description="name of the task, as lm-eval names it")
    shots: Annotated[int, Field(ge=0)] = Field(description="examples in the prompt")
    metric: str = Field(min_length=1, description="as lm-eval names it, without its filter")
    value: float = Field(allow_inf_nan=False, description="in the metric's own unit: accuracies from 0 to 1")


class Reference(Section):
    """A model with its published scores."""

    model: str = Field(min_length=1, description="name of the model")
    citation: str = Field(min_length=1, description="where the scores are published")
    caveat: str = Field(min_length=1, description="what was not as in this project's evaluation")
    scores: tuple[PublishedScore, ...] = Field(min_length=1, description="the scores")


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
    """The published scores of a project, in the order of the files' names; none where there is no folder.

    Args:
        folder: `experiments/references`.

    Raises:
        ConfigError: a file is not a reference; names the file and the field.
    """
    files = sorted(folder.glob("*.yaml"))
    return [validate_section(file, Reference, read_mapping(file, "published scores of a model")) for file in files]


def beside(own: Sequence[Score], references: Sequence[Reference]) -> list[Beside]:
    """The published scores that may stand beside own ones, in the order of the own."""
    return [
        Beside(reference, score.value, each)
        for each in own
        for reference in references
        for score in reference.scores
        if (score.task, score.shots, score.metric) == (each.task, each.shots, each.metric.partition(",")[0])
    ]
