"""Analyses of checkpoints (continuations of kept prompts) against their names, checkpoints and journal."""

from collections.abc import Iterator

from treering.audit.evidence.evaluations import check_of_checkpoint, folder_aside
from treering.audit.evidence.records import COPY, Analysed, RunRecords
from treering.audit.report import Finding
from treering.runlog.directory import checkpoint_name
from treering.runlog.journal import Analysed as Entry


def check_analyses(records: RunRecords) -> Iterator[Finding]:
    """Every analysis against its name, its checkpoint and its entry, and what the journal names that is missing."""
    entries = [line.entry for line in records.evaluated if isinstance(line.entry, Entry)]
    entered = {entry.record: entry for entry in entries}
    for each in records.analysed:
        yield from _check(records, each, entered.get(each.digest))
    digests = {each.digest for each in records.analysed}
    for entry in {(entry.analysis, entry.checkpoint): entry for entry in entries}.values():
        file = records.run.evaluations_folder / entry.analysis / f"{checkpoint_name(entry.step)}.json"
        carried = not records.run.is_cut or any(each.digest == entry.checkpoint for each in records.saved)
        if entry.record not in digests and carried and not file.exists():
            text = (
                f"{file}: the {entry.analysis} of step {entry.step} are missing, but "
                f"{records.run.evaluation_journal_file} names them ({entry.record}); {COPY}"
            )
            yield Finding("record", text, file=str(file))


def _check(records: RunRecords, each: Analysed, entry: Entry | None) -> Iterator[Finding]:
    file, record = each.file, each.record
    if file.stem != checkpoint_name(record.step):
        text = f"{file}: is of step {record.step}: it was copied or swapped"
        yield Finding("record", text, file=str(file))
        return
    if entry is None and records.journals_hold:
        text = (
            f"{file}: its digest is {each.digest}, but {records.run.evaluation_journal_file} has no entry for it: it "
            "was put in, changed or digested again"
        )
        yield Finding("record", text, file=str(file))
    if entry is not None and (entry.step, entry.checkpoint, entry.analysis) != (
        record.step,
        record.checkpoint,
        record.analysis,
    ):
        text = f"{file}: its entry in {records.run.evaluation_journal_file} is of another step, checkpoint or kind"
        yield Finding("record", text, file=str(file))
    yield from check_of_checkpoint(records, file, record, folder_aside(file.parent.parent))
