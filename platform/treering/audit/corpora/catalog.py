"""Finds the corpora of a blend by content: a name leads to a place, only the digest says whether it is the one."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from treering.audit.corpora.stored import stored_corpus
from treering.audit.report import Finding
from treering.config.resolved import CONFIG_FILE
from treering.config.resolved_blend import ResolvedBlend, ResolvedComponent
from treering.data.blend.corpora import check_component
from treering.data.corpus.corpus import DOCUMENTS, IDX, MANIFEST, Corpus
from treering.data.corpus.manifest import read_manifest
from treering.data.order.spans import Offsets
from treering.data.order.treering1 import DataOrder
from treering.errors import EvidenceError, TreeringError, UserError
from treering.project import Project

UNKNOWN: Final = "unknown"
"""Source and licence of a document whose table cannot be read."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """The available corpora, and findings about the missing ones.

    The place of a document is looked up in the memory-mapped index, or in the document table where the index is
    damaged. Neither is read whole.

    Attributes:
        corpora: by digest.
        missing: by digest: what was looked for, what was found instead, what helps.
        damaged: by digest: what is wrong with the index of a corpus that its table answers for.
        partial: by digest: of those that are missing, the ones whose manifest is there, but not every file.
    """

    corpora: dict[str, Corpus]
    missing: dict[str, Finding]
    damaged: dict[str, Finding] = field(default_factory=dict)
    partial: dict[str, Corpus] = field(default_factory=dict)
    _offsets: dict[str, Offsets] = field(default_factory=dict, repr=False)

    def offsets(self, corpus: Corpus) -> Offsets:
        """First token of each document, with the end: [num_documents + 1].

        Raises:
            EvidenceError: neither index nor document table can be read; also on looking up documents about which the
                index contradicts itself.
        """
        if corpus.digest not in self._offsets:
            try:
                self._offsets[corpus.digest] = corpus.mapped_offsets
            except EvidenceError as error:
                self.use_table(corpus, Finding.from_error(error, "corpus", corpus=corpus.name))
        return self._offsets[corpus.digest]

    def use_table(self, corpus: Corpus, damage: Finding) -> None:
        """Takes the document table from now on to find the documents of a corpus whose index is damaged.

        Args:
            corpus: the corpus.
            damage: what is wrong with its index.

        Raises:
            EvidenceError: the table cannot be read either.
        """
        self.damaged[corpus.digest] = damage
        self._offsets[corpus.digest] = corpus.table_offsets

    def documents(self, corpus: Corpus, numbers: NDArray[np.int64]) -> list[dict[str, Any]]:
        """Id, source, licence and tokens of documents, in the order of the numbers; tokens are compared with the index.

        Raises:
            EvidenceError: those parts of the table cannot be read, or table and index disagree about one of them.
        """
        rows, offsets = corpus.documents(numbers, ("id", "source", "licence", "tokens")), self.offsets(corpus)
        by_table = pa.array([row["tokens"] for row in rows], pa.int64())
        agree(corpus, numbers, offsets[numbers + 1] - offsets[numbers], by_table)
        return rows

    def described(
        self, corpus: Corpus, numbers: NDArray[np.int64]
    ) -> tuple[list[dict[str, Any]], EvidenceError | None]:
        """The same rows, or rows without the table, and why the table cannot be used.

        Without the table the id of a document is `#` and its number; source and licence are `UNKNOWN`.

        Raises:
            EvidenceError: the index cannot be read either.
        """
        try:
            return self.documents(corpus, numbers), None
        except EvidenceError as error:
            offsets = self.offsets(corpus)
            lengths = (offsets[numbers + 1] - offsets[numbers]).tolist()
            unknown = {"source": UNKNOWN, "licence": UNKNOWN}
            rows = [{"id": f"#{n}", **unknown, "tokens": k} for n, k in zip(numbers.tolist(), lengths, strict=True)]
            return rows, error

    def check(self, blend: ResolvedBlend) -> None:
        """Compares what a blend states about the available corpora with their manifests.

        Raises:
            EvidenceError: it says something else.
        """
        for component in blend.components:
            if component.digest in self.corpora:
                check_component(blend, component, self.corpora[component.digest], f"{CONFIG_FILE} of the run")

    def order(self, blend: ResolvedBlend) -> DataOrder:
        """The data order of a blend, with the documents of every corpus whose index or table can be read.

        Raises:
            EvidenceError: the blend contradicts the manifest of a corpus, no order can be made of it, or neither
                index nor document table of a corpus can be read.
        """
        self.check(blend)
        offsets = {}
        for component in blend.components:
            digest = component.digest or ""
            if digest in self.corpora:
                offsets[component.corpus] = self.offsets(self.corpora[digest])
            elif digest in self.partial:
                with suppress(EvidenceError):
                    offsets[component.corpus] = self.offsets(self.partial[digest])
        return order_of(blend, offsets)


def order_of(blend: ResolvedBlend, offsets: Mapping[str, Offsets] | None = None) -> DataOrder:
    """The data order of a run's blend.

    Raises:
        EvidenceError: no order can be made of it.
    """
    try:
        return DataOrder(blend, offsets)
    except UserError as error:
        raise EvidenceError(f"{CONFIG_FILE} of the run holds a blend that cannot be read: {error}") from error


def agree(
    corpus: Corpus, numbers: Sequence[int] | NDArray[np.int64], by_index: NDArray[np.int64], by_table: pa.Int64Array
) -> None:
    """Compares the lengths of some documents by the index with those by the document table.

    Raises:
        EvidenceError: they disagree about one.
    """
    for wrong in np.flatnonzero(by_index != by_table.to_numpy())[:1].tolist():
        raise EvidenceError(
            f"{corpus.directory}: document {numbers[wrong]} of corpus {corpus.name} has {by_index[wrong]} tokens by "
            f"{IDX} and {by_table[wrong]} by {DOCUMENTS}: one of them was changed; `treering verify` says which, "
            "`dvc checkout` restores it",
            file=corpus.directory,
            found=by_index[wrong].item(),
            expected=by_table[wrong].as_py(),
            remedy="`dvc checkout`",
        )


def find_corpora(project: Project, blends: Iterable[ResolvedBlend], *, stored: bool = False) -> Catalog:
    """Looks for every corpus of some blends: first where its name leads, then among all corpora of the project.

    Args:
        project: the project.
        blends: the blends.
        stored: whether a corpus may be read from the store of data (`RangedCorpus`), where the project lacks it.
    """
    corpora: dict[str, Corpus] = {}
    missing: dict[str, Finding] = {}
    partial: dict[str, Corpus] = {}
    for blend in blends:
        for component in blend.components:
            if component.digest is None or component.digest in corpora or component.digest in missing:
                continue
            corpus, unread = _find(project, component), ""
            if corpus is None and stored:
                corpus, unread = stored_corpus(project, component.digest)
            if corpus is None:
                text = f"{_explain(project, component)}{unread}"
                missing[component.digest] = Finding("corpus", text, corpus=component.corpus)
                incomplete = next(_incomplete(project, component), None)
                if incomplete is not None:
                    partial[component.digest] = incomplete
            else:
                corpora[component.digest] = corpus
    return Catalog(corpora, missing, partial=partial)


def _find(project: Project, component: ResolvedComponent) -> Corpus | None:
    named = project.corpus(component.corpus)
    others = sorted(path.parent for path in project.corpora.glob(f"*/*/{MANIFEST}") if path.parent != named)
    for directory in (named, *others):
        corpus = _open(directory)
        if corpus is not None and corpus.digest == component.digest:
            return corpus
    return None


def _incomplete(project: Project, component: ResolvedComponent) -> Iterator[Corpus]:
    """The corpus by its manifest alone, where its files are not all there."""
    for path in sorted(project.corpora.glob(f"*/*/{MANIFEST}")):
        with suppress(EvidenceError):
            manifest = read_manifest(path)
            if manifest["digest"] == component.digest:
                yield Corpus(path.parent, manifest)


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
