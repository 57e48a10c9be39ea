"""From a list of documents that must go to the checkpoints that saw them, or their recorded near-duplicates."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treering.audit.documents.curated import CuratedDocument, decided_about, num_decided, shown
from treering.audit.documents.exposure import CheckpointExposure, TracedDocument, answer_json
from treering.audit.documents.exposure_index import ExposureIndex, corpora_of, find_exposures, project_runs
from treering.audit.documents.readers import lost_runs, recover_ancestries
from treering.audit.documents.selection import Selector, find_readable
from treering.audit.report import Gap, messages
from treering.errors import UserError
from treering.files import read_text, reason
from treering.progress import Progress, quiet
from treering.project import Project


@dataclass(frozen=True, slots=True)
class Entry:
    """What became of one entry of the list.

    Attributes:
        asked: the entry.
        documents: documents of training corpora that it names.
        near_duplicates: further ones that curation recorded as near-duplicates of a document that it names.
        fate: what curation decided about the documents that it names, in words with their number.
    """

    asked: str
    documents: int
    near_duplicates: int
    fate: dict[str, int]

    @property
    def known(self) -> bool:
        """Whether any corpus or decision knows what it names."""
        return bool(self.documents or self.fate)


@dataclass(frozen=True, slots=True)
class TakenDocument:
    """A document of a training corpus that is to go.

    Attributes:
        asked: the first entry of the list that leads to it.
        near_duplicate: whether only a near-duplicate of it was named.
        document: the document with its exposures.
    """

    asked: str
    near_duplicate: bool
    document: TracedDocument


@dataclass(frozen=True, slots=True)
class Takedown:
    """Which checkpoints saw any of the documents of a list.

    Attributes:
        entries: the list.
        num_documents: documents of training corpora that are to go, near-duplicates included.
        documents: those of them that were asked to be shown.
        num_decisions: raw documents that curation decided about: the named ones and all their near-duplicates.
        decisions: those of them that were asked to be shown, with what read them.
        checkpoints: every checkpoint of every run.
        unanswered: everything that was not searched, in words.
        gaps: evidence whose absence left something unsearched, with what is answered without it.
    """

    entries: tuple[Entry, ...]
    num_documents: int
    documents: tuple[TakenDocument, ...]
    num_decisions: int
    decisions: tuple[CuratedDocument, ...]
    checkpoints: tuple[CheckpointExposure, ...]
    unanswered: tuple[str, ...]
    gaps: tuple[Gap, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The answer as JSON values, with the verdict of each checkpoint."""
        return answer_json(self)


def read_list(path: Path) -> list[Selector]:
    """Reads a list from a file.

    Raises:
        UserError: it cannot be read, is empty, or a line is not an entry.
    """
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: found an unreadable file ({reason(error)}), expected a list of documents") from None
    return parse_list(text, str(path))


def parse_list(text: str, name: str) -> list[Selector]:
    """Reads a list: one entry a line, empty lines and what follows ` #` left out.

    Args:
        text: the list.
        name: what to call it in errors.

    Raises:
        UserError: it is empty, or a line is not an entry.
    """
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        entry = "" if line.startswith("#") else line.partition(" #")[0].strip()
        try:
            found += [Selector.parse(entry)] if entry else []
        except UserError as error:
            raise UserError(f"{name} line {number}: {error}") from None
    if not found:
        raise UserError(f"{name}: found no entry, expected lines like CORPUS:ID, source=PATTERN or licence=NAME")
    return found


def takedown(
    project: Project, selectors: Sequence[Selector], *, limit: int | None = None, progress: Progress = quiet
) -> Takedown:
    """Finds every checkpoint that saw one of some documents or a recorded near-duplicate.

    Args:
        project: the project.
        selectors: what is to go.
        limit: how many documents to name with their exposures, and how many decisions; None for all.
        progress: is called with the state of the slow parts.

    Raises:
        EvidenceError: curation's decisions cannot be read.
    """
    runs = project_runs(project)
    catalog, unanswered = corpora_of(project, runs)
    missing = lost_runs(project)
    curated = decided_about(project, selectors, catalog, unanswered, limit)
    wanted = {*selectors, *(name for each in curated for name in (*each.names, *each.near_duplicates))}
    decisions = shown(selectors, curated, limit)
    trained: dict[str, list[tuple[str, NDArray[np.int64]]]] = {}
    counts = [[0, 0] for _ in selectors]
    owners: dict[tuple[str, int], tuple[str, bool]] = {}
    for digest, corpus in catalog.corpora.items():
        found = find_readable(corpus, catalog, wanted, missing)
        for decision in decisions:
            name, _, document = decision.document.partition(":")
            numbers = found.get(Selector("document", document, name))
            if numbers is not None:
                trained.setdefault(decision.document, []).append((digest, numbers))
        for selector, each, count in zip(selectors, curated, counts, strict=True):
            named = _union(found, [selector, *each.names])
            near = np.setdiff1d(_union(found, each.near_duplicates), named)
            for is_twin, numbers in ((False, named), (True, near)):
                count[is_twin] += len(numbers)
                for number in numbers.tolist():
                    owners.setdefault((digest, number), (str(selector), is_twin))
    entries = [
        Entry(str(selector), count[0], count[1], each.fate)
        for selector, count, each in zip(selectors, counts, curated, strict=True)
    ]
    documents: dict[str, NDArray[np.int64]] = {
        digest: np.array(sorted(number for each, number in owners if each == digest), dtype=np.int64)
        for digest in dict.fromkeys(digest for digest, _number in owners)
    }
    ancestries, lost = recover_ancestries(runs, project)
    missing += lost
    exposed = find_exposures(runs, documents, catalog, progress, ancestries)
    checkpoints = tuple(exposed.checkpoints())
    taken = tuple(
        TakenDocument(asked, near, each)
        for each in exposed.traced(limit)
        for asked, near in (owners[each.corpus_digest, each.number],)
    )
    gaps = tuple(dict.fromkeys((*missing, *exposed.gaps)))
    return Takedown(
        tuple(entries),
        exposed.num_documents,
        taken,
        num_decided(curated),
        tuple(_read(each, trained.get(each.document, ()), exposed) for each in decisions),
        checkpoints,
        messages(gaps, unanswered),
        gaps,
    )


def _read(
    decision: CuratedDocument, trained: Iterable[tuple[str, NDArray[np.int64]]], exposed: ExposureIndex
) -> CuratedDocument:
    """A decision with what read the document, by its numbers in each corpus that has it."""
    steps = [step for digest, numbers in trained for step in exposed.steps(digest, numbers).tolist()]
    return replace(
        decision,
        exposures=len(steps),
        first_step=min(steps, default=None),
        last_step=max(steps, default=None),
    )


def _union(found: Mapping[Selector, NDArray[np.int64]], selectors: Iterable[Selector]) -> NDArray[np.int64]:
    parts = [found[selector] for selector in selectors if selector in found]
    return np.unique(np.concatenate(parts)) if parts else np.empty(0, dtype=np.int64)
