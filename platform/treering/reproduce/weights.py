"""Whether two runs have the same weights where both have a checkpoint of one step: tensor by tensor.

The trainer compares them in a process of its own, since this package has no torch. Files of checkpoints are not
compared: they hold times and a layout.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from treering.errors import EvidenceError, TrainingError
from treering.foreign import say
from treering.metrics.doubts import Doubt
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering.runlog.find import AnyRun


@dataclass(frozen=True, slots=True)
class StepWeights:
    """The weights of two runs after one step.

    Attributes:
        step: the step.
        weights: how many weights were compared.
        differences: those that differ in any bit: `name`, shape and type in the `first` and the `second` run,
            `relative` (norm of the difference over the norm) and `elements` that differ.
        optimizer: tensors of the optimizer's state, and how many of them differ; None where they were not compared,
            since the checkpoints hold them in other parts.
    """

    step: int
    weights: int
    differences: tuple[Mapping[str, Any], ...]
    optimizer: tuple[int, int] | None = None

    @property
    def differs(self) -> bool:
        """Whether a weight or the optimizer's state is not the same."""
        return bool(self.differences) or (self.optimizer is not None and self.optimizer[1] > 0)


@dataclass(frozen=True, slots=True)
class WeightsComparison:
    """The weights of two runs.

    Attributes:
        steps: of the last checkpoint of both before their numbers differ, and of the first one after; of equal runs
            the newest one.
        doubts: what limits the answer.
    """

    steps: tuple[StepWeights, ...]
    doubts: tuple[Doubt, ...]


def compare_weights(first: AnyRun, second: AnyRun, step: int | None, steps: range | None = None) -> WeightsComparison:
    """Compares the weights of two runs after steps of which both kept a checkpoint.

    Args:
        first: one run.
        second: the other run.
        step: the first step with other numbers; None where there is none.
        steps: whose checkpoints count; None: all.

    Raises:
        EvidenceError: a record of a run does not hold.
    """
    if not isinstance(first, RunDirectory) or not isinstance(second, RunDirectory):
        text = "the weights: the form of another trainer's checkpoints is not known"
        return WeightsComparison((), (Doubt("missing", text, "load both with that trainer, and compare there"),))
    saved = [_on_path(run) for run in (first, second)]
    common = sorted(each for each in saved[0].keys() & saved[1].keys() if steps is None or each in steps)
    if not common:
        text = f"the weights: no step{' of these' if steps else ''} has a checkpoint in both runs"
        return WeightsComparison((), (Doubt("missing", text, "keep more with `checkpoint.keep_every`"),))
    before = [each for each in common if step is None or each < step][-1:]
    behind = [each for each in common if step is not None and each >= step][:1]
    if find_spec("treering_trainer") is None or find_spec("torch") is None:
        text = "the weights: the trainer is not installed here"
        return WeightsComparison((), (Doubt("missing", text, "`pip install 'treering[trainer]'`"),))
    pairs = [(saved[0][each], saved[1][each]) for each in (*before, *behind)]
    try:
        found = _compared(pairs)
    except (EvidenceError, TrainingError) as error:
        return WeightsComparison((), (Doubt("missing", str(error), "`treering verify` names a damaged file"),))
    if all(each.optimizer is not None for each in found):
        return WeightsComparison(tuple(found), ())
    text = "the optimizer's state was not compared: the checkpoints hold it in other parts, as other layouts do"
    return WeightsComparison(tuple(found), (Doubt("limited", text, "its effect is in the numbers of later steps"),))


def _on_path(run: RunDirectory) -> dict[int, CheckpointDirectory]:
    """The checkpoints of a run that are on its path, by step."""
    ends = {segment.attempt.number: segment.last_step for segment in run.path_to(own=True)}
    found = {}
    for each in run.checkpoints():
        if not each.has_manifest:
            continue
        end = ends.get(each.manifest.attempt, 0)
        if end is None or each.step <= end:
            found[each.step] = each
    return found


def _compared(pairs: Sequence[tuple[CheckpointDirectory, CheckpointDirectory]]) -> list[StepWeights]:
    """Has the trainer compare checkpoints.

    Raises:
        EvidenceError: a checkpoint has no weights.
        TrainingError: the trainer cannot read a checkpoint.
    """
    steps = ", ".join(f"{first.step:,}" for first, _ in pairs)
    say(f"comparing the weights after step {steps}, which loads torch")
    paths = [str(each.path) for pair in pairs for each in pair]
    command = [sys.executable, "-m", "treering_trainer.checkpointing.compare", *paths]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        kind = EvidenceError if done.returncode == EvidenceError.exit_code else TrainingError
        raise kind(f"the weights after step {steps} were not compared: {done.stderr.strip()}")
    return [
        StepWeights(first.step, found["weights"], tuple(found["differences"]), _optimizer(found["optimizer"]))
        for (first, _), found in zip(pairs, json.loads(done.stdout), strict=True)
    ]


def _optimizer(found: Sequence[int] | None) -> tuple[int, int] | None:
    return None if found is None else (found[0], found[1])
