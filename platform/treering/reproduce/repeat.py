"""Whether a training repeats: its first steps trained twice, in a scratch folder, and compared bit by bit.

Both trainings begin from the same seed, in the layout that the config gives here. No run is touched.
"""

import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from treering.ending import EXIT_RESTART
from treering.errors import EvidenceError, TrainingError, UserError
from treering.project import Project
from treering.reproduce.difference import RunDifference, compare_runs
from treering.reproduce.trial import start_trainer
from treering.reproduce.weights import compare_weights
from treering.runlog.directory import RunDirectory
from treering.runlog.find import find_runs
from treering.runlog.records import KnownNondeterminism

STEPS: Final = 2
"""The second step is done with weights that an update has changed."""


def train_twice(
    config: Path, overrides: Sequence[str], project: Project
) -> tuple[RunDifference, KnownNondeterminism | None]:
    """Trains the first steps of an experiment twice, each in new processes, and compares numbers and weights.

    Args:
        config: the experiment's file.
        overrides: the `--set` texts.
        project: whose corpora are read.

    Returns:
        What differs, and the operations of the training that are known not to be deterministic.

    Raises:
        UserError: the experiment is wrong.
        TrainingError: the steps could not be trained.
        EvidenceError: evidence for the training is missing, or a record of the scratch runs does not hold.
    """
    with tempfile.TemporaryDirectory(prefix="treering-determinism-") as scratch:
        first, second = (_train(Path(scratch) / name, config, overrides, project) for name in ("first", "second"))
        found = compare_runs(first, second, project=project)
        weights = compare_weights(first, second, found.first_step)
        found = replace(found, weights=weights, doubts=(*found.doubts, *weights.doubts))
        return found, second.attempts()[-1].header.nondeterminism


def _train(folder: Path, config: Path, overrides: Sequence[str], project: Project) -> RunDirectory:
    command = [
        sys.executable, "-m", "treering_trainer.launch", str(config), f"--runs={folder}", "--no-publish",
        f"--stop-after={STEPS}", *(f"--set={each}" for each in overrides),
    ]  # fmt: skip
    code = start_trainer(command, project.root, {**os.environ, "MLFLOW_TRACKING_URI": ""})
    runs = find_runs(folder)
    if code not in {0, EXIT_RESTART} or not runs:
        kinds = {each.exit_code: each for each in (UserError, EvidenceError)}
        raise kinds.get(code, TrainingError)(
            f"{config}: its first {STEPS} steps could not be trained, exit code {code}; the messages of the training "
            "are above"
        )
    return runs[0]
