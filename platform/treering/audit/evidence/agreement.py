"""Compares the records of one run with each other, and finds what they name and what is missing.

Each record carries its own digest, so a change that is not digested again is found by the record itself. A change
that is digested again is found here: other records say otherwise, or name another digest. Of two records that
contradict each other the chains are believed first (rings, journals), then what a chain confirms.

- `resolved.json`: with the headers (run, blend, corpora) and the newest header (the part that may change under a run).
- `header.json`: with its folder's number, the config, `prev` of its first ring, the journal, its published copy.
- A ring: with the ring before and after, and the schedule; the last one with journal, manifests, and headers that
  continue from it.
- `end.json`: with the rings' last step and the journal.
- A checkpoint's manifest: with its folder, the config, the header of its attempt, the ring of its step, the journal,
  its published copy.
- A conversion's manifest: with its folder, the checkpoint that it was made from, the header that loaded it.
- An evaluation: with its name, its checkpoint, the mean of its items, its entry in the journal of evaluations.
- An analysis, such as continuations: with its name, its checkpoint, its entry in the journal of evaluations.
- A journal: with its own chain, the headers and manifests that name an entry, its published copy.

Reported as missing: a checkpoint without an entry of its removal; rings at the end of an ended attempt; an attempt;
`end.json`; an evaluation; a journal; the run that a header continues from; the tokenizer; a corpus or held-out corpus
that a run on the project's blend names; the blend of a published run.

Notes, not findings: a missing conversion; corpora of runs on another blend; a corpus in a folder of another name; an
evaluation that is not anchored; a checkpoint that an earlier version must have saved; the unfinished last line of a
killed process. A folder behind a symbolic link is read as any other.
"""

from collections.abc import Callable, Iterator

from treering.audit.evidence.analyses import check_analyses
from treering.audit.evidence.attempts import check_attempts
from treering.audit.evidence.checkpoints import check_checkpoints, check_conversions, check_missing
from treering.audit.evidence.copies import check_copies
from treering.audit.evidence.evaluations import check_evaluations
from treering.audit.evidence.records import read_records
from treering.audit.report import Finding
from treering.project import Project
from treering.runlog.directory import RunDirectory


def check_run(run: RunDirectory, project: Project, note: Callable[[str], None]) -> Iterator[Finding]:
    """Everything of a run but the files of its checkpoints and conversions.

    Args:
        run: the run, or a published checkpoint's folder.
        project: where copies of its records may be.
        note: is called with what is not damaged but cannot be verified.
    """
    records = read_records(run, project, note)
    found = records.found
    if records.recipe is not None:
        checks = (
            check_attempts(records),
            check_checkpoints(records, note),
            check_conversions(records, note),
            check_evaluations(records, note),
            check_analyses(records),
            check_missing(records, note),
            check_copies(records, project),
        )
        found += [finding for check in checks for finding in check]
    yield from dict.fromkeys(found)
