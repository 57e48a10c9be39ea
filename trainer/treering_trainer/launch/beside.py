"""Starts the evaluation of new checkpoints beside a training, where the config has `evaluation.follow`.

The process is `treering_trainer.evaluate.follow`. It has a session of its own, gets only the processor's idle time, and
the training never waits for it.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from treering.apart import start_apart
from treering.config.operation import EvaluationConfig
from treering.errors import EvidenceError
from treering.runlog.attempt import AttemptDirectory
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering.runlog.records import Evaluation
from treering_trainer.monitor import heartbeat
from treering_trainer.monitor.processes import STORE_VARIABLES

_OF_A_RANK: Final = (
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    *STORE_VARIABLES,
    heartbeat.VARIABLE,
)
"""Variables that would make the evaluation a rank of the training."""


@dataclass(frozen=True, slots=True)
class Follow:
    """How new checkpoints are evaluated beside a training.

    Attributes:
        overrides: `--set` of the training, which may concern the evaluation.
        device: what computes.
    """

    overrides: tuple[str, ...]
    device: str

    @classmethod
    def of(cls, config: EvaluationConfig, overrides: Sequence[str]) -> "Follow | None":
        """None where the config does not ask for it."""
        return cls(tuple(overrides), config.device or "cpu") if config.follow else None

    def start(self, config: Path, attempt: Path) -> None:
        """Starts the process in this folder, the project's root.

        It ends when this one has ended and every checkpoint was tried.

        Args:
            config: the experiment's file.
            attempt: the directory of the attempt whose checkpoints are evaluated.
        """
        removed = {*_OF_A_RANK, "DS_ACCELERATOR"}
        start_apart(
            [
                *(sys.executable, "-m", "treering_trainer.evaluate.follow", str(config.resolve())),
                *(str(attempt.resolve()), str(os.getpid()), self.device, *self.overrides),
            ],
            follow_log(attempt),
            {name: value for name, value in os.environ.items() if name not in removed},
        )


def follow_log(attempt: Path) -> Path:
    """The file with everything that the evaluation beside an attempt prints."""
    return attempt / "logs" / "evaluation.log"


def is_scored(run: RunDirectory, checkpoint: CheckpointDirectory) -> bool:
    """Whether a checkpoint has a record of scores, on whatever tasks."""
    try:
        record, _ = Evaluation.read(run.evaluations_folder / f"{checkpoint.path.name}.json")
    except EvidenceError:
        return False
    return record.checkpoint == checkpoint.digest


def unscored(run: RunDirectory, attempt: Path) -> Iterator[str]:
    """What to say at the end of an attempt whose checkpoints are evaluated beside it: failures, and what is left."""
    for incident in AttemptDirectory(attempt).incidents():
        if incident.kind == "evaluation_failed":
            yield f"evaluation beside the training: {incident.text}"
    left = [str(each.step) for each in run.checkpoints() if not is_scored(run, each)]
    if left:
        yield (
            f"evaluation beside the training goes on: no scores yet for step {', '.join(left)}; its log is "
            f"{follow_log(attempt)}, and `treering evaluate {run.path.name} --all` scores what is missing"
        )
