"""Finds the corpora of a blend by content: a name leads to a place, only the digest says whether it is the one."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from treering.audit.report import Finding
from treering.config.resolve import ResolvedBlend, ResolvedComponent
from treering.data.blend import check_component
from treering.data.corpus import DOCUMENTS, Corpus
from treering.data.order import DataOrder
from treering.errors import EvidenceError, TreeringError, UserError
from treering.project import Project


@dataclass(frozen=True, slots=True)
class Shelf:
    """The corpora at hand and what is said about those that are not.

    Attributes:
        corpora: by digest.
        missing: by digest: what was looked for, what stands in its place, what helps.
    """

    corpora: dict[str, Corpus]
    missing: dict[str, Finding]
    _offsets: dict[str, NDArray[np.int64]] = field(default_factory=dict, repr=False)

    def offsets(self, corpus: Corpus) -> NDArray[np.int64]:
        """First token of each document, with the end: int64 [num_documents + 1]; read once."""
        if corpus.digest not in self._offsets:
            self._offsets[corpus.digest] = table_offsets(corpus)
        return self._offsets[corpus.digest]

    def order(self, blend: ResolvedBlend) -> DataOrder:
        """The data order of a blend, with the documents of every corpus at hand.

        Raises:
            EvidenceError: the blend says of a corpus what its manifest does not, or no order can be made of it.
        """
        offsets = {}
        for component in blend.components:
            if component.digest in self.corpora:
                corpus = self.corpora[component.digest]
                check_component(blend, component, corpus, "resolved.json of the run")
                offsets[component.corpus] = self.offsets(corpus)
        try:
            return DataOrder(blend, offsets)
        except UserError as error:
            raise EvidenceError(f"resolved.json of the run holds a blend that cannot be read: {error}") from error


def find_corpora(project: Project, blends: Iterable[ResolvedBlend]) -> Shelf:
    """Looks for every corpus of some blends: first where its name leads, then among all corpora of the project."""
    corpora: dict[str, Corpus] = {}
    missing: dict[str, Finding] = {}
    for blend in blends:
        for component in blend.components:
            if component.digest is None or component.digest in corpora or component.digest in missing:
                continue
            corpus = _find(project, component)
            if corpus is None:
                missing[component.digest] = Finding("corpus", _explain(project, component), corpus=component.corpus)
            else:
                corpora[component.digest] = corpus
    return Shelf(corpora, missing)


def table_offsets(corpus: Corpus) -> NDArray[np.int64]:
    """First token of each document, with the end, from the document table: holds when the index is what was damaged.

    Falls back to the index where the table cannot be read.
    """
    try:
        column = pq.read_table(corpus.directory / DOCUMENTS, columns=["tokens"]).column("tokens")
        lengths = column.cast(pa.int64()).to_numpy()
    except (OSError, KeyError, ValueError, pa.ArrowException):
        return corpus.document_offsets
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    if len(lengths) == corpus.num_documents and not column.null_count and lengths.min() > 0:
        np.cumsum(lengths, out=offsets[1:])
    return offsets if int(offsets[-1]) == corpus.num_tokens else corpus.document_offsets


def _find(project: Project, component: ResolvedComponent) -> Corpus | None:
    named = project.corpus(component.corpus)
    others = sorted(path.parent for path in project.corpora.glob("*/*/manifest.json") if path.parent != named)
    for directory in (named, *others):
        corpus = _open(directory)
        if corpus is not None and corpus.digest == component.digest:
            return corpus
    return None


def _open(directory: Path) -> Corpus | None:
    try:
        return Corpus.open(directory)
    except TreeringError:
        return None


def _explain(project: Project, component: ResolvedComponent) -> str:
    directory = project.corpus(component.corpus)
    wanted = f"corpus {component.corpus} ({component.digest}) is not at hand"
    helps = "`dvc checkout` or `dvc repro tokenize` of the matching commit brings it back"
    try:
        found = Corpus.open(directory).digest
    except TreeringError as error:
        return f"{wanted}: {error}; no other corpus below {project.corpora} has that digest; {helps}"
    return f"{wanted}: {directory} holds {found}, and no other corpus below {project.corpora} has it; {helps}"
