"""What a path read of each corpus: samples, tokens, epochs, documents, licences; and what it must not have read."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from treering.audit.path import Piece
from treering.audit.report import CorpusUsage, CurationStep, Finding, HeldOut
from treering.audit.shelf import Shelf
from treering.config.resolve import ResolvedBlend
from treering.data.corpus import Corpus
from treering.data.order import DataOrder
from treering.errors import EvidenceError, TreeringError
from treering.project import Project


@dataclass(frozen=True, slots=True)
class _Range:
    """Samples [lo, hi) of one data order that the path read."""

    blend: ResolvedBlend
    order: DataOrder
    lo: int
    hi: int


def _ranges(pieces: Sequence[Piece], shelf: Shelf, *, documents: bool) -> list[_Range]:
    """What the path read, attempts that go on in one blend joined."""
    ranges: list[_Range] = []
    for piece in pieces:
        lo, hi = piece.sample_range
        if ranges and ranges[-1].blend.digest == piece.blend.digest and ranges[-1].hi == lo:
            ranges[-1] = replace(ranges[-1], hi=hi)
        else:
            order = shelf.order(piece.blend) if documents else DataOrder(piece.blend)
            ranges.append(_Range(piece.blend, order, lo, hi))
    return ranges


@dataclass(frozen=True, slots=True)
class PathUsage:
    """What a path read.

    Attributes:
        corpora: by corpus, in the blends' order.
        touched: by corpus digest, which documents: bool [num_documents]; corpora at hand alone.
    """

    corpora: tuple[CorpusUsage, ...]
    touched: Mapping[str, NDArray[np.bool_]]


def path_usage(pieces: Sequence[Piece], shelf: Shelf, documents: bool = True) -> PathUsage:
    """What a path read of each corpus, by the data order.

    Args:
        pieces: the path.
        shelf: the corpora at hand.
        documents: whether to look at documents: which were touched, tokens by licence. That takes seconds for hundreds
            of millions of them; samples, tokens and epochs take milliseconds, whatever their number.
    """
    places: dict[str, list[tuple[_Range, int]]] = {}
    for each in _ranges(pieces, shelf, documents=documents):
        for position, component in enumerate(each.blend.components):
            places.setdefault(component.digest or component.corpus, []).append((each, position))
    touched: dict[str, NDArray[np.bool_]] = {}
    return PathUsage(
        tuple(_corpus_usage(found, shelf, touched, documents=documents) for found in places.values()), touched
    )


def _corpus_usage(
    places: Sequence[tuple[_Range, int]], shelf: Shelf, touched: dict[str, NDArray[np.bool_]], *, documents: bool
) -> CorpusUsage:
    """Adds up what was read of one corpus; puts the documents touched into `touched`."""
    last, last_position = places[-1]
    component = last.blend.components[last_position]
    corpus = shelf.corpora.get(component.digest or "")
    samples = tokens = 0
    planned = realised = Fraction(0)
    looked_into = corpus if documents else None
    document_tokens = np.zeros(0 if looked_into is None else looked_into.num_documents, dtype=np.int64)
    for each, position in places:
        order = each.order
        epoch_samples = order.components[position].num_samples
        count = order.count(position, each.hi) - order.count(position, each.lo)
        samples += count
        tokens += count * order.sequence_length
        realised += Fraction(count, epoch_samples)
        planned += Fraction(each.blend.components[position].weight) * (each.hi - each.lo) / epoch_samples
        if looked_into is not None:
            held, read = order.document_reads(position, order.read_counts(position, each.lo, each.hi))
            touched[looked_into.digest] = touched.get(looked_into.digest, np.zeros_like(held)) | held
            document_tokens += read
    return CorpusUsage(
        corpus=component.corpus,
        digest=component.digest,
        licence=None if corpus is None else str(corpus.manifest["licence"]),
        weight=component.weight,
        samples=samples,
        tokens=tokens,
        planned_epochs=float(planned),
        realised_epochs=float(realised),
        documents_touched=None if looked_into is None else int(np.count_nonzero(touched[looked_into.digest])),
        num_documents=component.num_documents,
        unread_tokens=last.order.components[last_position].unread_tokens,
        path=None if corpus is None else str(corpus.directory),
        licences=None if looked_into is None else _by_licence(looked_into, document_tokens),
        curation=() if corpus is None else curation_of(corpus),
    )


def _by_licence(corpus: Corpus, document_tokens: NDArray[np.int64]) -> dict[str, int] | None:
    """Tokens read by licence of their documents, most first; None if the document table cannot be read."""
    try:
        licences = corpus.column("licence")
    except EvidenceError:
        return None
    if len(licences) != len(document_tokens):
        return None
    sums = pa.table({"licence": licences, "tokens": document_tokens}).group_by("licence").aggregate([("tokens", "sum")])
    found = zip(sums.column("licence").to_pylist(), sums.column("tokens_sum").to_pylist(), strict=True)
    return dict(sorted(((name, count) for name, count in found if count), key=lambda item: (-item[1], item[0])))


def curation_of(corpus: Corpus) -> tuple[CurationStep, ...]:
    """The decisions of curation that a corpus's manifest holds, summed by step."""
    return tuple(
        CurationStep(str(step["step"]), int(step["kept"]), int(step["dropped"]))
        for step in corpus.manifest.get("curation", ())
        if "kept" in step
    )


def licence_totals(corpora: Iterable[CorpusUsage]) -> dict[str, int]:
    """Tokens read by licence over all corpora, most first; what is not at hand counts as `unknown`."""
    totals: dict[str, int] = defaultdict(int)
    for usage in corpora:
        for licence, tokens in ({"unknown": usage.tokens} if usage.licences is None else usage.licences).items():
            totals[licence] += tokens
    return dict(sorted(totals.items(), key=lambda item: (-item[1], item[0])))


def check_held_out(project: Project, shelf: Shelf, usage: PathUsage) -> tuple[HeldOut | None, list[Finding]]:
    """Looks for documents that were read and also stand on the held-out side, equal token by token.

    Returns:
        How many were compared, None where no held-out corpus is at hand; and a finding for each corpus with such.
    """
    held_out: dict[str, str] = {}
    for folder in sorted(project.corpora.glob("heldout/*/manifest.json")):
        with suppress(TreeringError):
            corpus = Corpus.open(folder.parent)
            for digest, name in zip(corpus.column("digest").to_pylist(), corpus.column("id").to_pylist(), strict=True):
                held_out[digest] = f"{corpus.name}:{name}"
    if not held_out:
        return None, []
    findings, overlapping = [], 0
    wanted = pa.array(sorted(held_out), pa.string())
    for digest, touched in usage.touched.items():
        corpus = shelf.corpora[digest]
        with suppress(EvidenceError):
            column = corpus.column("digest")
            both = np.flatnonzero(np.asarray(pc.is_in(column, wanted)) & touched)
            overlapping += len(both)
            if len(both):
                first = int(both[0])
                text = (
                    f"{corpus.directory}: {len(both)} documents that were read are held out too, the first is "
                    f"{corpus.document(first)['id']}, held out as {held_out[column[first].as_py()]}; "
                    "validation and evaluation measure what was trained on: `dvc repro -f curate` splits anew"
                )
                findings.append(Finding("corpus", text, corpus=corpus.name, document=corpus.document(first)["id"]))
    return HeldOut(documents=len(held_out), overlapping=overlapping), findings
