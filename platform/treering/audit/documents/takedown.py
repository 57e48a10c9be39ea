"""From a list of documents that must go to the checkpoints that saw them, or their recorded near-duplicates.

Curation's decisions say what became of every raw document and which were near-duplicates of each other: a document that
was dropped for its twin lives on in the twin.
"""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from treering.audit.corpora.catalog import Catalog
from treering.audit.documents.exposure import CheckpointExposure, TracedDocument, answer_json
from treering.audit.documents.exposure_index import corpora_of, find_exposures, project_runs
from treering.audit.documents.readers import lost_runs, recover_ancestries
from treering.audit.documents.selection import Matcher, Selector, find_readable
from treering.audit.report import Gap, messages
from treering.data.fragments import document_id
from treering.errors import EvidenceError, UserError
from treering.files import read_text, reason
from treering.progress import Progress, quiet
from treering.project import Project

_COLUMNS = ["corpus", "id", "source", "licence", "kept", "step", "rule", "near_duplicate_of", "cluster", "split"]


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
        checkpoints: every checkpoint of every run.
        unanswered: everything that was not searched, in words.
        gaps: evidence whose absence left something unsearched, with what is answered without it.
    """

    entries: tuple[Entry, ...]
    num_documents: int
    documents: tuple[TakenDocument, ...]
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
        limit: how many documents to name with their exposures, None for all.
        progress: is called with the state of the slow parts.

    Raises:
        EvidenceError: curation's decisions cannot be read.
    """
    runs = project_runs(project)
    catalog, unanswered = corpora_of(project, runs)
    missing = lost_runs(project)
    curated = _decided(project, [_by_id(selector, catalog) for selector in selectors], unanswered)
    wanted = {*selectors, *(name for each in curated for name in (*each.names, *each.twins))}
    counts = [[0, 0] for _ in selectors]
    owners: dict[tuple[str, int], tuple[str, bool]] = {}
    for digest, corpus in catalog.corpora.items():
        found = find_readable(corpus, catalog, wanted, missing)
        for selector, each, count in zip(selectors, curated, counts, strict=True):
            named = _union(found, [selector, *each.names])
            near = np.setdiff1d(_union(found, each.twins), named)
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
        checkpoints,
        messages(gaps, unanswered),
        gaps,
    )


def _by_id(selector: Selector, catalog: Catalog) -> Selector:
    """The same by id and the corpus's name, as curation knows documents; for a fragment its document."""
    for corpus in catalog.corpora.values():
        if selector.corpus and selector.is_about(corpus):
            if selector.kind == "document":
                return Selector("document", document_id(selector.value), corpus.name)
            if int(selector.value) < corpus.num_documents:
                return Selector("document", document_id(corpus.document(int(selector.value))["id"]), corpus.name)
    return selector


def _union(found: Mapping[Selector, NDArray[np.int64]], selectors: Iterable[Selector]) -> NDArray[np.int64]:
    parts = [found[selector] for selector in selectors if selector in found]
    return np.unique(np.concatenate(parts)) if parts else np.empty(0, dtype=np.int64)


@dataclass(slots=True)
class _Decided:
    """What curation decided about the documents that a selector names.

    Attributes:
        fate: number of documents by what became of them, in words.
        names: these documents.
        twins: their near-duplicates.
        clusters: near-duplicate clusters of these documents.
        originals: documents that were kept in their stead.
    """

    fate: dict[str, int] = field(default_factory=dict)
    names: set[Selector] = field(default_factory=set)
    twins: set[Selector] = field(default_factory=set)
    clusters: set[str] = field(default_factory=set)
    originals: set[str] = field(default_factory=set)

    def add(self, row: Mapping[str, Any]) -> None:
        """Adds a document that is named."""
        words = f"kept for {row['split']}" if row["kept"] else f"dropped by {row['step']}: {row['rule']}"
        self.fate[words] = self.fate.get(words, 0) + 1
        self.names.add(Selector("document", row["id"], row["corpus"]))
        self.clusters |= {row["cluster"]} - {None}
        self.originals |= {row["near_duplicate_of"]} - {None}


def _decided(project: Project, selectors: Sequence[Selector], unanswered: list[str]) -> list[_Decided]:
    """What became of the documents that each selector names, by curation's decisions, read twice by row groups."""
    folder = project.curated / "decisions"
    files = sorted(folder.glob("*.parquet"))
    if not files:
        unanswered.append(
            f"{folder}: no decisions of curation, near-duplicates cannot be told; `dvc checkout` brings them back"
        )
    found = {selector: _Decided() for selector in selectors}
    matcher = Matcher(found)
    for batch in _batches(files):
        for selector, at in matcher.hits(batch):
            for row in batch.take(pa.array(at)).to_pylist():
                if selector.kind != "document" or row["corpus"] == selector.corpus:
                    found[selector].add(row)
    _find_twins([each for each in found.values() if each.clusters or each.originals], files)
    return [found[selector] for selector in selectors]


def _find_twins(decided: Sequence[_Decided], files: Sequence[Path]) -> None:
    """Adds near-duplicates: those of the same cluster, what was kept in a document's stead, what it was kept for."""
    clusters: dict[str | None, list[_Decided]] = {}
    originals: dict[str | None, list[_Decided]] = {}
    kept_for: dict[str | None, list[_Decided]] = {}
    for each in decided:
        for cluster in each.clusters:
            clusters.setdefault(cluster, []).append(each)
        for original in each.originals:
            originals.setdefault(original, []).append(each)
            corpus, _, document = original.partition(":")
            each.twins.add(Selector("document", document, corpus))
        for name in each.names:
            kept_for.setdefault(str(name), []).append(each)
    wanted = [pa.array(list(names), pa.string()) for names in (clusters, originals, kept_for)]
    for batch in _batches(files) if decided else ():
        joined = pc.binary_join_element_wise(batch["corpus"], batch["id"], ":")
        columns = (batch["cluster"], joined, batch["near_duplicate_of"])
        masks = (pc.is_in(column, those) for column, those in zip(columns, wanted, strict=True))
        for row in batch.filter(functools.reduce(pc.or_, masks)).to_pylist():
            twin = Selector("document", row["id"], row["corpus"])
            related = clusters.get(row["cluster"], []), originals.get(str(twin), [])
            for each in (*related[0], *related[1], *kept_for.get(row["near_duplicate_of"], [])):
                each.twins.add(twin)
    for each in decided:
        each.twins -= each.names


def _batches(files: Sequence[Path]) -> Iterator[pa.RecordBatch]:
    for path in files:
        try:
            with pq.ParquetFile(path) as file:
                yield from file.iter_batches(columns=_COLUMNS)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise EvidenceError(
                f"{path}: unreadable ({error}); `dvc checkout` restores it", file=path, remedy="`dvc checkout`"
            ) from error
