"""What the trainer's tests start from and look at: a resolved config, a run and its rings."""

import time

import torch

from treering.config.load import load_experiment
from treering.config.resolve import resolve
from treering.config.resolved_blend import ResolvedBlend
from treering.runlog.directory import RunDirectory
from treering_trainer.checkpointing.weights import read_weights


def options(settings):
    """`--set` arguments."""
    return [f"--set={setting}" for setting in settings]


def run_of(runs):
    """The only run there."""
    (path,) = runs.glob("*/resolved.json")
    return RunDirectory(path.parent)


def rings(run):
    """Rings of the path to the newest checkpoint."""
    return list(run.path_rings(run.checkpoints()[-1]))


def numbers(found):
    """What a ring says of data and model, without clocks."""
    return [
        (ring.step, ring.sample_start, ring.batch_digest, ring.loss, ring.grad_norm, ring.validation) for ring in found
    ]


def assert_same_weights(one, other):
    """Of the newest checkpoints, bit by bit."""
    left, right = (read_weights(run.checkpoints()[-1].path) for run in (one, other))
    assert left.keys() == right.keys()
    for name in left:
        assert torch.equal(left[name], right[name]), name


def assert_identical(run, reference):
    """What was read, what it did, what came out."""
    assert path_numbers(run) == path_numbers(reference)
    assert_same_weights(run, reference)


def path_numbers(run):
    """What was read and what it did, without clocks, on the path to the newest checkpoint."""
    return [
        (ring.step, ring.sample_start, ring.sample_end, ring.batch_digest, ring.loss, ring.grad_norm, ring.validation)
        for ring in run.path_rings(run.checkpoints()[-1])
    ]


def eventually(holds, seconds=300.0):
    """Whether it comes true in time."""
    until = time.monotonic() + seconds
    while not holds() and time.monotonic() < until:
        time.sleep(0.02)
    return holds()


def rings_after(run, step):
    """Whether a ring of a step, or of a later one, is written."""
    return any(ring.step >= step for attempt in run.attempts() for ring in attempt.rings())


def resolved(project, *overrides):
    """The project's experiment, changed."""
    experiment = load_experiment(project.root / "tiny.yaml", overrides)
    return resolve(experiment, ResolvedBlend.read(project.blend), "tiny.yaml")
