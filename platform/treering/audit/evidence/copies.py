"""A published or carried copy of a run against the run that it was cut from."""

from collections.abc import Iterator

from treering.audit.evidence.record_fields import differs
from treering.audit.evidence.records import COPY, RunRecords
from treering.audit.report import Finding
from treering.config.canonical import short
from treering.config.resolved import RUN_ID_LENGTH
from treering.errors import EvidenceError, TreeringError
from treering.project import Project
from treering.runlog.attempt import AttemptDirectory
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering.runlog.journal import Journal, Line


def check_copies(records: RunRecords, project: Project) -> Iterator[Finding]:
    """A cut copy against the run that it was cut from, where that is in the project; and the other way round."""
    run = records.run
    if not run.is_cut:
        yield from _check_published_end(records, project)
        return
    original = RunDirectory(project.runs / short(records.recipe or "", RUN_ID_LENGTH))
    if original.path.resolve() == run.path.resolve() or not original.path.is_dir():
        return  # a clone has what DVC brings: the published copy without the run
    for each in records.attempts.values():
        other = AttemptDirectory(original.attempt_folder(each.number)).header_file
        if each.digest is None or not other.is_file():
            continue
        twin = original.attempt(each.number)
        if twin.has_header:
            yield from differs(each.header_file, "digest", each.digest, twin.header_digest, f"its original {other}")
    pairs = ((records.journal, original.path), (records.evaluated, original.evaluations_folder))
    for lines, folder in pairs:
        yield from _check_journal_copy(lines, Journal.of(folder, records.recipe or ""), run)
    for saved in records.saved:
        twin_checkpoint = CheckpointDirectory(original.checkpoints_folder / saved.directory.path.name)
        if twin_checkpoint.has_manifest and twin_checkpoint.manifest.attempt == saved.manifest.attempt:
            by = f"its original {twin_checkpoint.manifest_file}"
            yield from differs(saved.file, "digest", saved.digest, twin_checkpoint.digest, by)


def _check_journal_copy(copied: list[Line], original: Journal, run: RunDirectory) -> Iterator[Finding]:
    """A copy of a journal is where its original began."""
    try:
        lines = original.lines()
    except EvidenceError:  # it has its own finding
        return
    for number, line in enumerate(copied):
        if number >= len(lines) or lines[number].digest != line.digest:
            what = "is missing" if number >= len(lines) else f"is {lines[number].digest}"
            text = f"{original.path} line {number + 1}: {what}, but its copy beside or in {run.path} has {line.digest}"
            yield Finding("record", f"{text}: one of them was changed; {COPY}", file=str(original.path))
            return


def _check_published_end(records: RunRecords, project: Project) -> Iterator[Finding]:
    """A published run had ended: its last attempt's `end.json` was written before it was published."""
    published = RunDirectory(project.published)
    try:
        if records.journal or published.resolved.recipe.digest != records.recipe:
            return
        [final] = published.checkpoints()
        attempt = records.attempts.get(final.manifest.attempt)
    except (TreeringError, ValueError):
        return
    if attempt is not None and attempt.end is None and not attempt.directory.end_file.exists():
        end = attempt.directory.end_file
        text = f"{end}: is missing, but the run was published in {published.path}, so that attempt had ended; {COPY}"
        yield Finding("record", text, file=str(end))
