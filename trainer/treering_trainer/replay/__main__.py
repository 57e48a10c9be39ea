"""Trains steps of a checkpoint's path again from the checkpoint before them, and compares the rings.

    python -m treering_trainer.replay CHECKPOINT --steps K [--seed N]

The run stays as it is: each stretch of steps is trained in a copy of the run that is cut to one checkpoint, in the
layout and with the kernels of the attempt that trained it first. Prints one JSON document; progress goes to standard
error.
"""

import argparse
import json
import os
import random
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from treering.collect.code import code_difference
from treering.config.resolved import CONFIG_FILE, Resolved
from treering.ending import EXIT_RESTART, run_command
from treering.errors import EvidenceError, TrainingError, UserError
from treering.foreign import say
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering.runlog.extract import extract_run
from treering.runlog.find import find_checkpoint
from treering.runlog.records import AttemptHeader
from treering.runlog.ring import Ring

_NEVER = 10**9


@dataclass(frozen=True, slots=True)
class ReplayedStep:
    """One step, as recorded and as replayed.

    Attributes:
        step: the step.
        picked: whether the step was chosen; the others are between a checkpoint and a chosen step.
        loss: as recorded, nats a token.
        replayed_loss: as replayed, nats a token.
        identical: whether loss, gradient norm, learning rate, batch digest and `applied` are equal to the last bit.
    """

    step: int
    picked: bool
    loss: float
    replayed_loss: float
    identical: bool


@dataclass(frozen=True, slots=True)
class Replay:
    """The result of a replay.

    Attributes:
        checkpoint: digest of the checkpoint at the end of the path.
        seed: of the choice of steps.
        steps: every replayed step, ascending.
        changed: what changed since a stretch was trained first, in words.
    """

    checkpoint: str
    seed: int
    steps: tuple[ReplayedStep, ...]
    changed: tuple[str, ...]


def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the command line and replays.

    Returns:
        0, or the exit code of the error; the document reports whether steps were identical.
    """
    parser = argparse.ArgumentParser(prog="replay", description="Train random steps again and compare their losses.")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--steps", type=int, required=True, metavar="K", help="how many steps to pick")
    parser.add_argument("--seed", type=int, default=None, help="of the choice; default a new one")
    options = parser.parse_args(arguments)
    return run_command(
        lambda: _replay_named(options),
        trouble="the replay cannot read or write: {}; the run is unchanged",
        trouble_code=TrainingError.exit_code,
        interrupted="; the run is unchanged",
    )


def _replay_named(options: argparse.Namespace) -> None:
    found = replay(find_checkpoint(options.checkpoint), options.steps, options.seed)
    sys.stdout.write(json.dumps(asdict(found)) + "\n")


def replay(checkpoint: CheckpointDirectory, count: int, seed: int | None = None) -> Replay:
    """Trains random steps of a checkpoint's path again.

    Args:
        checkpoint: the end of the path.
        count: how many steps to pick.
        seed: of the choice; a new one by default, so that nobody knows the steps in advance.

    Returns:
        Each replayed step beside the recorded one.

    Raises:
        UserError: no step of this run can be replayed.
        EvidenceError: a record on the path does not hold.
        TrainingError: a stretch could not be trained.
    """
    run = checkpoint.run
    rings = {ring.step: ring for ring in run.path_rings(checkpoint)}
    own = [step for step in rings if step >= run.resolved.first_step]
    seed = secrets.randbelow(1 << 32) if seed is None else seed
    picked = set(random.Random(seed).sample(own, min(count, len(own))))
    bases = _bases(run, checkpoint)
    stretches: dict[int, int] = {}
    for step in picked:
        base = max((each for each in bases if each < step), default=0)
        if not base and run.resolved.recipe.start_from is not None:
            raise UserError(
                f"{checkpoint.path}: step {step} is before the first checkpoint of a run that starts from another run, "
                "expected a checkpoint before the step to replay it from; keep more checkpoints"
            )
        stretches[base] = max(step, stretches.get(base, 0))
    steps: list[ReplayedStep] = []
    changed: list[str] = []
    for base, last in sorted(stretches.items()):
        say(f"replay: steps {base + 1} to {last}, from {f'checkpoint {base}' if base else 'nothing'}")
        again, differences = _train_again(checkpoint, bases.get(base), base, last)
        steps += [_compared(rings[ring.step], ring, ring.step in picked) for ring in again]
        changed += differences
    return Replay(checkpoint.digest, seed, tuple(steps), tuple(dict.fromkeys(changed)))


def _bases(run: RunDirectory, checkpoint: CheckpointDirectory) -> dict[int, CheckpointDirectory]:
    """The run's checkpoints on the path before its end, by step."""
    on_path = {segment.attempt.number: segment.last_step or 0 for segment in run.path_to(checkpoint)
               if segment.run.path == run.path}  # fmt: skip
    found = {}
    for each in run.checkpoints():
        manifest = each.manifest
        if each.step < checkpoint.step and manifest.step <= on_path.get(manifest.attempt, 0):
            found[each.step] = each
    return found


