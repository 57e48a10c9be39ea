"""What curation decided about raw documents, and which of them it recorded as near-duplicates of each other.

A document that was dropped for its twin lives on in the twin. So the decisions are followed both ways: from a dropped
document to the one that was kept instead, from a kept one to those that it stands for, and through whole clusters,
until no further document is found.
"""

import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

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

MOST_FOLLOWED: Final = 100_000
"""Documents of an entry whose near-duplicates are looked up; beyond, memory would grow with their number."""
_COLUMNS = ("corpus", "id", "source", "licence", "kept", "step", "rule", "near_duplicate_of", "cluster", "split")


@dataclass(frozen=True, slots=True)
class CuratedDocument:
    """A raw document, and what curation decided about it.

    Attributes:
        asked: the first entry of the question that leads to it.
        near_duplicate: whether only a near-duplicate of it was named.
        document: its corpus and id, as `corpus:id`.
        decision: what became of it, in words.
        preferred: the document that curation preferred to it: the first of its duplicates, or the held-out one that it
            is too similar to.
        preferred_decision: what became of that one, where a later step dropped it too.
        kept_instead: that one, where it was kept.
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
    preferred: str | None
    preferred_decision: str | None
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
    unknown = tuple(str(selector) for selector, each in zip(selectors, decided, strict=True) if not each.fate)
    return Decisions(num_decided(decided), shown(selectors, decided, limit), unknown, tuple(unanswered))


@dataclass(slots=True)
class Decided:
    """What curation decided about the documents that a selector names, and about their near-duplicates.

    Attributes:
        limit: how many rows of either kind to keep.
        fate: number of named documents by what became of them, in words.
        names: the named documents.
        twins: their near-duplicates.
        originals: what was preferred to them.
        late: documents that a step after deduplication dropped, with what became of them, in words.
        followed: whether names and near-duplicates are held; not of more than `MOST_FOLLOWED` documents.
        named_rows: decisions about the named documents.
        twin_rows: decisions about their near-duplicates.
    """

    limit: int | None
    fate: dict[str, int] = field(default_factory=dict)
    names: set[Selector] = field(default_factory=set)
    twins: set[Selector] = field(default_factory=set)
    originals: set[Selector] = field(default_factory=set)
    late: dict[str, str] = field(default_factory=dict)
    followed: bool = True
    named_rows: list[Mapping[str, Any]] = field(default_factory=list)
    twin_rows: list[Mapping[str, Any]] = field(default_factory=list)
    _clusters: set[str] = field(default_factory=set)
    _unseen: set[Selector] = field(default_factory=set)
    _to_follow: dict[str, set[str]] = field(default_factory=dict)

    @property
    def near_duplicates(self) -> set[Selector]:
        """All near-duplicates, those too that only a document's row names."""
        return (self.twins | self.originals) - self.names

    def add(self, rows: pa.RecordBatch) -> None:
        """Adds documents that are named; too many are only counted."""
        if len(self.names) + len(rows) > MOST_FOLLOWED:
            self.followed = False
            for held in (self.names, self.originals, self.late, self._clusters, self._unseen, self._to_follow):
                held.clear()
        kinds = pa.table({name: rows[name] for name in ("kept", "split", "step", "rule")})
        removed = rows[REMOVED.name] if REMOVED.name in rows.schema.names else pa.nulls(len(rows))
        kinds = kinds.append_column(REMOVED.name, removed.is_valid())
        for kind in kinds.group_by(kinds.column_names).aggregate([([], "count_all")]).to_pylist():
            words = _words(kind)
            self.fate[words] = self.fate.get(words, 0) + kind["count_all"]
        for row in rows.to_pylist() if self.followed else ():
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
        if row["step"] in {"heldout", "decontaminate"}:
            self.late[str(_selector(row))] = _words(row)
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
        unanswered: a text is appended for what cannot be looked up.
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
    cut = set(_cut_corpora(files))
    by_id = [_by_id(selector, catalog, cut, unanswered) for selector in selectors]
    found = {selector: Decided(limit) for selector in by_id}
    matcher = Matcher(found)
    for batch in _batches(files):
        for selector, at in matcher.hits(batch):
            rows = batch.take(pa.array(at))
            found[selector].add(
                rows if selector.kind != "document" else rows.filter(pc.equal(rows["corpus"], selector.corpus))
            )
    unanswered += [
        f"{selector} names more than {MOST_FOLLOWED:,} raw documents, so their near-duplicates were not looked up; "
        "name single sources or documents"
        for selector, each in found.items()
        if not each.followed
    ]
    while _follow(list(found.values()), files):
        pass
    return [found[selector] for selector in by_id]


