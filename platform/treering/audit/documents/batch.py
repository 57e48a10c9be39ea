"""What was in the batch: the documents of one step, with their text, cut from the corpora by the data order."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from treering.audit.corpora.catalog import Catalog, find_corpora
from treering.audit.corpora.content import batch_digests, token_map
from treering.audit.corpora.stored import stored_tokenizer
from treering.audit.evidence.recovery import HELPS
from treering.audit.evidence.step import FoundStep, find_step
from treering.audit.report import Finding, Gap, Level, json_fields, lowest
from treering.config.canonical import digest_file
from treering.config.layout import Layout
from treering.config.resolved_blend import ResolvedBlend
from treering.data.corpus.corpus import BIN, Corpus
from treering.data.corpus.ranged import RangedCorpus
from treering.data.corpus.text import Detokenizer
from treering.data.order.contract import Sample
from treering.data.order.spans import Span
from treering.errors import EvidenceError, NotFoundError
from treering.project import Project
from treering.runlog.directory import RunDirectory


@dataclass(frozen=True, slots=True)
class BatchDocument:
    """A part of a document that a sample holds.

    Attributes:
        corpus: name of the corpus.
        document: id of the document, `#number` where the document table cannot be read.
        number: its number in the corpus.
        source: URI of the file that it came from, `unknown` without the table.
        licence: its licence, `unknown` without the table.
        start: first token of the part, counted in the document.
        end: token after its last one.
        num_tokens: tokens of the whole document, the end-of-document token included.
        text: the part's text, None if the tokens or the tokenizer are missing.
    """

    corpus: str
    document: str
    number: int
    source: str
    licence: str
    start: int
    end: int
    num_tokens: int
    text: str | None


@dataclass(frozen=True, slots=True)
class BatchSample:
    """One sample of a batch.

    Attributes:
        g: its number in the data order.
        corpus: where it comes from.
        epoch: how often all samples of that corpus had been read before.
        index: its number inside the corpus.
        first_token: its first token in the corpus.
        end_token: the token after its last one.
        replica: data-parallel replica that read it, None where the layout is not known.
        micro_batch: which of the replica's micro-batches it was in, from 0; None likewise.
        documents: the parts of documents that it holds, in order; empty if they are unknown.
    """

    g: int
    corpus: str
    epoch: int
    index: int
    first_token: int
    end_token: int
    replica: int | None
    micro_batch: int | None
    documents: tuple[BatchDocument, ...]


@dataclass(frozen=True, slots=True)
class StepBatch:
    """The batch of one step.

    Attributes:
        run: id of the run.
        attempt: number of the newest attempt that did the step, None where no ring shows that one did.
        step: the step.
        recorded_digest: batch digest in the ring, None without one.
        recomputed_digest: what the corpora give, None if a corpus is missing.
        rank: the rank whose samples these are, None for all.
        samples: the samples in their order.
        level: level of assurance reached.
        gaps: what is missing, and what is answered without it.
    """

    run: str
    attempt: int | None
    step: int
    recorded_digest: str | None
    recomputed_digest: str | None
    rank: int | None
    samples: tuple[BatchSample, ...]
    level: Level
    gaps: tuple[Gap, ...]

    @property
    def content_bound(self) -> bool:
        """Whether the corpora give the digest that the ring recorded."""
        return self.recorded_digest is not None and self.recorded_digest == self.recomputed_digest

    def to_json(self) -> dict[str, Any]:
        """The batch as JSON values."""
        return {**json_fields(self), "content_bound": self.content_bound}


def step_batch(run: RunDirectory, step: int, project: Project, rank: int | None = None) -> StepBatch:
    """The documents of a step's batch, read from the corpora by the data order.

    The order needs no corpus: without one, its samples are told without their documents; without a ring, what schedule
    and blend give the step.

    Args:
        run: the run.
        step: the step; of several attempts that did it the newest counts.
        project: where corpora are.
        rank: a rank of that attempt, for the samples of its replica alone; None for the whole batch.

    Raises:
        NotFoundError: the run has no such step, or the attempt had no such rank.
        EvidenceError: the run's config is missing, or contradicts a corpus's manifest.
    """
    found = find_step(run, step, project)
    piece, blend = found.piece, found.piece.blend
    catalog = find_corpora(project, [blend], stored=True)
    gaps = [*found.gaps, *(_without_corpus(finding, found.level) for finding in catalog.missing.values())]
    order = catalog.order(blend)
    lo, hi = piece.sample_range
    replica = None
    if rank is not None and found.layout is not None:
        replica = _replica(found.layout, rank, found)
    elif rank is not None:
        missing = f"{piece.run.path}: nothing says in which layout step {step} was done; {HELPS}"
        gaps.append(Gap(missing, "the whole batch, not that of one rank", found.level))
        rank = None
    shown = [
        (sample, micro_batch, its)
        for sample, (micro_batch, its) in zip(order.samples_with_spans(lo, hi), _places(found), strict=True)
        if replica in (None, its)
    ]
    samples = described_samples(shown, blend, catalog, project, gaps)
    at_hand = [
        catalog.corpora[each.digest or ""] for each in blend.components if (each.digest or "") in catalog.corpora
    ]
    recorded = None if found.ring is None else found.ring.batch_digest
    recomputed = next(batch_digests(piece, at_hand, step, step)) if len(at_hand) == len(blend.components) else None
    bound = recorded is not None and recorded == recomputed
    return StepBatch(
        run=piece.run.id,
        attempt=None if piece.attempt is None else piece.attempt.number,
        step=step,
        recorded_digest=recorded,
        recomputed_digest=recomputed,
        rank=rank,
        samples=samples,
        level=lowest(Level.CONTENT_BOUND if bound else found.level, gaps),
        gaps=tuple(gaps),
    )


def described_samples(
    shown: Sequence[tuple[Sample, int | None, int | None]],
    blend: ResolvedBlend,
    catalog: Catalog,
    project: Project,
    gaps: list[Gap],
) -> tuple[BatchSample, ...]:
    """Samples with their documents.

    Args:
        shown: the samples, each with its micro-batch and its replica.
        blend: whose samples they are.
        catalog: its corpora.
        project: where the tokenizer is.
        gaps: a gap is appended for whatever is missing.
    """
    texts = _Texts(project, blend, catalog, gaps)
    texts.read([sample for sample, _, _ in shown], gaps)
    return tuple(_sample(sample, blend, texts, its, micro_batch) for sample, micro_batch, its in shown)


def _places(found: FoundStep) -> Iterator[tuple[int | None, int | None]]:
    """Micro-batch and replica of each sample of a step, in order."""
    lo, hi = found.piece.sample_range
    layout = found.layout
    for position in range(hi - lo):
        yield (None, None) if layout is None else layout.place(position)


def _replica(layout: Layout, rank: int, found: FoundStep) -> int:
    """The replica of a rank of the attempt that did a step.

    Raises:
        NotFoundError: the layout has no such rank.
    """
    if not 0 <= rank < layout.world_size:
        attempt = found.piece.attempt
        raise NotFoundError(
            f"{found.piece.run.path if attempt is None else attempt.path}: no rank {rank}, layout {layout} "
            f"(TP x PP x DP) has 0 to {layout.world_size - 1}"
        )
    return layout.coordinates(rank).data


def _without_corpus(finding: Finding, level: Level) -> Gap:
    answered = f"which samples of corpus {finding.corpus} were read, by epoch and token range; never another's text"
    return Gap(finding.text, answered, level, corpus=finding.corpus)


class _Texts:
    """The documents of a batch, as far as tables, tokens and tokenizer are available.

    Args:
        project: where the tokenizer is.
        blend: the blend.
        catalog: its corpora.
        gaps: a gap is appended for whatever is missing.
    """

    def __init__(self, project: Project, blend: ResolvedBlend, catalog: Catalog, gaps: list[Gap]) -> None:
        self._catalog = catalog
        self._text_of: Detokenizer | None = None
        try:
            self._text_of = _detokenizer(project, blend.tokenizer)
        except EvidenceError as error:
            answered = "samples and documents, without text"
            gaps.append(Gap.from_error(error, answered, Level.CONTENT_BOUND, project.tokenizer))
        self._corpora: dict[int, Corpus] = {}
        self._rows: dict[tuple[int, int], tuple[dict[str, Any], int]] = {}
        self._tokens: dict[int, Any] = {}
        for position, component in enumerate(blend.components):
            digest = component.digest or ""
            corpus = catalog.corpora.get(digest) or catalog.partial.get(digest)
            if corpus is None:
                continue
            self._corpora[position] = corpus
            if isinstance(corpus, RangedCorpus) or (corpus.directory / BIN).exists():
                self._tokens[position] = token_map(corpus)

    def read(self, samples: Iterable[Sample], gaps: list[Gap]) -> None:
        """Reads the rows of the documents that some samples hold parts of, a row group once for all."""
        numbers: dict[int, set[int]] = {}
        for sample in samples:
            numbers.setdefault(sample.component, set()).update(span.document for span in sample.spans)
        for component, each in numbers.items():
            if component not in self._corpora or not each:
                continue
            asked, corpus = np.array(sorted(each), dtype=np.int64), self._corpora[component]
            rows, problem = self._catalog.described(corpus, asked)
            if problem is not None:
                answered = f"documents of corpus {corpus.name} by their number in the index, without source and licence"
                gaps.append(Gap.from_error(problem, answered, Level.RECORDED, corpus=corpus.name))
            firsts = self._catalog.offsets(corpus)[asked].tolist()
            for number, row, first in zip(asked.tolist(), rows, firsts, strict=True):
                self._rows[component, number] = row, first

    def part(self, component: int, span: Span) -> BatchDocument:
        """A part of a document with its text."""
        corpus = self._corpora[component]
        row, first = self._rows[component, span.document]
        tokens = self._tokens.get(component)
        text = None
        if tokens is not None and self._text_of is not None:
            part = tokens[first + span.start : first + span.end].tolist()
            text = self._text_of.part(part, begins=span.start == 0)
        return BatchDocument(
            corpus=corpus.name,
            document=row["id"],
            number=span.document,
            source=row["source"],
            licence=row["licence"],
            start=span.start,
            end=span.end,
            num_tokens=row["tokens"],
            text=text,
        )


def _detokenizer(project: Project, digest: str | None) -> Detokenizer:
    """Turns tokens back into text with the tokenizer that cut the corpora.

    Raises:
        EvidenceError: the tokenizer is missing or another one.
    """
    path = project.tokenizer
    found = digest_file(path) if path.exists() else "nothing"
    if found != digest:
        stored, unread = stored_tokenizer(project, digest or "")
        if stored is not None:
            return Detokenizer(stored)
        raise EvidenceError(
            f"{path}: found {found}, the run's corpora were cut by tokenizer {digest}; "
            f"`dvc checkout` of the matching commit brings it back{unread}",
            file=path,
            found=found,
            expected=digest,
            remedy="`dvc checkout` of the matching commit",
        )
    return Detokenizer(path)


def _sample(
    sample: Sample, blend: ResolvedBlend, texts: _Texts, replica: int | None, micro_batch: int | None
) -> BatchSample:
    first = sample.index * blend.sequence_length
    return BatchSample(
        g=sample.g,
        corpus=blend.components[sample.component].corpus,
        epoch=sample.epoch,
        index=sample.index,
        first_token=first,
        end_token=first + blend.sequence_length + 1,
        replica=replica,
        micro_batch=micro_batch,
        documents=tuple(texts.part(sample.component, span) for span in sample.spans),
    )
