"""A run cut to one checkpoint: what is published, and what a replay starts from."""

import shutil
from pathlib import Path

from treering.config.resolved import ANCESTORS
from treering.runlog.attempt import AttemptDirectory
from treering.runlog.directory import CheckpointDirectory, RunDirectory, evaluations_beside
from treering.runlog.document import read_document
from treering.runlog.journal import JOURNAL


def extract_run(run: RunDirectory, checkpoint: CheckpointDirectory, target: Path) -> None:
    """Copies a checkpoint with the rings of its ancestry into a new folder, which is a run directory by itself.

    Copies, not links: DVC makes files of its outs read-only or moves them to its cache.

    Raises:
        EvidenceError: a record or a ring on the way does not hold.
    """
    cut = RunDirectory(target)
    target.mkdir(parents=True)
    shutil.copy2(run.config_file, cut.config_file)
    shutil.copytree(checkpoint.path, cut.checkpoint_folder(checkpoint.step))
    if run.journal.exists:
        shutil.copy2(run.journal_file, cut.journal_file)
    for segment in run.path_to(checkpoint):
        own = segment.run.path == run.path
        copy = cut if own else RunDirectory(target / ANCESTORS / segment.run.id)
        attempt = AttemptDirectory(copy.attempt_folder(segment.attempt.number))
        attempt.path.mkdir(parents=True)
        if not own:
            shutil.copy2(segment.run.config_file, copy.config_file)
        shutil.copy2(segment.attempt.header_file, attempt.header_file)
        with attempt.rings_file.open("w", encoding="utf-8") as file:
            file.writelines(f"{ring.to_line()}\n" for ring in segment.rings())


def carry_evaluations(run: RunDirectory, published: Path) -> None:
    """Copies the evaluations of a published checkpoint, with their journal, beside the published folder.

    Beside it, not into it: the folder is what DVC's stage `train` made, and evaluations come after that stage.

    Args:
        run: the run that was evaluated.
        published: the published folder, of this run; `<its name>.evaluations` is made anew.

    Raises:
        EvidenceError: an evaluation does not hold.
    """
    target = evaluations_beside(published)
    shutil.rmtree(target, ignore_errors=True)
    digests = {checkpoint.digest for checkpoint in RunDirectory(published).checkpoints()}
    folder = run.evaluations_folder
    found = (*folder.glob("step-*.json"), *folder.glob("*/step-*.json"))
    records = [path for path in found if read_document(path)[0].get("checkpoint") in digests]
    if records:
        target.mkdir()
        for path in (*records, *folder.glob(JOURNAL)):
            copy = target / path.relative_to(folder)
            copy.parent.mkdir(exist_ok=True)
            shutil.copy2(path, copy)
