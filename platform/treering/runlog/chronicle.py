"""What the trainer and the evaluation write into a run's journals, and when.

A checkpoint is recorded after it has its name, its removal before it loses it, an evaluation before it gets its name:
a process that dies in between leaves either a thing without its entry, which the next start records, or an entry
whose thing is beside its place under a name with a dot, which the next evaluation finishes.
"""

import time
from pathlib import Path

from treering.errors import EvidenceError
from treering.files import rename_durably
from treering.runlog.analyses import Analysis
from treering.runlog.attempt import AttemptDirectory
from treering.runlog.directory import CheckpointDirectory, RunDirectory, checkpoint_name
from treering.runlog.document import read_document
from treering.runlog.journal import (
    Analysed,
    AttemptEnded,
    CheckpointRemoved,
    CheckpointSaved,
    CheckpointSetAside,
    Evaluated,
    Journal,
)
from treering.runlog.recorded_directory import RecordedAttempt
from treering.runlog.records import AttemptEnd, CheckpointManifest, Evaluation


def record_left(run: RunDirectory) -> None:
    """Records what earlier attempts left and no journal knows: their ends, and complete checkpoints.

    The holder of the run's lock calls it before it starts an attempt.

    Raises:
        EvidenceError: the journal was changed.
    """
    attempts, checkpoints = run.attempts(), run.checkpoints()
    if not attempts and not checkpoints:
        return
    journal = run.journal
    entries = [line.entry for line in journal.lines()]
    ended = {entry.attempt for entry in entries if isinstance(entry, AttemptEnded)}
    for attempt in attempts:
        if attempt.number not in ended and attempt.has_header:
            record_end(attempt)
    saved = {entry.checkpoint for entry in entries if isinstance(entry, CheckpointSaved)}
    for each in checkpoints:
        if each.has_manifest and each.digest not in saved:
            journal.append(_saved(each.manifest, each.digest, found=True))


def record_end(attempt: AttemptDirectory | RecordedAttempt) -> None:
    """Records where an attempt's rings end, and the digest of its `end.json`.

    Raises:
        EvidenceError: the header, the last ring, the end or the journal was changed.
    """
    end, ring = attempt.end_file, attempt.ring_log.last()
    entry = AttemptEnded(
        at=time.time(),
        attempt=attempt.number,
        header=attempt.header_digest,
        rings=attempt.ring_log.num_lines(),
        last_ring=None if ring is None else ring.digest,
        end=AttemptEnd.read(end)[1] if end.exists() else None,
    )
    Journal.of(attempt.path.parent.parent, attempt.header.run).append(entry)


def record_saved(run: RunDirectory, manifest: CheckpointManifest, digest: str) -> None:
    """Records a complete checkpoint."""
    Journal.of(run.path, manifest.run).append(_saved(manifest, digest, found=False))


def _saved(manifest: CheckpointManifest, digest: str, *, found: bool) -> CheckpointSaved:
    return CheckpointSaved(at=time.time(), step=manifest.step, attempt=manifest.attempt, checkpoint=digest, found=found)


def record_removed(run: RunDirectory, checkpoint: CheckpointDirectory, reason: str) -> None:
    """Records that a checkpoint is about to be removed."""
    run.journal.append(
        CheckpointRemoved(at=time.time(), step=checkpoint.step, checkpoint=_digest(checkpoint), reason=reason)
    )


def record_set_aside(run: RunDirectory, checkpoint: CheckpointDirectory, folder: Path) -> None:
    """Records that a checkpoint is about to move to a `superseded-NNNN` folder."""
    run.journal.append(
        CheckpointSetAside(at=time.time(), step=checkpoint.step, checkpoint=_digest(checkpoint), folder=folder.name)
    )


def _digest(checkpoint: CheckpointDirectory) -> str | None:
    return checkpoint.digest if checkpoint.has_manifest else None


def write_evaluation(folder: Path, record: Evaluation) -> Evaluation:
    """Writes an evaluation and its entry in the journal of evaluations.

    Args:
        folder: the run's `evaluations/`.
        record: the evaluation; its field `anchored` is set here.

    Returns:
        The record as it was written.

    Raises:
        EvidenceError: the journal was changed.
    """
    journal = _journal(folder, record.run)
    chained = record.model_copy(update={"anchored": True})
    final = folder / f"{checkpoint_name(record.step)}.json"
    pending = pending_evaluation(final)
    digest = chained.write(pending)
    journal.append(_evaluated(chained, digest, found=False))
    rename_durably(pending, final)
    return chained


def write_analysis(folder: Path, record: Analysis) -> None:
    """Writes an analysis of a checkpoint and its entry in the journal of evaluations.

    Args:
        folder: the run's `evaluations/`.
        record: the analysis.

    Raises:
        EvidenceError: the journal was changed.
    """
    journal = _journal(folder, record.run)
    final = folder / record.analysis / f"{checkpoint_name(record.step)}.json"
    final.parent.mkdir(exist_ok=True)
    pending = pending_evaluation(final)
    digest = record.write(pending)
    journal.append(
        Analysed(
            at=time.time(),
            step=record.step,
            checkpoint=record.checkpoint,
            analysis=record.analysis,
            record=digest,
        )
    )
    rename_durably(pending, final)


def _journal(folder: Path, recipe: str) -> Journal:
    """The journal of evaluations; a new one begins with the records of earlier versions.

    Raises:
        EvidenceError: the journal was changed.
    """
    journal = Journal.of(folder, recipe)
    if not journal.exists:
        for path in sorted(folder.glob("step-*.json")):
            try:
                earlier, digest = Evaluation.read(path)
            except EvidenceError:  # `treering verify` names it
                continue
            journal.append(_evaluated(earlier, digest, found=True))
    return journal


def pending_evaluation(final: Path) -> Path:
    """Where an evaluation is until its entry is written."""
    return final.with_name(f".{final.name}.pending")


def finish_evaluations(folder: Path, recipe: str) -> None:
    """Gives evaluations and analyses their names whose writer was killed after their entry, and removes others.

    Raises:
        EvidenceError: the journal was changed.
    """
    entries = [line.entry for line in Journal.of(folder, recipe).lines()]
    known = {each.evaluation for each in entries if isinstance(each, Evaluated)}
    known |= {each.record for each in entries if isinstance(each, Analysed)}
    for path in (*folder.glob(".step-*.json.pending"), *folder.glob("*/.step-*.json.pending")):
        try:
            entered = read_document(path)[1] in known
        except EvidenceError:
            entered = False
        if entered:
            rename_durably(path, path.with_name(path.name.removeprefix(".").removesuffix(".pending")))
        else:
            path.unlink()


def _evaluated(record: Evaluation, digest: str, *, found: bool) -> Evaluated:
    return Evaluated(
        at=time.time(),
        step=record.step,
        checkpoint=record.checkpoint,
        evaluation=digest,
        harness=record.harness,
        tasks=record.tasks,
        scores=record.scores_digest,
        items=record.items_digest,
        found=found,
    )
