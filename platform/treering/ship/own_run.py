"""A run of Treering's trainer, as MLflow is to show it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from treering.errors import EvidenceError
from treering.metrics.alarms import Alarm
from treering.metrics.efficiency import derived_series
from treering.metrics.flops import ModelShape
from treering.metrics.state import condition
from treering.metrics.stored_alarms import alarms_by_columns
from treering.runlog.ancestry import segments_left
from treering.runlog.columns.path import PathColumns
from treering.runlog.columns.rows import Series
from treering.runlog.directory import MANIFEST_FILE, CheckpointDirectory, RunDirectory
from treering.runlog.find import AnyAttempt
from treering.runlog.journal import Evaluated
from treering.runlog.records import Evaluation, RunState
from treering.runlog.reproductions import reproduction_files
from treering.ship import projection
from treering.ship.source import AnySegment, Model, Scores
from treering.store.values import DatasetInput, Point


class OwnRun:
    """A run of Treering's trainer.

    Args:
        run: its folder.

    Raises:
        EvidenceError: from every method, where the run's folder does not hold.
    """

    def __init__(self, run: RunDirectory) -> None:
        self.run = run
        self._formulas: dict[Path, str | None] = {}

    @property
    def id(self) -> str:
        """The run's id in short."""
        return self.run.id

    @property
    def identity(self) -> str:
        """Digest of the recipe."""
        return self.run.resolved.recipe.digest

    @property
    def experiment(self) -> str:
        """Name of the experiment."""
        return self.run.resolved.experiment

    @property
    def name(self) -> str:
        """Experiment and the beginning of the run's id."""
        return projection.run_name(self.experiment, self.id)

    def condition(self) -> tuple[RunState, dict[str, str]]:
        """The run's state; a stalled run is a running one whose tags say why it is stalled."""
        found = condition(self.run)
        return "running" if found.state == "stalled" else found.state, projection.state_tags(found)

    def attempts(self) -> Sequence[AnyAttempt]:
        """All attempts, oldest first."""
        return self.run.attempts()

    def segments(self) -> Sequence[AnySegment]:
        """The run's own part of the path; it may start from another run, here or missing."""
        return self.run.path_to(own=True)

    def params(self) -> dict[str, str]:
        """Recipe, blend, names."""
        return projection.run_params(self.run.resolved)

    def attempt_params(self, attempt: Any) -> dict[str, str]:
        """Config, layout and kernels of an attempt."""
        return projection.attempt_params(attempt.header)

    def tags(self) -> dict[str, str]:
        """Identity and digests."""
        return projection.run_tags(self.run)

    def changing_tags(self, attempts: Sequence[Any], segments: Sequence[AnySegment]) -> dict[str, str]:
        """The newest attempt, the way through all of them, and people's notes."""
        tags = projection.attempt_tags(attempts, segments) | projection.reproduction_tags(self.run)
        return tags | projection.people_tags(self.run.journal, projection.run_note(self.run.resolved))

    def datasets(self) -> Sequence[DatasetInput]:
        """The corpora of the blend."""
        return projection.corpus_inputs(self.run.resolved)

    def derived(self, attempt: Any, metrics: Mapping[str, Series]) -> dict[str, Series]:
        """MFU, HFU and the pipeline's bubble."""
        resolved = self.run.resolved
        shape = ModelShape.of(resolved.recipe.model, resolved.blend.sequence_length)
        return derived_series(attempt.header, shape, self._formula(attempt), metrics)

    def _formula(self, attempt: Any) -> str | None:
        """The formula of the attempt's TFLOP/s: one trainer counts by one formula."""
        if attempt.path not in self._formulas:
            ring = attempt.ring_log.first()
            if ring is None:
                return None
            self._formulas[attempt.path] = ring.flops_formula
        return self._formulas[attempt.path]

    def alarms(self) -> Sequence[Alarm]:
        """The alarms on the run's own part of the path; where the run before it is damaged, judged without that run."""
        segments, missing = segments_left(self.run)
        own = self.run.path_to(own=True)
        first = own[0].attempt.first_step()
        try:
            found = alarms_by_columns(self.run, segments, PathColumns.of_run(segments, whole=not missing))
        except EvidenceError:
            found = alarms_by_columns(self.run, own, PathColumns.of_run(own, whole=False))
        return [alarm for alarm in found if alarm.step >= first]

    def events(self) -> tuple[Sequence[Point], dict[str, str]]:
        """Incidents of all attempts, those off the path too."""
        incidents = self.run.incidents()
        return projection.incident_points(incidents), projection.incident_tags(incidents)

    def models(self, segments: Sequence[AnySegment]) -> Sequence[Model]:
        """The checkpoints on the path with their scores."""
        read = [Evaluation.read(path) for path in self.run.evaluation_files()]
        evaluations = {evaluation.checkpoint: (evaluation, digest) for evaluation, digest in read}
        times = {
            line.entry.evaluation: line.entry.at
            for line in self.run.evaluation_journal.lines()
            if isinstance(line.entry, Evaluated)
        }
        found = []
        for checkpoint in self.run.checkpoints():
            if not _is_on(checkpoint, segments):
                continue
            evaluation = evaluations.get(checkpoint.digest)
            found.append(
                Model(
                    checkpoint.digest,
                    checkpoint.path.name,
                    checkpoint.step,
                    f"{self.name}-{checkpoint.path.name}",
                    projection.checkpoint_tags(checkpoint),
                    projection.checkpoint_params(checkpoint),
                    evaluation and self._scores(checkpoint, *evaluation, times),
                )
            )
        return found

    def _scores(
        self, checkpoint: CheckpointDirectory, evaluation: Evaluation, digest: str, times: Mapping[str, float]
    ) -> Scores:
        path = self.run.evaluations_folder / f"{checkpoint.path.name}.json"
        at = times.get(digest) or path.stat().st_mtime
        points = projection.evaluation_points(evaluation, round(at * 1000))
        return Scores(digest, points, projection.task_inputs(evaluation), evaluation.harness)

    def files(self) -> list[Path]:
        """Manifests, evaluations, reproductions and the journals."""
        return [
            *sorted(self.run.checkpoints_folder.glob(f"step-*/{MANIFEST_FILE}")),
            *self.run.evaluation_files(),
            self.run.journal_file,
            *reproduction_files(self.run),
        ]


def _is_on(checkpoint: CheckpointDirectory, segments: Sequence[AnySegment]) -> bool:
    """Whether the checkpoint is on the path; a checkpoint that is being replaced does not count."""
    try:
        manifest = checkpoint.manifest
    except EvidenceError:
        return False
    return any(
        segment.attempt.number == manifest.attempt and (segment.last_step is None or manifest.step <= segment.last_step)
        for segment in segments
    )
