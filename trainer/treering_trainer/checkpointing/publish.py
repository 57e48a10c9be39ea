"""Publishes a finished run: its final checkpoint with the rings of its ancestry, and the numbers that DVC compares.

The published folder is a run directory cut to one path, so that it can be audited alone. Wall-clock times stay out of
metrics and plots: the same run gives the same files.
"""

import csv
import io
import json
import shutil
from collections import deque
from pathlib import Path

from treering.errors import EvidenceError
from treering.files import replace_durably, write_durably
from treering.progress import Progress, quiet
from treering.project import Project
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering.runlog.extract import carry_evaluations, extract_run
from treering.runlog.records import CheckpointManifest
from treering.runlog.ring import Ring
from treering_trainer.checkpointing import checkpoint

_PLOT_COLUMNS = ("step", "tokens", "loss", "validation_loss", "grad_norm", "learning_rate", "global_batch_size")


def is_published(project: Project, final: CheckpointDirectory) -> bool:
    """Whether the published folder has this checkpoint, complete, with the rings of its ancestry."""
    published = RunDirectory(project.published)
    found = published.checkpoints()
    try:
        if [each.digest for each in found] != [final.digest]:
            return False
        check_provenance(published, found[0])
    except EvidenceError:
        return False
    return True


def check_provenance(run: RunDirectory, cut: CheckpointDirectory, progress: Progress = quiet) -> CheckpointManifest:
    """Checks that every file of a checkpoint has its digest and that the rings lead to it.

    Args:
        run: the run.
        cut: its checkpoint.
        progress: called as in `checkpoint.verify`.

    Returns:
        The checkpoint's manifest.

    Raises:
        EvidenceError: a file, the manifest, a header or a ring does not hold.
    """
    manifest = checkpoint.verify(cut, progress)
    deque(run.path_rings(cut), maxlen=0)
    return manifest


def publish(project: Project, run: RunDirectory, final: CheckpointDirectory) -> bool:
    """Writes the published checkpoint, metrics and plots; each appears whole, and a checkpoint that is there stays.

    Returns:
        Whether the published checkpoint had to be written.

    Raises:
        EvidenceError: the checkpoint or its ancestry does not hold.
    """
    missing = not is_published(project, final)
    if missing:
        check_provenance(run, final)
        _replace_published(project, run, final)
    # Written every time, since the files may be another run's; the same rings give the same bytes.
    published = RunDirectory(project.published)
    write_metrics(project, run.id, list(published.path_rings(published.checkpoints()[0])))
    return missing


def _replace_published(project: Project, run: RunDirectory, final: CheckpointDirectory) -> None:
    temporary = project.published.with_name(f".{project.published.name}.publishing")
    shutil.rmtree(temporary, ignore_errors=True)
    extract_run(run, final, temporary)
    replace_durably(temporary, project.published)
    carry_evaluations(run, project.published)


def _metrics(project: Project) -> Path:
    return project.metrics / "train.json"


def _plots(project: Project) -> Path:
    return project.plots / "train.csv"


def write_metrics(project: Project, run_id: str, rings: list[Ring]) -> None:
    """Writes `metrics/train.json` and `plots/train.csv`."""
    validation = [loss for ring in rings if (loss := ring.validation_loss) is not None]
    last = rings[-1]
    metrics = {
        "run": run_id,
        "steps": last.step,
        "tokens": last.consumed_tokens,
        "loss": {"first": rings[0].loss, "last": last.loss},
        "validation_loss": {"first": validation[0], "last": validation[-1], "best": min(validation)}
        if validation
        else None,
    }
    project.metrics.mkdir(exist_ok=True)
    write_durably(_metrics(project), json.dumps(metrics, indent=2) + "\n")
    project.plots.mkdir(exist_ok=True)
    table = io.StringIO(newline="")
    writer = csv.writer(table)
    writer.writerow(_PLOT_COLUMNS)
    for ring in rings:
        writer.writerow(
            (
                ring.step,
                ring.consumed_tokens,
                ring.loss,
                "" if ring.validation_loss is None else ring.validation_loss,
                ring.grad_norm,
                ring.learning_rate,
                ring.global_batch_size,
            )
        )
    write_durably(_plots(project), table.getvalue())
