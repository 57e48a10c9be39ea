"""The corpora of a project for the ledger: how many documents and tokens are under each licence."""

from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import suppress

import numpy as np
import pyarrow.compute as pc

from treering.data.corpus.corpus import DOCUMENTS, MANIFEST
from treering.data.corpus.document_table import DocumentTable
from treering.data.corpus.manifest import read_manifest
from treering.errors import EvidenceError
from treering.project import Project
from treering.store.ledger.records import CorpusRecord


def digests_here(project: Project) -> set[str]:
    """Digests of the project's corpora, without those whose manifest does not hold."""
    found = set()
    for path in project.corpora.glob(f"*/*/{MANIFEST}"):
        with suppress(EvidenceError):
            found.add(str(read_manifest(path)["digest"]))
    return found


def count_corpora(project: Project, wanted: Collection[str]) -> Iterator[CorpusRecord]:
    """The corpora of a project that have one of these digests and a document table that can be read.

    Reads the licences of all their documents, in a stream.
    """
    left = set(wanted)
    for path in sorted(project.corpora.glob(f"*/*/{MANIFEST}")):
        if not left:
            return
        try:
            manifest = read_manifest(path)
            if manifest["digest"] not in left:
                continue
            table = DocumentTable(path.with_name(DOCUMENTS), int(manifest["num_documents"]))
            licences = _licences(table)
        except EvidenceError:  # `treering verify` names it; the ledger says that the licences are unknown
            continue
        left.discard(manifest["digest"])
        yield CorpusRecord(
            digest=manifest["digest"],
            name=str(manifest["name"]),
            licence=str(manifest["licence"]),
            documents=int(manifest["num_documents"]),
            tokens=int(manifest["num_tokens"]),
            licences=licences,
        )


def _licences(table: DocumentTable) -> dict[str, tuple[int, int]]:
    documents, tokens = Counter[str](), Counter[str]()
    for _first, batch in table.batches(("licence", "tokens")):
        names = pc.dictionary_encode(batch["licence"])
        words = names.dictionary.to_pylist()
        lengths = batch["tokens"].to_numpy().astype(np.float64)  # whole numbers below 2**53: their sums are exact
        documents.update(dict(zip(words, np.bincount(names.indices, minlength=len(words)).tolist(), strict=True)))
        sums = np.bincount(names.indices, lengths, len(words)).astype(np.int64).tolist()
        tokens.update(dict(zip(words, sums, strict=True)))
    return {licence: (documents[licence], tokens[licence]) for licence in sorted(documents)}
