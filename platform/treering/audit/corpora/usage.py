"""What a path read of each corpus: samples, tokens, epochs, documents, licences; and what it must not have read."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from treering.audit.corpora.catalog import Catalog, agree, order_of
from treering.audit.corpora.heldout import HeldOutDocuments
from treering.audit.evidence.segments import Piece
from treering.audit.report import CorpusUsage, CurationStep, Finding, HeldOut
from treering.config.resolved_blend import ResolvedBlend
from treering.data.corpus.corpus import Corpus
from treering.data.order.spans import DocumentReads
from treering.data.order.treering1 import DataOrder
from treering.errors import EvidenceError
from treering.progress import Progress, quiet

_CHUNK = 1 << 14
"""Documents looked at together where the document table cannot be read."""


@dataclass(frozen=True, slots=True)
class _Range:
    """Samples [lo, hi) of one data order that the path read."""

    blend: ResolvedBlend
    order: DataOrder
    lo: int
    hi: int


def _ranges(pieces: Sequence[Piece]) -> list[_Range]:
    """What the path read, attempts that go on in one blend joined."""
    ranges: list[_Range] = []
    for piece in pieces:
        lo, hi = piece.sample_range
        if ranges and ranges[-1].blend.digest == piece.blend.digest and ranges[-1].hi == lo:
            ranges[-1] = replace(ranges[-1], hi=hi)
        else:
            ranges.append(_Range(piece.blend, order_of(piece.blend), lo, hi))
    return ranges


def path_usage(pieces: Sequence[Piece]) -> tuple[CorpusUsage, ...]:
    """Samples, tokens and epochs that a path read of each corpus, in the blends' order.

    By the data order alone: no corpus is opened. It takes milliseconds, whatever the number of samples and documents.

    Raises:
        EvidenceError: no data order can be made of a blend.
    """
    return tuple(_samples_of(places) for places in _places(pieces))


def _places(pieces: Sequence[Piece]) -> Iterable[list[tuple[_Range, int]]]:
    """The positions of each corpus in the blends of a path."""
    places: dict[str, list[tuple[_Range, int]]] = {}
    for each in _ranges(pieces):
        for position, component in enumerate(each.blend.components):
            places.setdefault(component.digest or component.corpus, []).append((each, position))
    return places.values()


def _reads(places: Iterable[tuple[_Range, int]]) -> list[DocumentReads]:
    return [
        DocumentReads(each.order.read_counts(position, each.lo, each.hi), each.order.sequence_length)
        for each, position in places
    ]


def joined_reads(
    reads: Sequence[DocumentReads], offsets: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """What all ranges of a path read of some neighbouring documents: arguments and result as of `DocumentReads.of`."""
    # Sorted numpy arrays, not `portion`: a union of 100,000 intervals takes portion 2.6.3 3.1 s to build alone, while
    # numpy builds it and counts the tokens of 100,000 documents in it within 0.03 s.
    held, tokens = zip(*(each.of(offsets) for each in reads), strict=True)
    return np.logical_or.reduce(held), np.sum(tokens, axis=0)


def corpus_reads(pieces: Sequence[Piece], catalog: Catalog) -> Iterator[tuple[Corpus, list[DocumentReads]]]:
    """Each corpus of a path that the catalog has, with what the ranges of the path read of it.

    Raises:
        EvidenceError: a blend contradicts the manifest of a corpus, or no data order can be made of it.
    """
    for piece in pieces:
        catalog.check(piece.blend)
    for places in _places(pieces):
        each, position = places[-1]
        corpus = catalog.corpora.get(each.blend.components[position].digest or "")
        if corpus is not None:
            yield corpus, _reads(places)


def _samples_of(places: Sequence[tuple[_Range, int]]) -> CorpusUsage:
    last, last_position = places[-1]
    component = last.blend.components[last_position]
    samples = tokens = 0
    planned = realised = Fraction(0)
    for each, position in places:
        order = each.order
        epoch_samples = order.components[position].num_samples
        count = order.count(position, each.hi) - order.count(position, each.lo)
        samples += count
        tokens += count * order.sequence_length
        realised += Fraction(count, epoch_samples)
        planned += Fraction(each.blend.components[position].weight) * (each.hi - each.lo) / epoch_samples
    return CorpusUsage(
        corpus=component.corpus,
        digest=component.digest,
        licence=None,
        weight=component.weight,
        samples=samples,
        tokens=tokens,
        planned_epochs=float(planned),
        realised_epochs=float(realised),
        documents_touched=None,
        num_documents=component.num_documents,
        unread_tokens=last.order.components[last_position].unread_tokens,
        path=None,
        licences=None,
        curation=(),
    )


@dataclass(frozen=True, slots=True)
class PathDocuments:
    """What a path read of each corpus, looked into document by document.

    Attributes:
        corpora: by corpus, in the blends' order.
        held_out: what was held out, None without a held-out corpus.
        overlaps: a finding for each corpus of which held-out documents were read.
        damages: a finding for each document table that could not be read through.
    """

    corpora: tuple[CorpusUsage, ...]
    held_out: HeldOut | None
    overlaps: tuple[Finding, ...]
    damages: tuple[Finding, ...]


def path_documents(
    pieces: Sequence[Piece], catalog: Catalog, held_out: HeldOutDocuments | None = None, progress: Progress = quiet
) -> PathDocuments:
    """What a path read of the available documents: which, tokens by licence, and which of the held-out ones.

    Every document table and index is walked through once, a row group at a time. Memory: some bytes for each sample of
    an epoch of one corpus, whatever the number of documents.

    Args:
        pieces: the path.
        catalog: the available corpora.
        held_out: what must not have been read.
        progress: is called for each corpus.

    Raises:
        EvidenceError: a blend contradicts the manifest of a corpus, or no data order can be made of it.
    """
    for piece in pieces:
        catalog.check(piece.blend)
    corpora, overlaps, damages = [], [], []
    overlapping = 0
    every = list(_places(pieces))
    for done, places in enumerate(every, 1):
        usage = _samples_of(places)
        corpus = catalog.corpora.get(usage.digest or "")
        if corpus is not None:
            read = _read_documents(corpus, _reads(places), catalog, held_out)
            usage = replace(
                usage,
                licence=str(corpus.manifest["licence"]),
                documents_touched=read.touched,
                path=str(corpus.directory),
                licences=read.licences,
                curation=curation_of(corpus),
            )
            overlapping += len(read.held_out)
            if held_out is not None and read.held_out:
                overlaps.append(_overlap(corpus, read.held_out, held_out))
            if read.damage is not None:
                damages.append(read.damage)
        corpora.append(usage)
        progress("documents", done, len(every))
    compared = None if held_out is None else HeldOut(documents=len(held_out), overlapping=overlapping)
    return PathDocuments(tuple(corpora), compared, tuple(overlaps), tuple(damages))


@dataclass(frozen=True, slots=True)
class _Read:
    """What was read of the documents of one corpus.

    Attributes:
        touched: distinct documents with a token that was read; None if index and table are both unreadable.
        licences: tokens by licence of their documents, most first; None if the table cannot be read through.
        held_out: numbers of documents that are held out too.
        damage: why the table cannot be read through, None if it can.
    """

    touched: int | None
    licences: dict[str, int] | None
    held_out: list[int]
    damage: Finding | None


class _Rows:
    """The rows of a document table by parts, as far as they can be read; what follows then comes without rows.

    Attributes:
        damage: why a part cannot be read, or not be believed; None while all can.
    """

    def __init__(self, corpus: Corpus, columns: Sequence[str]) -> None:
        self._corpus = corpus
        self._columns = columns
        self.damage: EvidenceError | None = None

    def __iter__(self) -> Iterator[tuple[int, int, pa.RecordBatch | None]]:
        end = 0
        try:
            for first, batch in self._corpus.batches(*self._columns):
                end = first + len(batch)
                yield first, end, batch
        except EvidenceError as error:
            self.damage = error
        for first in range(end, self._corpus.num_documents, _CHUNK):
            yield first, min(first + _CHUNK, self._corpus.num_documents), None


def _read_documents(
    corpus: Corpus, reads: Sequence[DocumentReads], catalog: Catalog, held_out: HeldOutDocuments | None
) -> _Read:
    """Walks through the documents; once more by the table where the index contradicts itself on the way."""
    try:
        try:
            return _walk(corpus, reads, catalog, held_out)
        except EvidenceError as error:
            catalog.use_table(corpus, Finding.from_error(error, "corpus", corpus=corpus.name))
            return _walk(corpus, reads, catalog, held_out)
    except EvidenceError as error:
        return _Read(None, None, [], Finding.from_error(error, "corpus", corpus=corpus.name))


def _walk(corpus: Corpus, reads: Sequence[DocumentReads], catalog: Catalog, held_out: HeldOutDocuments | None) -> _Read:
    offsets, licences, touched, overlapping = catalog.offsets(corpus), Counter[str](), 0, []
    rows = _Rows(corpus, ("licence", "tokens") if held_out is None else ("licence", "tokens", "digest"))
    for first, end, batch in rows:
        part = offsets[first : end + 1]
        held, tokens = joined_reads(reads, part)
        touched += int(np.count_nonzero(held))
        if batch is None or rows.damage is not None:
            continue
        try:
            agree(corpus, range(first, end), np.diff(part), batch["tokens"])
            both = [] if held_out is None else held_out.among(batch["digest"]).tolist()
        except EvidenceError as error:
            rows.damage = error
            continue
        overlapping += [first + at for at in both if held[at]]
        names = pc.dictionary_encode(batch["licence"])
        # Whole numbers below 2**53: their sums as floats are exact.
        sums = np.bincount(names.indices, tokens, len(names.dictionary)).astype(np.int64)
        licences.update(dict(zip(names.dictionary.to_pylist(), sums.tolist(), strict=True)))
    if rows.damage is not None:
        return _Read(touched, None, overlapping, Finding.from_error(rows.damage, "corpus", corpus=corpus.name))
    most_first = sorted(licences.items(), key=lambda item: (-item[1], item[0]))
    return _Read(touched, {name: count for name, count in most_first if count}, overlapping, None)


def _overlap(corpus: Corpus, documents: Sequence[int], held_out: HeldOutDocuments) -> Finding:
    first = corpus.document(documents[0])
    text = (
        f"{corpus.directory}: {len(documents)} documents that were read are held out too, the first is {first['id']}, "
        f"held out as {held_out.name_of(first['digest'])}; validation and evaluation measure what was trained on: "
        "`dvc repro -f curate` splits anew"
    )
    return Finding("corpus", text, corpus=corpus.name, document=first["id"])


def curation_of(corpus: Corpus) -> tuple[CurationStep, ...]:
    """The decisions of curation that a corpus's manifest holds, summed by step."""
    return tuple(
        CurationStep(str(step["step"]), int(step["kept"]), int(step["dropped"]))
        for step in corpus.manifest.get("curation", ())
        if "kept" in step
    )


def licence_totals(corpora: Iterable[CorpusUsage]) -> dict[str, int]:
    """Tokens read by licence over all corpora, most first; missing licences count as `unknown`."""
    totals: dict[str, int] = defaultdict(int)
    for usage in corpora:
        for licence, tokens in ({"unknown": usage.tokens} if usage.licences is None else usage.licences).items():
            totals[licence] += tokens
    return dict(sorted(totals.items(), key=lambda item: (-item[1], item[0])))
