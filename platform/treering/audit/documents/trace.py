"""From documents, by id, source or licence, to every step and every checkpoint that read them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from treering.audit.corpora.catalog import Catalog
from treering.audit.documents.curated import CuratedDocument, decided_about, shown
from treering.audit.documents.exposure import CheckpointExposure, TracedDocument, answer_json
from treering.audit.documents.exposure_index import corpora_of, find_exposures, project_runs
from treering.audit.documents.readers import lost_runs, missing_corpora, recover_ancestries
from treering.audit.documents.selection import Selector, select
from treering.audit.report import Gap, messages
from treering.errors import EvidenceError, NotFoundError
from treering.progress import Progress, quiet
from treering.project import Project

_FATES = 5


@dataclass(frozen=True, slots=True)
class DocumentTrace:
    """What read some documents.

    Attributes:
        num_documents: how many documents are meant.
        documents: those of them that were asked to be shown, with their exposures.
        checkpoints: what every checkpoint of every run saw of all of them.
        unanswered: what could not be read, in words.
        gaps: the missing evidence among it, and what is answered without it.
    """

    num_documents: int
    documents: tuple[TracedDocument, ...]
    checkpoints: tuple[CheckpointExposure, ...]
    unanswered: tuple[str, ...]
    gaps: tuple[Gap, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The answer as JSON values, with the verdict of each checkpoint."""
        return answer_json(self)


def trace_documents(
    project: Project, selectors: Sequence[Selector], *, limit: int | None = None, progress: Progress = quiet
) -> DocumentTrace:
    """Finds every step of every run that read some documents, and the checkpoints that saw them.

    Args:
        project: the project.
        selectors: which documents; any of them counts.
        limit: how many documents to name with their exposures, None for all.
        progress: is called for each attempt.

    Raises:
        NotFoundError: no document matches.
        EvidenceError: no document matches, and a corpus is missing, so its documents were not searched.
    """
    runs = project_runs(project)
    catalog, unanswered = corpora_of(project, runs)
    missing = lost_runs(project)
    documents = select(selectors, catalog, missing)
    ancestries, lost = recover_ancestries(runs, project)
    missing += lost
    if not documents:
        missing += missing_corpora(catalog, ancestries)
        asked = ", ".join(str(selector) for selector in selectors)
        text = "; ".join(
            (
                f"{project.corpora}: no document of a corpus at hand is meant by {asked}",
                *(_fates(project, selectors, catalog) or ("`treering decision` says what curation dropped",)),
                *(each.text for each in missing),
                *unanswered,
            )
        )
        raise EvidenceError(text, file=project.corpora) if missing else NotFoundError(text)
    exposed = find_exposures(runs, documents, catalog, progress, ancestries)
    traced, checkpoints = tuple(exposed.traced(limit)), tuple(exposed.checkpoints())
    gaps = (*missing, *exposed.gaps)
    return DocumentTrace(
        exposed.num_documents, traced, checkpoints, messages(gaps, unanswered), tuple(dict.fromkeys(gaps))
    )


def _fates(project: Project, selectors: Sequence[Selector], catalog: Catalog) -> tuple[str, ...]:
    """What curation did with some documents, and what it kept in their stead, as far as its decisions can be read."""
    try:
        found = shown(selectors, decided_about(project, selectors, catalog, [], _FATES), _FATES)
    except EvidenceError:  # `treering decision` names it
        return ()
    return tuple(f"curation: {_fate(each)}" for each in found if not each.near_duplicate)


def _fate(document: CuratedDocument) -> str:
    text = f"{document.document} was {document.decision}"
    if document.kept_instead is not None:
        return f"{text}; {document.kept_instead} was kept instead"
    if document.preferred is not None:
        return f"{text}, in favour of {document.preferred}, which was {document.preferred_decision}"
    return text
