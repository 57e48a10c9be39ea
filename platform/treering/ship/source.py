"""What a run gives to MLflow: the protocol of both kinds of runs, and the values that it passes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from treering.metrics.alarms import Alarm
from treering.runlog.ancestry import PathSegment
from treering.runlog.columns.rows import Series
from treering.runlog.find import AnyAttempt
from treering.runlog.folders import RunFolder
from treering.runlog.recorded_directory import RecordedSegment
from treering.runlog.records import RunState
from treering.store.values import DatasetInput, Point

AnySegment = PathSegment | RecordedSegment


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of one checkpoint.

    Attributes:
        digest: changes when they do.
        points: of the checkpoint's model; their `model_id` is filled in by the shipper.
        datasets: what they were measured on.
        harness: name and version of the program that measured them.
    """

    digest: str
    points: Sequence[Point]
    datasets: Sequence[DatasetInput]
    harness: str


@dataclass(frozen=True, slots=True)
class Model:
    """A checkpoint on the path.

    Attributes:
        digest: its identity.
        key: its name inside the run.
        step: after which it was written.
        name: of its LoggedModel.
        tags: of its LoggedModel.
        params: of its LoggedModel.
        scores: None where it has none.
    """

    digest: str
    key: str
    step: int
    name: str
    tags: Mapping[str, str]
    params: Mapping[str, str]
    scores: Scores | None


class Source(Protocol):
    """One run, as MLflow is to show it. Every method reads the run's folder anew."""

    @property
    def run(self) -> RunFolder:
        """The run's folder."""

    @property
    def id(self) -> str:
        """The run's id in short."""

    @property
    def identity(self) -> str:
        """The digest that is the run's identity."""

    @property
    def experiment(self) -> str:
        """Name of its experiment."""

    @property
    def name(self) -> str:
        """Name of its MLflow run."""

    def condition(self) -> tuple[RunState, dict[str, str]]:
        """The run's state, and the tags that say it."""

    def attempts(self) -> Sequence[AnyAttempt]:
        """All attempts, oldest first."""

    def segments(self) -> Sequence[AnySegment]:
        """The run's own part of its current path."""

    def params(self) -> dict[str, str]:
        """Params of the whole run."""

    def attempt_params(self, attempt: AnyAttempt) -> dict[str, str]:
        """Params of one attempt."""

    def tags(self) -> dict[str, str]:
        """Tags that never change."""

    def changing_tags(self, attempts: Sequence[AnyAttempt], segments: Sequence[AnySegment]) -> dict[str, str]:
        """Tags that change while the run goes on, those of `events` and `alarms` excepted."""

    def datasets(self) -> Sequence[DatasetInput]:
        """What the whole run reads."""

    def derived(self, attempt: AnyAttempt, metrics: Mapping[str, Series]) -> dict[str, Series]:
        """Metrics that no ring holds, computed from those that it holds."""

    def alarms(self) -> Sequence[Alarm]:
        """What the rules of health found in the run's own part of the path."""

    def events(self) -> tuple[Sequence[Point], dict[str, str]]:
        """Points of what is not in rings, in an order to which later ones are only added, and tags about them."""

    def models(self, segments: Sequence[AnySegment]) -> Sequence[Model]:
        """The checkpoints on the path."""

    def files(self) -> list[Path]:
        """The files whose content decides `models`, and `tags` about people's notes."""
