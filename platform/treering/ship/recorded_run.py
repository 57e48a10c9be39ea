"""A run of another trainer, as MLflow is to show it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from treering.metrics.alarms import Alarm
from treering.runlog.columns.rows import Series
from treering.runlog.find import AnyAttempt
from treering.runlog.journal import Scored
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering.runlog.recorded_records import RecordedCheckpoint
from treering.runlog.records import RunState
from treering.runlog.reproductions import reproduction_files
from treering.ship import projection
from treering.ship.source import AnySegment, Model
from treering.store.values import DatasetInput, Point


class RecordedRun:
    """A run of another trainer.

    Args:
        run: its folder.

    Raises:
        EvidenceError: from every method, where the run's folder does not hold.
    """

    def __init__(self, run: RecordedRunDirectory) -> None:
        self.run = run

    @property
    def id(self) -> str:
        """The run's id in short."""
        return self.run.id

    @property
    def identity(self) -> str:
        """Digest of the run's record."""
        return self.run.digest

    @property
    def experiment(self) -> str:
        """Name of the experiment."""
        return self.run.record.experiment

    @property
    def name(self) -> str:
        """Experiment and the beginning of the run's id."""
        return projection.run_name(self.experiment, self.id)

    def condition(self) -> tuple[RunState, dict[str, str]]:
        """The run's state; how long a step of another trainer may take is not known, so no run is stalled."""
        state = self.run.state()
        return state, {"treering.state": state}

    def attempts(self) -> Sequence[AnyAttempt]:
        """All attempts, oldest first."""
        return self.run.attempts()

    def segments(self) -> Sequence[AnySegment]:
        """The way to the newest ring."""
        return self.run.path_to_end()

    def params(self) -> dict[str, str]:
        """The trainer's settings as it reported them."""
        record = self.run.record
        values = {
            "experiment": record.experiment,
            "config": record.config,
            "blend": record.blend,
            "repetition": record.repetition,
        }
        return dict(projection.texts(values))

    def attempt_params(self, attempt: Any) -> dict[str, str]:
        """Command, host, ranks and code of an attempt."""
        header = attempt.header
        values = {
            "command": " ".join(header.command),
            "host": header.host,
            "world_size": header.world_size,
            "resumed_step": header.resumed_step,
            "code": {key: header.code.get(key) for key in ("script", "script_digest", "commit", "dirty")},
            "environment": header.environment.get("digest"),
            "data": header.data,
        }
        return dict(projection.texts(values, f"attempts.{header.attempt:04d}"))

    def tags(self) -> dict[str, str]:
        """Identity and digests."""
        record = self.run.record
        blend = {"treering.digest.blend": record.blend} if record.blend else {}
        return {
            projection.RUN_TAG: self.identity,
            projection.BRANCH_TAG: "current",
            "treering.run_id": self.id,
            "treering.recorded": "by another trainer",
            "mlflow.source.name": "treering.start",
            **blend,
        }

    def changing_tags(self, attempts: Sequence[Any], segments: Sequence[AnySegment]) -> dict[str, str]:
        """The newest attempt, the way through all of them, and people's notes."""
        header = attempts[-1].header
        tags = projection.way_tags(attempts, segments) | {"treering.ranks": str(header.world_size)}
        tags |= projection.reproduction_tags(self.run)
        if header.code.get("commit"):
            tags["mlflow.source.git.commit"] = str(header.code["commit"])
        note = (
            f"**{self.experiment}**\n\nRun `{self.id}` of another trainer. More by `treering show {self.id}` and "
            f"`treering audit {self.id}`. Abandoned branches, if any, are nested below this run."
        )
        return tags | projection.people_tags(self.run.journal, note)

    def datasets(self) -> Sequence[DatasetInput]:
        """The corpora of the blend, where the trainer reads by one."""
        for attempt in self.run.attempts():
            corpora = (attempt.header.data or {}).get("corpora") or {}
            return [DatasetInput(name, digest, "training") for name, digest in corpora.items() if digest]
        return []

    def derived(self, attempt: Any, metrics: Mapping[str, Series]) -> dict[str, Series]:  # noqa: ARG002 - none
        """Nothing: what the trainer's numbers mean is not known."""
        return {}

    def alarms(self) -> Sequence[Alarm]:
        """Nothing: the rules need a loss in nats."""
        return []

    def events(self) -> tuple[Sequence[Point], dict[str, str]]:
        """Scores that the trainer reported, after any step and of any attempt."""
        scored = [line.entry for line in self.run.journal.lines() if isinstance(line.entry, Scored)]
        points = [
            Point(f"eval/{entry.task}/{name}", value, entry.step, round(entry.at * 1000))
            for entry in scored
            for name, value in entry.metrics.items()
        ]
        return points, {"treering.num_scores": str(len(scored))} if scored else {}

    def models(self, segments: Sequence[AnySegment]) -> Sequence[Model]:
        """The checkpoints on the path, wherever the trainer wrote them."""
        last_steps = {segment.attempt.number: segment.last_step for segment in segments}
        found = []
        for file in self.run.checkpoint_files():
            checkpoint, digest = RecordedCheckpoint.read(file)
            last_step = last_steps.get(checkpoint.attempt, 0)
            if last_step is not None and checkpoint.step > last_step:
                continue
            tags = {
                projection.CHECKPOINT_TAG: digest,
                projection.RUN_TAG: checkpoint.run,
                "treering.step": str(checkpoint.step),
                "treering.attempt": str(checkpoint.attempt),
                "treering.ring": checkpoint.ring,
                "treering.path": checkpoint.path,
            }
            params = {
                "step": str(checkpoint.step),
                "bytes": str(sum(each.size for each in checkpoint.files)),
                "files": str(len(checkpoint.files)),
            }
            name = f"{self.name}-{file.stem}"
            found.append(Model(digest, file.stem, checkpoint.step, name, tags, params, None))
        return found

    def files(self) -> list[Path]:
        """The records of checkpoints and reproductions, and the journal."""
        return [*self.run.checkpoint_files(), self.run.journal.path, *reproduction_files(self.run)]
