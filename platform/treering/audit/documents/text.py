"""From a text to the documents that hold it or a part of it, and to the steps that read those very tokens.

`trace --text FILE` names every document that holds the whole text or one of its runs of 13 words. A hash only names
candidates; then words are compared. Only samples that held the matching tokens are exposures.

- A word is a run of letters, digits and underscores; case and punctuation between words do not count. In scripts
  without blanks between words a whole clause is one word, so only runs of 13 clauses are found.
- "The whole text" is compared letter by letter, case and punctuation included, except for white space (line ends,
  indentation) and for the Unicode form of letters.
- The text is searched as given, and as it may have been before it was pasted: with HTML's character references
  resolved, without soft hyphens, zero-width characters and byte order mark, in Unicode's forms NFC, NFD, NFKC and NFKD.
  Documents are not changed: a document whose words contain such characters is found by a text that contains them too.
- A run never spans two documents: a text over the end of one and the beginning of the next is found in both, in part.
  The last words of a document count like all others. A word that is cut off at an end of the text spoils one run.
- Texts under 13 words are refused, because they are everywhere. The file must be UTF-8.
- If more than 10,000 documents of a corpus hold the text, 10,000 are compared, those with its rarest runs first, and
  the answer states it; for many evaluation examples fewer each, 100 at least. A document that holds the whole text is
  among them unless each of its runs is as frequent.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from treering.audit.corpora.catalog import Catalog
from treering.audit.documents.exposure import CheckpointExposure, TracedDocument, answer_json, seen_by
from treering.audit.documents.exposure_index import corpora_of, find_exposures, project_runs
from treering.audit.documents.readers import lost_runs, recover_ancestries
from treering.audit.documents.text_match import TextFinder, TextMatch, num_ngrams
from treering.audit.evidence.recovery import RecoveredAncestry
from treering.audit.report import Gap, messages
from treering.errors import NotFoundError
from treering.progress import Progress, quiet
from treering.project import Project
from treering.runlog.directory import RunDirectory


@dataclass(frozen=True, slots=True)
class TracedMatch:
    """A match, and the samples that held what matched.

    Attributes:
        match: what matched.
        document: the document with those exposures alone.
    """

    match: TextMatch
    document: TracedDocument


@dataclass(frozen=True, slots=True)
class TextTrace:
    """The places of a text in the corpora, and what read them.

    Attributes:
        num_ngrams: distinct n-grams of the text, in the form that has most.
        matches: documents that hold some of them, those with the whole text first.
        checkpoints: what every checkpoint of every run saw of what matched.
        unanswered: the parts of the question that have no answer, in words.
        gaps: missing evidence, the cause of some of them, with what is answered without it.
    """

    num_ngrams: int
    matches: tuple[TracedMatch, ...]
    checkpoints: tuple[CheckpointExposure, ...]
    unanswered: tuple[str, ...]
    gaps: tuple[Gap, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The answer as JSON values."""
        return answer_json(self)


def trace_text(project: Project, text: str, progress: Progress = quiet) -> TextTrace:
    """Finds a text in the indexed corpora of a project, and every step and checkpoint that read it.

    Raises:
        UserError: the text is shorter than one n-gram.
        EvidenceError: the tokenizer is missing.
        NotFoundError: no available corpus has an index.
    """
    runs = project_runs(project)
    catalog, unanswered = corpora_of(project, runs)
    finder = TextFinder(project, catalog, unanswered)
    if not finder.corpora:
        raise NotFoundError(
            "; ".join(unanswered) or f"{project.corpora}: no corpus there; `dvc repro tokenize` makes them"
        )
    matches = finder.find(text)
    ancestries, lost = recover_ancestries(runs, project)
    traced, missing = traced_matches(runs, matches, catalog, ancestries, progress)
    documents = [each.document for each in traced]
    gaps = tuple(dict.fromkeys((*lost_runs(project), *lost, *missing)))
    return TextTrace(
        num_ngrams(text),
        tuple(traced),
        tuple(seen_by(ancestry, documents) for ancestry in ancestries),
        messages(gaps, unanswered),
        gaps,
    )


def traced_matches(
    runs: Sequence[RunDirectory],
    matches: Sequence[TextMatch],
    catalog: Catalog,
    ancestries: Sequence[RecoveredAncestry],
    progress: Progress = quiet,
) -> tuple[list[TracedMatch], list[Gap]]:
    """The steps of some runs that read what matched, in the order of the matches; and what is missing."""
    numbers: dict[str, list[int]] = {}
    for match in matches:
        numbers.setdefault(match.corpus_digest, []).append(match.number)
    documents = {digest: np.unique(found) for digest, found in numbers.items()}
    exposed = find_exposures(runs, documents, catalog, progress, ancestries)
    by_place = {(each.corpus_digest, each.number): each for each in exposed.traced()}
    traced = []
    for match in matches:
        document = by_place[match.corpus_digest, match.number]
        held = tuple(exposure for exposure in document.exposures if match.covers(exposure))
        traced.append(TracedMatch(match, replace(document, exposures=held)))
    return traced, exposed.gaps
