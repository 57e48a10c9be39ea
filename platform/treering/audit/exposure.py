"""From documents to the steps that read them, in every run, on and off the paths of its checkpoints."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treering.audit.content import Progress, quiet
from treering.audit.path import Stretch, stretches_to
from treering.audit.shelf import Shelf, find_corpora
from treering.config.schedule import Schedule
from treering.data.corpus import Corpus
from treering.data.order import Exposures
from treering.errors import EvidenceError
from treering.project import Project
from treering.runlog.directory import AttemptDirectory, CheckpointDirectory, PathSegment, RunDirectory, find_runs

_ROWS = 4096
"""Rows of a document table that are looked up together."""


@dataclass(frozen=True, slots=True)
class Exposure:
    """One sample that held a part of a document.

    Attributes:
        run: id of the run that read it.
        attempt: number of the attempt.
        step: the step.
        sample: number of the sample in the run's data order.
        position: of the sample in the step's batch, from 0.
        replica: data-parallel replica that read it.
        micro_batch: which of the replica's micro-batches it was in, from 0.
        epoch: how often all samples of the corpus had been read before.
        start: first token of the part, counted in the document.
        end: token after its last one; the overlapping label counts.
    """

    run: str
    attempt: int
    step: int
    sample: int
    position: int
    replica: int
    micro_batch: int
    epoch: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TracedDocument:
    """A document and everything that read it.

    Attributes:
        corpus: name of its corpus.
        corpus_digest: identity of its corpus.
        document: its id.
        number: its number in the corpus.
        source: URI of the file that it came from.
        licence: its licence.
        num_tokens: its tokens, the end-of-document token included.
        exposures: by run, attempt and step.
    """

    corpus: str
    corpus_digest: str
    document: str
    number: int
    source: str
    licence: str
    num_tokens: int
    exposures: tuple[Exposure, ...]


@dataclass(frozen=True, slots=True)
class CheckpointExposure:
    """What a checkpoint saw of some documents.

    Attributes:
        run: id of its run.
        step: its step.
        path: its folder.
        documents: how many of them its path read a part of.
        exposures: samples on its path that hold a part of one, counted for each document.
        first_step: first such step, None if there is none.
        last_step: last such step.
        off_path: exposures up to its step by attempts, or steps of them, that its path left: read, but not by it.
    """

    run: str
    step: int
    path: str
    documents: int
    exposures: int
    first_step: int | None
    last_step: int | None
    off_path: int

    @property
    def clean(self) -> bool:
        """Whether its path read nothing of them."""
        return not self.exposures

    @property
    def superseded(self) -> bool:
        """Whether a later attempt wrote the checkpoint of this step again; it is whole, but nothing goes on from it."""
        return Path(self.path).parent.name.startswith("superseded-")


@dataclass(frozen=True, slots=True)
class _Read:
    """What one attempt read of one corpus's documents: arrays of one length.

    Attributes:
        stretch: all steps of the attempt.
        digest: identity of the corpus.
        documents: their numbers.
        found: the exposures; `item` is a position in `documents`.
        steps: the step of each exposure.
    """

    stretch: Stretch
    digest: str
    documents: NDArray[np.int64]
    found: Exposures
    steps: NDArray[np.int64]


@dataclass(slots=True)
class Exposed:
    """What all runs of a project read of some documents.

    Attributes:
        documents: numbers of the documents that are meant, by digest of their corpus.
        shelf: the corpora at hand.
        runs: the runs that were asked.
        unanswered: what could not be looked into, and what would help.
    """

    documents: Mapping[str, NDArray[np.int64]]
    shelf: Shelf
    runs: Sequence[RunDirectory]
    unanswered: list[str]
    _by_attempt: dict[Path, list[_Read]] = field(default_factory=dict, repr=False)

    @property
    def num_documents(self) -> int:
        """How many documents are meant, those of each corpus counted."""
        return sum(len(numbers) for numbers in self.documents.values())

    def reads_of(self, segment: PathSegment) -> list[_Read]:
        """What one attempt read, on a path or not; worked out once.

        Of an attempt whose records do not hold nothing is known: it is named in `unanswered`.
        """
        key = segment.attempt.path.resolve()
        if key not in self._by_attempt:
            self._by_attempt[key] = []
            try:
                self._by_attempt[key] += self._read(segment)
            except EvidenceError as error:
                self.unanswered.append(f"{segment.attempt.path}: {error}")
        return self._by_attempt[key]

    def _read(self, segment: PathSegment) -> Iterator[_Read]:
        stretch, order = attempt_stretch(segment.run, segment.attempt), None
        if stretch is None:
            return
        for position, component in enumerate(stretch.blend.components):
            numbers = self.documents.get(component.digest or "")
            if numbers is None or not len(numbers):
                continue
            order = order or self.shelf.order(stretch.blend)
            found = order.document_exposures(position, numbers, *stretch.sample_range)
            yield _Read(stretch, component.digest or "", numbers, found, steps_of(stretch.schedule, found.sample))

    def traced(self, limit: int | None = None) -> Iterator[TracedDocument]:
        """The documents, at most `limit` of them, with their exposures."""
        for digest, numbers in self.documents.items():
            corpus, wanted = self.shelf.corpora[digest], numbers[:limit]
            limit = None if limit is None else limit - len(wanted)
            for begin in range(0, len(wanted), _ROWS):
                part = wanted[begin : begin + _ROWS]
                rows, offsets = self.shelf.documents(corpus, part), self.shelf.offsets(corpus)[part].tolist()
                for item, (number, row, offset) in enumerate(zip(part.tolist(), rows, offsets, strict=True), begin):
                    yield self._document(corpus, item, number, row, offset)

    def _document(self, corpus: Corpus, item: int, number: int, row: Mapping[str, Any], offset: int) -> TracedDocument:
        found: list[Exposure] = []
        for run in self.runs:
            for attempt in run.attempts():
                for read in self.reads_of(PathSegment(run, attempt, None)):
                    if read.digest == corpus.digest:
                        found += _exposures(read, item, offset, row["tokens"])
        return TracedDocument(
            corpus=corpus.name,
            corpus_digest=corpus.digest,
            document=row["id"],
            number=number,
            source=row["source"],
            licence=row["licence"],
            num_tokens=row["tokens"],
            exposures=tuple(found),
        )

    def checkpoints(self) -> Iterator[CheckpointExposure]:
        """What every checkpoint of the runs saw, superseded ones too; what does not hold is named in `unanswered`."""
        for run in self.runs:
            for checkpoint in (*run.checkpoints(), *run.superseded()):
                try:
                    yield self.checkpoint(checkpoint)
                except EvidenceError as error:
                    self.unanswered.append(f"{checkpoint.path}: {error}")

    def checkpoint(self, checkpoint: CheckpointDirectory) -> CheckpointExposure:
        """What one checkpoint saw, on its path and off it.

        Raises:
            EvidenceError: a record on the way does not hold.
        """
        seen: dict[str, list[NDArray[np.int64]]] = {}
        steps: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)]
        off_path = 0
        path = stretches_to(checkpoint)
        left = {stretch.segment.attempt.path.resolve(): stretch.last_step for stretch in path}
        for stretch in path:
            for read in self.reads_of(stretch.segment):
                on = (read.steps >= stretch.first_step) & (read.steps <= stretch.last_step)
                seen.setdefault(read.digest, []).append(read.found.item[on])
                steps.append(read.steps[on])
        for attempt in checkpoint.run.attempts():
            for read in self.reads_of(PathSegment(checkpoint.run, attempt, None)):
                off = (read.steps > left.get(attempt.path.resolve(), 0)) & (read.steps <= checkpoint.step)
                off_path += int(np.count_nonzero(off))
        every = np.concatenate(steps)
        return CheckpointExposure(
            run=checkpoint.run.id,
            step=checkpoint.step,
            path=str(checkpoint.path),
            documents=sum(len(np.unique(np.concatenate(items))) for items in seen.values()),
            exposures=len(every),
            first_step=int(every.min()) if len(every) else None,
            last_step=int(every.max()) if len(every) else None,
            off_path=off_path,
        )


def seen_by(checkpoint: CheckpointDirectory, documents: Sequence[TracedDocument]) -> CheckpointExposure:
    """What a checkpoint saw of some documents, by exposures that were looked up, and perhaps sifted, before.

    Raises:
        EvidenceError: a record on the way to it does not hold.
    """
    run = checkpoint.run.id
    path = {
        (stretch.segment.run.id, stretch.segment.attempt.number): (stretch.first_step, stretch.last_step)
        for stretch in stretches_to(checkpoint)
    }
    steps: list[int] = []
    seen = off_path = 0
    for document in documents:
        before = len(steps)
        for each in document.exposures:
            first, last = path.get((each.run, each.attempt), (1, 0))
            if first <= each.step <= last:
                steps.append(each.step)
            elif each.run == run and each.step <= checkpoint.step:
                off_path += 1
        seen += len(steps) > before
    return CheckpointExposure(
        run=run,
        step=checkpoint.step,
        path=str(checkpoint.path),
        documents=seen,
        exposures=len(steps),
        first_step=min(steps, default=None),
        last_step=max(steps, default=None),
        off_path=off_path,
    )


def steps_of(schedule: Schedule, samples: NDArray[np.int64]) -> NDArray[np.int64]:
    """The step that reads each sample of the data order by a schedule: int64, shape as `samples`."""
    consumed = samples - schedule.skipped_samples
    starts, sizes, steps = (
        np.array([getattr(stage, name) for stage in schedule.stages], dtype=np.int64)
        for name in ("start_sample", "batch_size", "first_step")
    )
    stage = np.searchsorted(starts, consumed, side="right") - 1
    found: NDArray[np.int64] = steps[stage] + (consumed - starts[stage]) // sizes[stage]
    return found


def attempt_stretch(run: RunDirectory, attempt: AttemptDirectory) -> Stretch | None:
    """All steps that an attempt has laid a ring for, whether a path keeps them or not; None where there is none."""
    last, parent = attempt.last_step(), attempt.header.parent
    if not last:
        return None
    resolved = run.resolved
    first = resolved.first_step if parent is None else parent.step + 1
    return Stretch(PathSegment(run, attempt, last), first, last, resolved.schedule, resolved.blend)


def project_runs(project: Project) -> list[RunDirectory]:
    """All runs of a project, the published one with them where its own folder is gone."""
    runs = find_runs(project.runs)
    published = RunDirectory(project.published)
    if published.checkpoints() and published.id not in {run.path.name for run in runs}:
        runs.append(published)
    return runs


def corpora_of(project: Project, runs: Iterable[RunDirectory]) -> tuple[Shelf, list[str]]:
    """The corpora that runs read, and those that lie in the project unread; and what is not at hand, in words."""
    blends, unanswered = [], []
    for run in runs:
        try:
            blends.append(run.resolved.blend)
        except EvidenceError as error:
            unanswered.append(str(error))
    shelf = find_corpora(project, blends)
    for folder in sorted(project.corpora.glob("train/*/manifest.json")):
        try:
            corpus = Corpus.open(folder.parent)
        except EvidenceError as error:
            unanswered.append(str(error))
        else:
            shelf.corpora.setdefault(corpus.digest, corpus)
    return shelf, unanswered + [finding.text for finding in shelf.missing.values()]


def find_exposures(
    runs: Sequence[RunDirectory], documents: Mapping[str, NDArray[np.int64]], shelf: Shelf, progress: Progress = quiet
) -> Exposed:
    """Looks into every attempt of some runs for some documents.

    Args:
        runs: the runs, from `project_runs` for all of a project.
        documents: numbers of documents by digest of their corpus.
        shelf: the corpora, from `corpora_of`.
        progress: told about each attempt.
    """
    exposed = Exposed(documents, shelf, runs, [])
    segments = [PathSegment(run, attempt, None) for run in exposed.runs for attempt in run.attempts()]
    for done, segment in enumerate(segments, 1):
        exposed.reads_of(segment)
        progress("attempts", done, len(segments))
    return exposed


def _exposures(read: _Read, item: int, offset: int, num_tokens: int) -> Iterator[Exposure]:
    stretch, found = read.stretch, read.found
    run, header, length = stretch.segment.run.id, stretch.segment.attempt.header, stretch.blend.sequence_length
    lo, hi = np.searchsorted(found.item, [item, item + 1])
    for each in range(int(lo), int(hi)):
        step, sample = int(read.steps[each]), int(found.sample[each])
        position = sample - stretch.schedule.sample_range(step)[0]
        micro_batch, layout = position // header.layout.micro_batch_size, header.layout
        first = int(found.index[each]) * length
        yield Exposure(
            run=run,
            attempt=header.attempt,
            step=step,
            sample=sample,
            position=position,
            replica=micro_batch % layout.data,
            micro_batch=micro_batch // layout.data,
            epoch=int(found.epoch[each]),
            start=max(first - offset, 0),
            end=min(first + length + 1 - offset, num_tokens),
        )
