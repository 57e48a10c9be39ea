"""What a run under a folder of runs has laid."""

from treering.runlog.directory import RunDirectory


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
