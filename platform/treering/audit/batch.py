"""What was in the batch: the documents of one step, with their text, cut from the corpora by the data order."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from treering.audit.content import batch_digests
from treering.audit.path import Stretch
from treering.audit.shelf import Shelf, find_corpora
from treering.config.canonical import digest_file, short
from treering.config.resolve import RUN_ID_LENGTH
from treering.data.corpus import Corpus
from treering.data.order import Sample
from treering.data.text import TextOf
from treering.errors import EvidenceError, NotFoundError
from treering.project import Project
from treering.runlog.directory import PathSegment, RunDirectory
from treering.runlog.records import Layout
from treering.runlog.ring import Ring


@dataclass(frozen=True, slots=True)
class BatchDocument:
    """A part of a document that a sample holds.

    Attributes:
        corpus: name of the corpus.
        document: id of the document.
        number: its number in the corpus.
        source: URI of the file that it came from.
        licence: its licence.
        start: first token of the part, counted in the document.
        end: token after its last one.
        num_tokens: tokens of the whole document, the end-of-document token included.
        text: the part's text.
    """

    corpus: str
    document: str
    number: int
    source: str
    licence: str
    start: int
    end: int
    num_tokens: int
    text: str


@dataclass(frozen=True, slots=True)
class BatchSample:
    """One sample of a batch.

    Attributes:
        g: its number in the data order.
        corpus: where it comes from.
        epoch: how often all samples of that corpus had been read before.
        index: its number inside the corpus.
        replica: data-parallel replica that read it.
        micro_batch: which of the replica's micro-batches it was in, from 0.
        documents: the parts of documents that it holds, in order.
    """

    g: int
    corpus: str
    epoch: int
    index: int
    replica: int
    micro_batch: int
    documents: tuple[BatchDocument, ...]


@dataclass(frozen=True, slots=True)
class StepBatch:
    """The batch of one step.

    Attributes:
        run: id of the run.
        attempt: number of the newest attempt that did the step.
        step: the step.
        recorded_digest: batch digest in the ring.
        recomputed_digest: what the corpora give.
        rank: the rank whose samples these are, None for all.
        samples: the samples in their order.
    """

    run: str
    attempt: int
    step: int
    recorded_digest: str
    recomputed_digest: str
    rank: int | None
    samples: tuple[BatchSample, ...]

    @property
    def content_bound(self) -> bool:
        """Whether the corpora give the digest that the ring recorded."""
        return self.recorded_digest == self.recomputed_digest

    def to_json(self) -> dict[str, Any]:
        """The batch as JSON values."""
        return {**asdict(self), "content_bound": self.content_bound}


def step_batch(run: RunDirectory, step: int, project: Project, rank: int | None = None) -> StepBatch:
    """The documents of a step's batch, read from the corpora by the data order.

    Args:
        run: the run.
        step: the step; of several attempts that did it the newest counts.
        project: where corpora lie.
        rank: a rank of that attempt, for the samples of its replica alone; None for the whole batch.

    Raises:
        NotFoundError: no attempt of the run did that step, or it had no such rank.
        EvidenceError: the run log is damaged, a corpus of the blend is not at hand, or the tokenizer is another one.
    """
    segment, ring = find_ring(run, step)
    resolved = run.resolved
    stretch = Stretch(segment, step, step, resolved.schedule, resolved.blend)
    shelf = find_corpora(project, [resolved.blend])
    if shelf.missing:
        raise EvidenceError("; ".join(finding.text for finding in shelf.missing.values()))
    corpora = [shelf.corpora[component.digest or ""] for component in resolved.blend.components]
    order = shelf.order(resolved.blend)
    decode = _decoder(project, resolved.blend.tokenizer)
    lo, hi = stretch.sample_range
    layout = segment.attempt.header.layout
    replica = None if rank is None else _replica(layout, rank, segment)
    places = (divmod(position // layout.micro_batch_size, layout.data) for position in range(hi - lo))
    shown = [
        (sample, micro_batch, its)
        for sample, (micro_batch, its) in zip(order.samples_with_spans(lo, hi), places, strict=True)
        if replica in (None, its)
    ]
    rows = sample_rows([sample for sample, _, _ in shown], corpora, shelf)
    return StepBatch(
        run=resolved.run_id,
        attempt=segment.attempt.number,
        step=step,
        recorded_digest=ring.batch_digest,
        recomputed_digest=next(batch_digests(stretch, corpora, step, step)),
        rank=rank,
        samples=tuple(
            _sample(sample, corpora[sample.component], rows, decode, replica=its, micro_batch=micro_batch)
            for sample, micro_batch, its in shown
        ),
    )


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """A document that a sample holds a part of.

    Attributes:
        row: its row of the document table.
        first_token: where it begins in its corpus.
    """

    row: dict[str, Any]
    first_token: int


def sample_rows(
    samples: Iterable[Sample], corpora: Sequence[Corpus], shelf: Shelf
) -> dict[tuple[int, int], DocumentRow]:
    """The documents that some samples hold parts of, by component and number; a row group is read once for all.

    Raises:
        EvidenceError: a document table cannot be read there, or it and the index disagree.
    """
    numbers: dict[int, set[int]] = {}
    for sample in samples:
        numbers.setdefault(sample.component, set()).update(span.document for span in sample.spans)
    found = {}
    for component, each in numbers.items():
        asked, corpus = np.array(sorted(each), dtype=np.int64), corpora[component]
        firsts = shelf.offsets(corpus)[asked].tolist()
        for number, row, first in zip(asked.tolist(), shelf.documents(corpus, asked), firsts, strict=True):
            found[component, number] = DocumentRow(row, first)
    return found


def _replica(layout: Layout, rank: int, segment: PathSegment) -> int:
    """The replica of a rank: ranks count tensor-parallel ranks fastest, then replicas, then pipeline stages."""
    if not 0 <= rank < layout.world_size:
        raise NotFoundError(
            f"{segment.attempt.path}: no rank {rank}, layout {layout} (TP x PP x DP) has 0 to {layout.world_size - 1}"
        )
    return rank // layout.tensor % layout.data


def find_ring(run: RunDirectory, step: int) -> tuple[PathSegment, Ring]:
    """The ring of a step in the newest attempt that laid one."""
    last = 0
    for attempt in reversed(run.attempts()):
        for ring in attempt.rings():
            if ring.step == step:
                return PathSegment(run, attempt, step), ring
            last = max(last, ring.step)
    start = run.resolved.recipe.start_from
    if start is not None and step <= start.step:
        ancestor = short(start.run, RUN_ID_LENGTH)
        raise NotFoundError(
            f"{run.path}: begins after step {start.step} of run {ancestor}; `treering batch {ancestor} {step}` shows it"
        )
    raise NotFoundError(
        f"{run.path}: no attempt did step {step}; its rings go to step {last}, `treering show {run.id}` shows them"
    )


def _decoder(project: Project, digest: str | None) -> Callable[[list[int]], str]:
    """Turns tokens back into text with the tokenizer that cut the corpora.

    Raises:
        EvidenceError: another tokenizer, or none, lies in its place.
    """
    path = project.tokenizer
    found = digest_file(path) if path.exists() else "nothing"
    if found != digest:
        raise EvidenceError(
            f"{path}: {found} lies there, the run's corpora were cut by tokenizer {digest}; "
            "`dvc checkout` of the matching commit brings it back"
        )
    return TextOf(path).decode


def _sample(
    sample: Sample,
    corpus: Corpus,
    rows: Mapping[tuple[int, int], DocumentRow],
    decode: Callable[[list[int]], str],
    *,
    replica: int,
    micro_batch: int,
) -> BatchSample:
    documents = []
    for span in sample.spans:
        found = rows[sample.component, span.document]
        row, first = found.row, found.first_token
        documents.append(
            BatchDocument(
                corpus=corpus.name,
                document=row["id"],
                number=span.document,
                source=row["source"],
                licence=row["licence"],
                start=span.start,
                end=span.end,
                num_tokens=row["tokens"],
                text=decode(corpus.tokens(first + span.start, first + span.end).tolist()),
            )
        )
    return BatchSample(sample.g, corpus.name, sample.epoch, sample.index, replica, micro_batch, tuple(documents))
