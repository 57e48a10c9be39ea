"""What curation decided about raw documents, and which of them it recorded as near-duplicates of each other.

A document that was dropped for its twin lives on in the twin. So the decisions are followed both ways: from a dropped
document to the one that was kept instead, from a kept one to those that it stands for, and through whole clusters,
until no further document is found.
"""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from treering.audit.corpora.catalog import Catalog
from treering.audit.documents.exposure_index import corpora_of, project_runs
from treering.audit.documents.selection import Matcher, Selector, is_cut
from treering.audit.report import json_fields
from treering.data.curate.decisions import QUALITY_FIELDS, REMOVED, Removed
from treering.data.fragments import document_id
from treering.errors import EvidenceError
from treering.project import Project

_COLUMNS = ("corpus", "id", "source", "licence", "kept", "step", "rule", "near_duplicate_of", "cluster", "split")


@dataclass(frozen=True, slots=True)
class CuratedDocument:
    """A raw document, and what curation decided about it.

    Attributes:
        asked: the first entry of the question that leads to it.
        near_duplicate: whether only a near-duplicate of it was named.
        document: its corpus and id, as `corpus:id`.
        decision: what became of it, in words.
        kept_instead: the document that was kept in its stead, or the held-out one that it is too similar to.
        stands_for: documents of this answer that were dropped for it.
        cluster: the first document of its near-duplicate cluster; None if an earlier step dropped it.
        removed: what decontamination cut out of it.
        exposures: samples of all runs that held a part of it; None where that was not asked.
        first_step: first step of any run that read one of them, None if there is none.
        last_step: last such step.
    """

    asked: str
    near_duplicate: bool
    document: str
    decision: str
    kept_instead: str | None
    stands_for: tuple[str, ...]
    cluster: str | None
    removed: tuple[Removed, ...]
    exposures: int | None = None
    first_step: int | None = None
    last_step: int | None = None


@dataclass(frozen=True, slots=True)
class Decisions:
    """What curation decided about some documents and their near-duplicates.

    Attributes:
        num_documents: how many raw documents these are.
        documents: those of them that were asked to be shown.
        unknown: entries that no decision is about.
        unanswered: what was not searched, in words.
    """

    num_documents: int
    documents: tuple[CuratedDocument, ...]
    unknown: tuple[str, ...]
    unanswered: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The answer as JSON values."""
        return json_fields(self)


def find_decisions(project: Project, selectors: Sequence[Selector], *, limit: int | None = None) -> Decisions:
    """Finds what curation decided about some documents and about their near-duplicates.

    Args:
        project: the project.
        selectors: which documents.
        limit: how many documents to show, None for all.

    Raises:
        EvidenceError: curation's decisions cannot be read.
    """
    catalog, unanswered = corpora_of(project, project_runs(project))
    decided = decided_about(project, selectors, catalog, unanswered, limit)
    unknown = tuple(str(selector) for selector, each in zip(selectors, decided, strict=True) if not each.names)
    return Decisions(num_decided(decided), shown(selectors, decided, limit), unknown, tuple(unanswered))


@dataclass(slots=True)
class Decided:
    """What curation decided about the documents that a selector names, and about their near-duplicates.

    Attributes:
        limit: how many rows of either kind to keep.
        fate: number of named documents by what became of them, in words.
        names: the named documents.
        twins: their near-duplicates.
        originals: what was kept in the stead of all of them.
        named_rows: decisions about the named documents.
        twin_rows: decisions about their near-duplicates.
    """

    limit: int | None
    fate: dict[str, int] = field(default_factory=dict)
    names: set[Selector] = field(default_factory=set)
    twins: set[Selector] = field(default_factory=set)
    originals: set[Selector] = field(default_factory=set)
    named_rows: list[Mapping[str, Any]] = field(default_factory=list)
    twin_rows: list[Mapping[str, Any]] = field(default_factory=list)
    _clusters: set[str] = field(default_factory=set)
    _unseen: set[Selector] = field(default_factory=set)
    _to_follow: dict[str, set[str]] = field(default_factory=dict)

    @property
    def near_duplicates(self) -> set[Selector]:
        """All near-duplicates, those too that only a document's row names."""
        return (self.twins | self.originals) - self.names

    def add(self, row: Mapping[str, Any]) -> None:
        """Adds a document that is named."""
        words = _words(row)
        self.fate[words] = self.fate.get(words, 0) + 1
        self._add(row, self.names, self.named_rows)
        self._follow("near_duplicate_of", str(_selector(row)))

    def add_twin(self, row: Mapping[str, Any]) -> None:
        """Adds a near-duplicate, unless it was added before."""
        selector = _selector(row)
        if selector not in self.names and selector not in self.twins:
            self._add(row, self.twins, self.twin_rows)
            if row["split"] == "heldout":  # others are kept only for documents of their own cluster
                self._follow("near_duplicate_of", str(selector))

    def to_follow(self) -> dict[str, set[str]]:
        """By column the values whose documents were not searched for yet; they count as searched for then."""
        wanted, self._to_follow = self._to_follow, {}
        known = self.names | self.twins
        wanted["document"] = {str(each) for each in self._unseen - known}
        self._unseen.clear()
        return wanted

    def _follow(self, column: str, value: str) -> None:
        self._to_follow.setdefault(column, set()).add(value)

    def _add(self, row: Mapping[str, Any], to: set[Selector], rows: list[Mapping[str, Any]]) -> None:
        to.add(_selector(row))
        if row["cluster"] is not None and row["cluster"] not in self._clusters:
            self._clusters.add(row["cluster"])
            self._follow("cluster", row["cluster"])
        if row["near_duplicate_of"] is not None:
            corpus, _, document = row["near_duplicate_of"].partition(":")
            original = Selector("document", document, corpus)
            self._unseen |= {original} - self.originals
            self.originals.add(original)
        if self.limit is None or len(rows) < self.limit:
            rows.append(row)


