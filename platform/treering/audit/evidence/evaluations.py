"""Evaluations against their names, their checkpoints, their own items, and the journal of evaluations."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path

from treering.audit.evidence.checkpoints import named_checkpoint
from treering.audit.evidence.record_fields import differs
from treering.audit.evidence.records import COPY, RunRecords, Scored, is_current
from treering.audit.report import Finding
from treering.errors import EvidenceError
from treering.runlog.analyses import Analysis
from treering.runlog.chronicle import pending_evaluation
from treering.runlog.directory import checkpoint_name
from treering.runlog.journal import Evaluated, Line
from treering.runlog.records import LOG_LIKELIHOOD, Evaluation

_ROUNDING = 1e-9
_PERPLEXITY = "perplexity"
_MAX_EXPONENT = 709.0  # exp(710) is infinite


def check_evaluations(records: RunRecords, note: Callable[[str], None]) -> Iterator[Finding]:
    """Evaluations against their names, their checkpoints, their own items, and the journal."""
    folder = records.run.evaluations_folder
    place = records.run.evaluation_journal_file
    entered = {line.entry.evaluation: line for line in records.evaluated if isinstance(line.entry, Evaluated)}
    newest = {line.entry.checkpoint: line for line in records.evaluated if isinstance(line.entry, Evaluated)}
    unanchored = []
    for each in records.scored:
        line = entered.get(each.digest)
        if each.file.stem != checkpoint_name(each.record.step):
            text = f"{each.file}: is the evaluation of step {each.record.step}: it was copied or swapped"
            yield Finding("record", text, file=str(each.file))
            continue
        if records.evaluated and line is None:
            yield Finding("record", _not_entered(each, newest.get(each.record.checkpoint), place), file=str(each.file))
            continue
        if not records.evaluated and each.record.anchored and records.journals_hold:
            text = f"{place}: is missing, but {each.file} is an evaluation that it must name; {COPY}"
            yield Finding("record", text, file=str(place))
        yield from _check_scores(records, each)
        if line is not None:
            yield from _check_entry(each, line, place)
        if line is None or (isinstance(line.entry, Evaluated) and line.entry.found):
            unanchored.append(each.file.name)
    if unanchored and records.journals_hold:
        note(
            f"{folder}: not anchored: {', '.join(sorted(unanchored))}: an earlier version wrote "
            f"{'it' if len(unanchored) == 1 else 'them'} without an entry in a journal; scored again, they get one"
        )
    yield from _check_missing_evaluations(records, newest, note)


def _check_entry(each: Scored, line: Line, place: Path) -> Iterator[Finding]:
    """What an entry records about its evaluation beside the digest."""
    entry, record = line.entry, each.record
    if isinstance(entry, Evaluated):
        here = (entry.step, entry.checkpoint, entry.harness, entry.tasks, entry.scores, entry.items)
        there = (
            record.step, record.checkpoint, record.harness, record.tasks, record.scores_digest, record.items_digest
        )  # fmt: skip
        if here != there:
            text = (
                f"{place} line {line.number}: says of {each.file} what that does not say: the entry was digested again"
            )
            yield Finding("record", text, file=str(place), line=line.number)


def _not_entered(each: Scored, other: Line | None, place: Path) -> str:
    if other is None:
        what = f"{place} has no entry for it: it was put in, or its checkpoint was changed"
    else:
        name = _evaluation_of(other)
        what = f"line {other.number} of {place} names {name} for its checkpoint: it was digested again or replaced"
    return f"{each.file}: its digest is {each.digest}, but {what}"


def _check_missing_evaluations(
    records: RunRecords, newest: dict[str, Line], note: Callable[[str], None]
) -> Iterator[Finding]:
    """The newest evaluation of each checkpoint, as the journal names it."""
    folder = records.run.evaluations_folder
    digests = {each.digest for each in records.scored}
    for checkpoint, line in newest.items():
        entry = line.entry
        if not isinstance(entry, Evaluated) or entry.evaluation in digests:
            continue
        file = folder / f"{checkpoint_name(entry.step)}.json"
        if file.exists() or file.is_symlink():
            continue  # it has its own finding
        pending = pending_evaluation(file)
        if pending.exists() and _has_digest(pending, entry.evaluation):
            note(f"{pending}: has its entry and not yet its name; its writer died, `treering evaluate` goes on")
            continue
        if records.run.is_cut and all(each.digest != checkpoint for each in records.saved):
            continue
        text = f"{file}: the evaluation of step {entry.step} is missing, but line {line.number} of "
        text += f"{records.run.evaluation_journal_file} names it ({entry.evaluation}); {COPY}"
        yield Finding("record", text, file=str(file))


def folder_aside(evaluations: Path) -> Path | None:
    """The folder `superseded-NNNN` around a folder of evaluations; None for the run's own evaluations."""
    return evaluations.parent if evaluations.parent.name.startswith("superseded-") else None


def _evaluation_of(line: Line) -> str | None:
    return line.entry.evaluation if isinstance(line.entry, Evaluated) else None


def _has_digest(file: Path, digest: str) -> bool:
    try:
        return Evaluation.read(file)[1] == digest
    except EvidenceError:
        return False


def check_of_checkpoint(
    records: RunRecords, file: Path, record: Evaluation | Analysis, aside: Path | None
) -> Iterator[Finding]:
    """What a record says of the checkpoint that it is about.

    Args:
        records: of the run.
        file: of the record.
        record: an evaluation or an analysis.
        aside: the folder `superseded-NNNN` that holds it, None for a record in its place.
    """
    yield from differs(file, "run", record.run, records.recipe, "the run that its folder belongs to")
    of_step = [
        saved
        for saved in records.saved
        if saved.directory.step == record.step
        and (is_current(saved.directory) if aside is None else saved.directory.path.parent == aside)
    ]
    if not of_step and not records.run.is_cut:
        yield from named_checkpoint(records, record.step, record.checkpoint, str(file))
    for saved in of_step:
        yield from differs(file, "checkpoint", record.checkpoint, saved.digest, str(saved.file))
        by = str(saved.file)
        yield from differs(file, "consumed_tokens", record.consumed_tokens, saved.manifest.consumed_tokens, by)


def _check_scores(records: RunRecords, each: Scored) -> Iterator[Finding]:
    record, file = each.record, each.file
    yield from check_of_checkpoint(records, file, record, folder_aside(file.parent))
    for task, by_shots in (record.items or {}).items():
        for shots, by_metric in by_shots.items():
            scores = record.scores.get(task, {}).get(shots, {})
            for metric, items in by_metric.items():
                mean = math.fsum(items.values()) / len(items) if items else math.nan
                if metric != LOG_LIKELIHOOD and items:
                    score, expected, what = metric, mean, "the mean"
                elif items and _PERPLEXITY in scores:
                    score, expected, what = _PERPLEXITY, math.exp(min(-mean, _MAX_EXPONENT)), "exp of minus the mean"
                else:
                    continue
                if not math.isclose(scores.get(score, math.nan), expected, rel_tol=_ROUNDING, abs_tol=_ROUNDING):
                    text = (
                        f"{file}: scores.{task}.{shots}.{score} is {scores.get(score)}, expected {expected}, {what} of "
                        f"{metric} of its {len(items)} items in the same file"
                    )
                    yield Finding("record", text, file=str(file))
