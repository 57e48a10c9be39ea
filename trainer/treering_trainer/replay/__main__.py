"""Trains steps of a checkpoint's path again from the checkpoint before them, and compares the rings.

    python -m treering_trainer.replay CHECKPOINT --steps K [--seed N]

The run stays as it is: each stretch of steps is trained in a copy of the run that is cut to one checkpoint, in the
layout and with the kernels of the attempt that trained it first. Prints one JSON document; progress goes to standard
error.
"""

import argparse
import json
import random
import secrets
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from treering.ending import run_command
from treering.errors import EvidenceError, TrainingError
from treering.foreign import say
from treering.reproduce.trial import Stretch, newest_base, train_again
from treering.runlog.directory import CheckpointDirectory
from treering.runlog.find import find_checkpoint
from treering.runlog.ring import Ring


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
        UserError: a step cannot be replayed.
        EvidenceError: a record on the path does not hold.
        TrainingError: a stretch could not be trained.
    """
    run = checkpoint.run
    rings = {ring.step: ring for ring in run.path_rings(checkpoint)}
    own = [step for step in rings if step >= run.resolved.first_step]
    seed = secrets.randbelow(1 << 32) if seed is None else seed
    picked = set(random.Random(seed).sample(own, min(count, len(own))))
    stretches: dict[int, Stretch] = {}
    for step in sorted(picked):
        stretch = Stretch(run, newest_base(run, step, checkpoint), step, checkpoint)
        stretches[stretch.first] = stretch
    steps: list[ReplayedStep] = []
    changed: list[str] = []
    for stretch in stretches.values():
        say(f"replay: steps {stretch.first} to {stretch.last}, from {stretch.beginning}")
        again = train_again(stretch)
        steps += [_compared(rings[ring.step], ring, ring.step in picked) for ring in again.rings]
        changed += again.changed
    return Replay(checkpoint.digest, seed, tuple(steps), tuple(dict.fromkeys(changed)))


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
        # By their digits: NaN is equal to NaN, and -0.0 is not 0.0.
        identical=all(repr(getattr(recorded, name)) == repr(getattr(again, name)) for name in names),
    )


if __name__ == "__main__":
    sys.exit(main())
