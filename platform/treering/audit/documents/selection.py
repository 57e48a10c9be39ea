"""Which documents are meant: by id, by number, by source, by licence."""

import fnmatch
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from treering.audit.corpora.catalog import Catalog, agree
from treering.audit.report import Gap, Level
from treering.data.corpus.corpus import Corpus
from treering.data.fragments import FRAGMENT
from treering.errors import EvidenceError, UserError

_KINDS: Final[tuple[Literal["source", "licence"], ...]] = ("source", "licence")
_NUMBER: Final = re.compile(r"#(\d+)")
_SHORTEST_DIGEST: Final = len("sha256:")


@dataclass(frozen=True, slots=True)
class Selector:
    """Documents that somebody asks about.

    Attributes:
        kind: what `value` is compared with.
        value: an id, a number, a shell pattern over source URIs, or a licence as the document table spells it.
        corpus: for an id or a number, the name or the digest (or its beginning) of its corpus.
    """

    kind: Literal["document", "number", "source", "licence"]
    value: str
    corpus: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads `CORPUS:ID`, `CORPUS:#NUMBER`, `source=PATTERN` or `licence=NAME`.

        Raises:
            UserError: it is none of them.
        """
        for kind in _KINDS:
            if text.startswith(f"{kind}="):
                return cls(kind, text.removeprefix(f"{kind}="))
        corpus, colon, document = text.partition(":")
        if corpus == "sha256":  # a digest holds a colon itself
            digest, colon, document = document.partition(":")
            corpus = f"{corpus}:{digest}"
        if not (corpus and colon and document):
            raise UserError(
                f"documents: found {text!r}, expected CORPUS:ID, CORPUS:#NUMBER, source=PATTERN or licence=NAME"
            )
        number = _NUMBER.fullmatch(document)
        return cls("document", document, corpus) if number is None else cls("number", number[1], corpus)

    def __str__(self) -> str:
        match self.kind:
            case "document":
                return f"{self.corpus}:{self.value}"
            case "number":
                return f"{self.corpus}:#{self.value}"
        return f"{self.kind}={self.value}"

    def is_about(self, corpus: Corpus) -> bool:
        """Whether it may mean documents of a corpus."""
        named = len(self.corpus) > _SHORTEST_DIGEST and corpus.digest.startswith(self.corpus)
        return not self.corpus or self.corpus == corpus.name or named


class Matcher:
    """Tells which rows of a table selectors mean, all of them in one pass.

    Args:
        selectors: by id, source or licence; numbers are no matter of a table's columns.
        cut: whether the table has fragments; the id of a document then means its fragments too.
    """

    def __init__(self, selectors: Iterable[Selector], *, cut: bool = False) -> None:
        self._cut = cut
        self._ids: dict[str, list[Selector]] = {}
        self._others: list[Selector] = []
        for selector in selectors:
            if selector.kind == "document":
                self._ids.setdefault(selector.value, []).append(selector)
            elif selector.kind != "number":
                self._others.append(selector)
        self._wanted = pa.array(list(self._ids), pa.string())
        kinds = dict.fromkeys(selector.kind for selector in self._others)
        self.columns: tuple[str, ...] = (*(("id",) if self._ids else ()), *kinds)

    def hits(self, batch: pa.RecordBatch) -> Iterator[tuple[Selector, NDArray[np.int64]]]:
        """Selectors that mean rows of a batch, and which rows, ascending; by id whatever the corpus."""
        if self._ids:
            by_id: dict[Selector, list[int]] = {}
            ids = batch["id"]
            for names in (ids, pc.replace_substring_regex(ids, FRAGMENT, "")) if self._cut else (ids,):
                at = np.flatnonzero(pc.is_in(names, self._wanted))
                for position, name in zip(at.tolist(), names.take(pa.array(at)).to_pylist(), strict=True):
                    for selector in self._ids[name]:
                        by_id.setdefault(selector, []).append(position)
            yield from ((selector, np.unique(np.array(found, np.int64))) for selector, found in by_id.items())
        for selector in self._others:
            found = np.flatnonzero(_mask(selector, batch))
            if len(found):
                yield selector, found


def _mask(selector: Selector, batch: pa.RecordBatch) -> pa.BooleanArray:
    column = batch[selector.kind]
    if selector.kind == "licence":
        return pc.equal(column, selector.value)
    fitting = [each for each in pc.unique(column).to_pylist() if fnmatch.fnmatchcase(each, selector.value)]
    return pc.is_in(column, pa.array(fitting, pa.string()))


def find_documents(
    corpus: Corpus, catalog: Catalog, selectors: Collection[Selector]
) -> dict[Selector, NDArray[np.int64]]:
    """Numbers of a corpus's documents that selectors mean, ascending; those that mean none are left out.

    The document table is walked through once for all of them, a row group at a time, and only the columns that are
    compared; a document asked for by its number is looked up. Each found document is compared with the index.

    Raises:
        EvidenceError: the document table cannot be read, or it and the index disagree about one of these documents.
    """
    mine = [selector for selector in selectors if selector.is_about(corpus)]
    found: dict[Selector, list[NDArray[np.int64]]] = {}
    for selector in mine:
        if selector.kind == "number" and int(selector.value) < corpus.num_documents:
            number = np.array([int(selector.value)], dtype=np.int64)
            catalog.documents(corpus, number)
            found[selector] = [number]
    matcher = Matcher(mine, cut=is_cut(corpus))
    for first, batch in corpus.batches(*matcher.columns, "tokens") if matcher.columns else ():
        lengths: NDArray[np.int64] | None = None
        for selector, at in matcher.hits(batch):
            if lengths is None:
                lengths = np.diff(catalog.offsets(corpus)[first : first + len(batch) + 1])
            agree(corpus, first + at, lengths[at], batch["tokens"].take(pa.array(at)))
            found.setdefault(selector, []).append(first + at)
    return {selector: np.concatenate(parts) for selector, parts in found.items()}


def is_cut(corpus: Corpus) -> bool:
    """Whether decontamination cut the corpus's documents, by its manifest."""
    return any(step.get("parameters", {}).get("rule") == "cut" for step in corpus.manifest.get("curation", ()))


def find_readable(
    corpus: Corpus, catalog: Catalog, selectors: Collection[Selector], gaps: list[Gap]
) -> dict[Selector, NDArray[np.int64]]:
    """The same; where the document table cannot be read or believed, no document is found, and a gap is appended."""
    try:
        return find_documents(corpus, catalog, selectors)
    except EvidenceError as error:
        answered = f"the documents of other corpora; none of corpus {corpus.name} could be looked up"
        gaps.append(Gap.from_error(error, answered, Level.DECLARED, corpus=corpus.name))
        return {}


def select(selectors: Collection[Selector], catalog: Catalog, gaps: list[Gap]) -> dict[str, NDArray[np.int64]]:
    """Numbers of the documents that any of some selectors means, ascending, by digest of their corpus.

    Args:
        selectors: which documents.
        catalog: the corpora.
        gaps: a gap is appended for each corpus whose table cannot be read or contradicts its index.
    """
    found: dict[str, NDArray[np.int64]] = {}
    for digest, corpus in catalog.corpora.items():
        parts = find_readable(corpus, catalog, selectors, gaps).values()
        if parts:
            found[digest] = np.unique(np.concatenate(list(parts)))
    return found
