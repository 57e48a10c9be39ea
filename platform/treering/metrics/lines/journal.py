"""What people said about a run, and whether it is a copy, in its line."""

from dataclasses import replace

from treering.errors import EvidenceError
from treering.metrics.lines.line import RunLine
from treering.runlog.find import AnyRun, archived_by
from treering.runlog.journal import notes_and_tags


def with_journal(line: RunLine, run: AnyRun, problems: list[EvidenceError]) -> RunLine:
    """The line with notes, tags, whether the run is archived, and where a mirrored run is from.

    Args:
        line: the line so far.
        run: the run.
        problems: gets what does not hold.
    """
    try:
        mirror = run.mirror
    except EvidenceError:  # `mirror_doubt` says so
        mirror = None
    line = replace(line, mirror=run.mirror_doubt, mirrored_at=mirror.written_at if mirror else None)
    try:
        entries = [each.entry for each in run.journal.lines()]
    except EvidenceError as error:
        if not problems:  # of a run whose record does not hold, the journal cannot be read either
            problems.append(error)
        return line
    notes, tags = notes_and_tags(entries)
    return replace(line, notes=tuple(notes), tags=tuple(tags), archived=archived_by(entries))