def decided_about(
    project: Project, selectors: Sequence[Selector], catalog: Catalog, unanswered: list[str], limit: int | None = None
) -> list[Decided]:
    """What curation decided about the documents that each selector names; the tables are read by row groups.

    Args:
        project: the project.
        selectors: which documents; a number is looked up in its corpus.
        catalog: the corpora.
        unanswered: a text is appended where there are no decisions.
        limit: how many rows of either kind to keep for each selector, None for all.

    Raises:
        EvidenceError: curation's decisions cannot be read.
    """
    folder = project.curated / "decisions"
    files = sorted(folder.glob("*.parquet"))
    if not files:
        unanswered.append(
            f"{folder}: no decisions of curation, near-duplicates cannot be told; `dvc checkout` brings them back"
        )
    by_id = [_by_id(selector, catalog) for selector in selectors]
    found = {selector: Decided(limit) for selector in by_id}
    matcher = Matcher(found)
    for batch in _batches(files):
        for selector, at in matcher.hits(batch):
            for row in batch.take(pa.array(at)).to_pylist():
                if selector.kind != "document" or row["corpus"] == selector.corpus:
                    found[selector].add(row)
    while _follow(list(found.values()), files):
        pass
    return [found[selector] for selector in by_id]


def num_decided(decided: Iterable[Decided]) -> int:
    """How many raw documents curation decided about, each counted once."""
    return len(set[Selector]().union(*(part for each in decided for part in (each.names, each.twins))))


def shown(
    selectors: Iterable[Selector], decided: Iterable[Decided], limit: int | None = None
) -> tuple[CuratedDocument, ...]:
    """The decisions, at most `limit` of them: those about named documents first."""
    pairs = list(zip(selectors, decided, strict=True))
    found: dict[str, tuple[Selector, bool, Mapping[str, Any]]] = {}
    for near_duplicate in (False, True):
        for selector, each in pairs:
            for row in each.twin_rows if near_duplicate else each.named_rows:
                found.setdefault(str(_selector(row)), (selector, near_duplicate, row))
    chosen = list(found.items())[:limit]
    stands_for: dict[str, list[str]] = {}
    for name, (_, _, row) in chosen:
        stands_for.setdefault(row["near_duplicate_of"], []).append(name)
    return tuple(
        CuratedDocument(
            asked=str(selector),
            near_duplicate=near_duplicate,
            document=name,
            decision=_words(row) + _score(row),
            kept_instead=row["near_duplicate_of"],
            stands_for=tuple(stands_for.get(name, ())),
            cluster=row["cluster"],
            removed=tuple(Removed(**part) for part in row.get("removed") or ()),
        )
        for name, (selector, near_duplicate, row) in chosen
    )


def _by_id(selector: Selector, catalog: Catalog) -> Selector:
    """The same by id and the corpus's name, as curation knows documents; for a fragment its document."""
    for corpus in catalog.corpora.values():
        if selector.corpus and selector.is_about(corpus):
            name = selector.value
            if selector.kind == "number":
                if int(name) >= corpus.num_documents:
                    continue
                name = corpus.document(int(name))["id"]
            return Selector("document", document_id(name) if is_cut(corpus) else name, corpus.name)
    return selector


def _selector(row: Mapping[str, Any]) -> Selector:
    return Selector("document", row["id"], row["corpus"])


def _words(row: Mapping[str, Any]) -> str:
    if row["kept"]:
        return f"kept for {row['split']}{', cut' if row.get('removed') else ''}"
    return f"dropped by {row['step']}: {row['rule']}"


def _score(row: Mapping[str, Any]) -> str:
    """What the quality classifier said of a document that it judged."""
    score = row.get("quality_score")
    return "" if score is None else f" (quality: score {score:.3f}, draw {row['quality_draw']:.3f})"


def _follow(decided: Sequence[Decided], files: Sequence[Path]) -> bool:
    """Adds near-duplicates by what is known so far; whether anything was left to follow."""
    asking: dict[str, dict[str, list[Decided]]] = {"cluster": {}, "document": {}, "near_duplicate_of": {}}
    for each in decided:
        for column, values in each.to_follow().items():
            for value in values:
                asking[column].setdefault(value, []).append(each)
    wanted = {column: pa.array(list(values), pa.string()) for column, values in asking.items() if values}
    for batch in _batches(files) if wanted else ():
        columns = {
            "cluster": batch["cluster"],
            "document": pc.binary_join_element_wise(batch["corpus"], batch["id"], ":"),
            "near_duplicate_of": batch["near_duplicate_of"],
        }
        masks = [pc.is_in(columns[column], values) for column, values in wanted.items()]
        for row in batch.filter(functools.reduce(pc.or_, masks)).to_pylist():
            keys = {**row, "document": str(_selector(row))}
            for column in wanted:
                for each in asking[column].get(keys[column], ()):
                    each.add_twin(row)
    return bool(wanted)


def _batches(files: Sequence[Path]) -> Iterator[pa.RecordBatch]:
    for path in files:
        try:
            with pq.ParquetFile(path) as file:
                present = file.schema_arrow.names
                more = [field.name for field in (REMOVED, *QUALITY_FIELDS) if field.name in present]
                yield from file.iter_batches(columns=[*_COLUMNS, *more])
        except (OSError, ValueError, pa.ArrowException) as error:
            raise EvidenceError(
                f"{path}: unreadable ({error}); `dvc checkout` restores it", file=path, remedy="`dvc checkout`"
            ) from error
