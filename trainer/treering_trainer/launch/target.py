"""Where a training reads and writes, and how its final checkpoint is published there.

Imports torch and DeepSpeed only to publish.
"""

from dataclasses import dataclass
from pathlib import Path

from treering.config.resolved import Resolved
from treering.foreign import say
from treering.project import Project
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering_trainer.launch.beside import Follow


@dataclass(frozen=True, slots=True)
class Target:
    """Where a training reads and writes.

    Attributes:
        project: where the data is and the published checkpoint goes.
        runs: folder of run directories.
        config: the experiment's file, for errors.
        publish: whether the finished run becomes the project's published checkpoint, metrics and plots.
        follow: how new checkpoints are evaluated beside the training, None if they are not.
    """

    project: Project
    runs: Path
    config: Path
    publish: bool = True
    follow: Follow | None = None

    def run(self, resolved: Resolved) -> RunDirectory:
        """The directory of a run."""
        return RunDirectory((self.runs / resolved.run_id).resolve())

    def publish_final(self, run: RunDirectory, final: CheckpointDirectory) -> None:
        """Publishes a finished run's last checkpoint, where this training publishes and it is not there yet."""
        from treering_trainer.checkpointing.publish import publish

        if self.publish and publish(self.project, run, final):
            say(f"  published {final.path.name} with its rings in {self.project.published}")