def num_decided(decided: Iterable[Decided]) -> int:
    """How many raw documents curation decided about; each counts once, but for entries of too many documents."""
    each_of = list(decided)
    counted = sum(sum(each.fate.values()) for each in each_of if not each.followed)
    return counted + len(set[Selector]().union(*(part for each in each_of for part in (each.names, each.twins))))


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
    late = {name: words for _, each in pairs for name, words in each.late.items()}
    stands_for: dict[str, list[str]] = {}
    for name, (_, _, row) in chosen:
        if row["near_duplicate_of"] not in late:
            stands_for.setdefault(row["near_duplicate_of"], []).append(name)
    return tuple(
        CuratedDocument(
            asked=str(selector),
            near_duplicate=near_duplicate,
            document=name,
            decision=_words(row) + _score(row),
            preferred=row["near_duplicate_of"],
            preferred_decision=late.get(row["near_duplicate_of"]),
            kept_instead=None if row["near_duplicate_of"] in late else row["near_duplicate_of"],
            stands_for=tuple(stands_for.get(name, ())),
            cluster=row["cluster"],
            removed=tuple(Removed(**part) for part in row.get("removed") or ()),
        )
        for name, (selector, near_duplicate, row) in chosen
    )


def _by_id(selector: Selector, catalog: Catalog, cut: Collection[str], unanswered: list[str]) -> Selector:
    """The same by id and the corpus's name, as curation knows documents; for a fragment its document."""
    if not selector.corpus:
        return selector
    about = [corpus for corpus in catalog.corpora.values() if selector.is_about(corpus)]
    for corpus in about:
        name = selector.value
        if selector.kind == "number":
            if int(name) >= corpus.num_documents:
                continue
            name = corpus.document(int(name))["id"]
        is_fragment = corpus.name in cut or is_cut(corpus)
        return Selector("document", document_id(name) if is_fragment else name, corpus.name)
    if selector.kind == "document" and selector.corpus in cut:
        return Selector("document", document_id(selector.value), selector.corpus)
    if selector.kind == "number" and not about:
        unanswered.append(
            f"{selector}: no corpus {selector.corpus} is available, so numbers cannot be looked up; `treering "
            "tokenize` or `dvc checkout` brings it"
        )
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


def _cut_corpora(files: Sequence[Path]) -> Iterator[str]:
    """Names of the corpora that decontamination cut.

    Raises:
        EvidenceError: a table cannot be read.
    """
    for path in files:
        try:
            if REMOVED.name in pq.read_schema(path).names:
                yield path.stem
        except (OSError, ValueError, pa.ArrowException) as error:
            raise EvidenceError(_unreadable(path, error), file=path, remedy="`dvc checkout`") from error


def _batches(files: Sequence[Path]) -> Iterator[pa.RecordBatch]:
    for path in files:
        try:
            with pq.ParquetFile(path) as file:
                present = file.schema_arrow.names
                more = [field.name for field in (REMOVED, *QUALITY_FIELDS) if field.name in present]
                yield from file.iter_batches(columns=[*_COLUMNS, *more])
        except (OSError, ValueError, pa.ArrowException) as error:
            raise EvidenceError(_unreadable(path, error), file=path, remedy="`dvc checkout`") from error


def _unreadable(path: Path, error: Exception) -> str:
    return f"{path}: unreadable ({error}); `dvc checkout` restores it"