def _train_again(
    checkpoint: CheckpointDirectory, base: CheckpointDirectory | None, base_step: int, last: int
) -> tuple[list[Ring], tuple[str, ...]]:
    """Trains from a checkpoint to a step in a copy of the run.

    Returns:
        The new rings, and what changed, in words.

    Raises:
        TrainingError: the training ended before the step.
    """
    run = checkpoint.run
    segment = next(each for each in run.path_to(checkpoint) if (each.last_step or last) >= base_step + 1)
    header = segment.attempt.header
    parallel = header.config.parallel.model_copy(update={"data": header.layout.data})
    quiet = header.config.checkpoint.model_copy(update={"every_steps": _NEVER, "keep_every": None})
    config = header.config.model_copy(update={"parallel": parallel, "checkpoint": quiet, "validation": None})
    resolved: Resolved = run.resolved.model_copy(update={"attempt": config})
    with tempfile.TemporaryDirectory(prefix="treering-replay-") as folder:
        copy = RunDirectory(Path(folder) / run.id)
        if base is not None:
            extract_run(run, base, copy.path)
        document = Path(folder) / CONFIG_FILE
        resolved.write(document)
        command = [
            sys.executable, "-m", "treering_trainer.launch", str(document), f"--runs={folder}", "--no-publish",
            "--continue-changed", f"--stop-after={last}",
        ]  # fmt: skip
        done = subprocess.run(command, stdout=sys.stderr, env={**os.environ, "MLFLOW_TRACKING_URI": ""}, check=False)
        attempts = copy.attempts()
        rings = list(attempts[-1].rings()) if attempts else []
        if done.returncode not in (0, EXIT_RESTART) or not rings or rings[-1].step < last:
            raise TrainingError(
                f"{checkpoint.path}: steps {base_step + 1} to {last} could not be trained again, exit code "
                f"{done.returncode}; its messages are above"
            )
        return [ring for ring in rings if base_step < ring.step <= last], _changes(header, attempts[-1].header)


def _changes(before: AttemptHeader, now: AttemptHeader) -> tuple[str, ...]:
    """What changed, in words; an attempt that continues from a checkpoint has recorded it."""
    if now.changed:
        return now.changed
    code = code_difference(before.code, now.code)
    environment = before.environment["digest"] != now.environment["digest"]
    return (*([f"code ({code})"] if code else []), *(["environment"] if environment else []))


def _compared(recorded: Ring, again: Ring, picked: bool) -> ReplayedStep:
    """A replayed step beside the recorded one.

    Raises:
        EvidenceError: the rings are of different steps.
    """
    if recorded.step != again.step:
        raise EvidenceError(
            f"step {again.step} was replayed, expected {recorded.step}",
            step=recorded.step,
            found=again.step,
            expected=recorded.step,
        )
    names = ("loss", "grad_norm", "batch_digest", "applied", "learning_rate")
    return ReplayedStep(
        step=again.step,
        picked=picked,
        loss=recorded.loss,
        replayed_loss=again.loss,
        identical=all(getattr(recorded, name) == getattr(again, name) for name in names),
    )


if __name__ == "__main__":
    sys.exit(main())
