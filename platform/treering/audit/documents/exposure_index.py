"""From documents to the steps that read them, in every run, on and off the paths of its checkpoints."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treering.audit.corpora.catalog import Catalog, find_corpora
from treering.audit.documents.exposure import CheckpointExposure, Exposure, TracedDocument, checkpoint_exposure
from treering.audit.documents.readers import attempts_of, missing_corpora, readable_id, untold_steps
from treering.audit.evidence.recovery import RecoveredAncestry
from treering.audit.evidence.segments import Piece
from treering.audit.evidence.step import layout_of
from treering.audit.report import Gap, Level
from treering.config.schedule import Schedule
from treering.data.corpus.corpus import MANIFEST, Corpus
from treering.data.order.contract import Exposures
from treering.errors import EvidenceError
from treering.progress import Progress, quiet
from treering.project import Project
from treering.runlog.directory import RunDirectory
from treering.runlog.find import find_runs

_ROWS = 4096
"""Rows of a document table that are looked up together."""


@dataclass(frozen=True, slots=True)
class _Read:
    """What some steps read of one corpus's documents: arrays of one length.

    Attributes:
        piece: the steps: all of an attempt, or some that only the recipe tells of.
        digest: identity of the corpus.
        documents: their numbers.
        found: the exposures; `item` is a position in `documents`.
        steps: the step of each exposure.
    """

    piece: Piece
    digest: str
    documents: NDArray[np.int64]
    found: Exposures
    steps: NDArray[np.int64]


@dataclass(slots=True)
class ExposureIndex:
    """What all runs of a project read of some documents.

    Attributes:
        documents: numbers of the documents that are meant, by digest of their corpus.
        catalog: the available corpora.
        runs: the runs that were asked.
        ancestries: the ways to their checkpoints.
        pieces: all steps of their attempts, and those on paths that no available attempt did.
        gaps: what is missing, and what is answered without it.
    """

    documents: Mapping[str, NDArray[np.int64]]
    catalog: Catalog
    runs: Sequence[RunDirectory]
    ancestries: Sequence[RecoveredAncestry]
    pieces: Sequence[Piece]
    gaps: list[Gap]
    _reads: dict[tuple[str, int | None, int, int], list[_Read]] = field(default_factory=dict, repr=False)

    @property
    def num_documents(self) -> int:
        """How many documents are meant, those of each corpus counted."""
        return sum(len(numbers) for numbers in self.documents.values())

    def reads_of(self, piece: Piece) -> list[_Read]:
        """What some steps read; worked out once. Where no order can be made of their blend, that is a gap."""
        key = (*_place(piece), piece.first_step, piece.last_step)
        if key not in self._reads:
            self._reads[key] = []
            try:
                self._reads[key] += self._read(piece)
            except EvidenceError as error:
                self.gaps.append(Gap.from_error(error, "the other runs", Level.DECLARED, piece.run.path))
        return self._reads[key]

    def _read(self, piece: Piece) -> Iterator[_Read]:
        order = None
        for position, component in enumerate(piece.blend.components):
            numbers = self.documents.get(component.digest or "")
            if numbers is None or not len(numbers):
                continue
            order = order or self.catalog.order(piece.blend)
            found = order.document_exposures(position, numbers, *piece.sample_range)
            yield _Read(piece, component.digest or "", numbers, found, steps_of(piece.schedule, found.sample))

    def steps(self, digest: str, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The steps of all attempts that read some of the documents, one for each exposure."""
        steps = [np.empty(0, dtype=np.int64)]
        items = np.searchsorted(self.documents[digest], numbers)
        for read in (read for piece in self.pieces for read in self.reads_of(piece) if read.digest == digest):
            first, end = (np.searchsorted(read.found.item, items + more) for more in (0, 1))
            steps += [read.steps[lo:hi] for lo, hi in zip(first.tolist(), end.tolist(), strict=True)]
        return np.concatenate(steps)

    def traced(self, limit: int | None = None) -> Iterator[TracedDocument]:
        """The documents, at most `limit` of them, with their exposures."""
        for digest, numbers in self.documents.items():
            corpus, wanted = self.catalog.corpora[digest], numbers[:limit]
            limit = None if limit is None else limit - len(wanted)
            for begin in range(0, len(wanted), _ROWS):
                part = wanted[begin : begin + _ROWS]
                rows, offsets = self.catalog.documents(corpus, part), self.catalog.offsets(corpus)[part].tolist()
                for item, (number, row, offset) in enumerate(zip(part.tolist(), rows, offsets, strict=True), begin):
                    yield self._document(corpus, item, number, row, offset)

    def _document(self, corpus: Corpus, item: int, number: int, row: Mapping[str, Any], offset: int) -> TracedDocument:
        found: list[Exposure] = []
        for piece in self.pieces:
            for read in self.reads_of(piece):
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
        """What every checkpoint saw whose way is known, superseded ones too."""
        return map(self.checkpoint, self.ancestries)

    def checkpoint(self, ancestry: RecoveredAncestry) -> CheckpointExposure:
        """What one checkpoint saw, on its path and off it."""
        seen: dict[str, list[NDArray[np.int64]]] = {}
        steps: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)]
        whole = {_place(piece): piece for piece in self.pieces if piece.attempt is not None}
        for piece in ancestry.pieces:
            for read in self.reads_of(whole.get(_place(piece), piece)):
                on = (read.steps >= piece.first_step) & (read.steps <= piece.last_step)
                seen.setdefault(read.digest, []).append(read.found.item[on])
                steps.append(read.steps[on])
        off_path = 0
        for place, piece in whole.items():
            if place[0] == _place_of(ancestry.checkpoint.run):
                for read in self.reads_of(piece):
                    off_path += int(np.count_nonzero(_off(ancestry, place, read.steps)))
        documents = sum(len(np.unique(np.concatenate(items))) for items in seen.values())
        return checkpoint_exposure(ancestry, documents, np.concatenate(steps), off_path)


def _place_of(run: RunDirectory) -> str:
    return str(run.path.resolve())


def _place(piece: Piece) -> tuple[str, int | None]:
    """The run's folder and the attempt's number, which tell pieces of different attempts apart."""
    return _place_of(piece.run), None if piece.attempt is None else piece.attempt.number


def _off(ancestry: RecoveredAncestry, place: tuple[str, int | None], steps: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which steps of an attempt, up to a checkpoint's, are off its path: bool, shape as `steps`.

    Steps on the way that no record gives to an attempt are nobody's, and so not off it.
    """
    off = np.asarray(steps <= ancestry.step)
    for piece in ancestry.pieces:
        if _place(piece) == place:
            off &= steps > piece.last_step
        elif piece.attempt is None and _place_of(piece.run) == place[0]:
            off &= (steps < piece.first_step) | (steps > piece.last_step)
    return off


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


def project_runs(project: Project) -> list[RunDirectory]:
    """All runs of a project, the published one with them where its own folder, or the config in it, is gone."""
    runs = find_runs(project.runs)
    published = RunDirectory(project.published)
    if published.checkpoints() and readable_id(published) not in {run.path.name for run in runs}:
        runs.append(published)
    return runs


def corpora_of(project: Project, runs: Iterable[RunDirectory]) -> tuple[Catalog, list[str]]:
    """The corpora that runs read, the project's unread ones, and in words those that cannot be opened.

    Documents and what read them need no tokens: a corpus without tokens counts as available if its documents are.
    """
    blends, unanswered = [], []
    for run in runs:
        with suppress(EvidenceError):  # a run without a config is named where its attempts are looked into
            blends.append(run.resolved.blend)
    catalog = find_corpora(project, blends, stored=True)
    for digest, corpus in catalog.partial.items():
        with suppress(EvidenceError):
            corpus.documents([0], ("id",))
            catalog.offsets(corpus)
            catalog.corpora[digest] = corpus
    for folder in sorted(project.corpora.glob(f"train/*/{MANIFEST}")):
        try:
            corpus = Corpus.open(folder.parent)
        except EvidenceError as error:
            unanswered.append(str(error))
        else:
            catalog.corpora.setdefault(corpus.digest, corpus)
    return catalog, unanswered


def find_exposures(
    runs: Sequence[RunDirectory],
    documents: Mapping[str, NDArray[np.int64]],
    catalog: Catalog,
    progress: Progress = quiet,
    ancestries: Sequence[RecoveredAncestry] = (),
) -> ExposureIndex:
    """Looks into every attempt of some runs for some documents.

    Args:
        runs: the runs, from `project_runs` for all of a project.
        documents: numbers of documents by digest of their corpus.
        catalog: the corpora, from `corpora_of`.
        progress: is called for each attempt.
        ancestries: the ways to the checkpoints that are asked about, from `recover_ancestries`.
    """
    pieces: list[Piece] = []
    gaps = [
        *(each for ancestry in ancestries for each in ancestry.gaps),
        *missing_corpora(catalog, ancestries),
    ]
    for run in runs:
        mine, missing = attempts_of(run)
        pieces += mine
        gaps += missing
    pieces += list(untold_steps((piece for ancestry in ancestries for piece in ancestry.pieces), pieces))
    exposed = ExposureIndex(documents, catalog, runs, ancestries, pieces, gaps)
    for done, piece in enumerate(pieces, 1):
        exposed.reads_of(piece)
        progress("attempts", done, len(pieces))
    return exposed


def _exposures(read: _Read, item: int, offset: int, num_tokens: int) -> Iterator[Exposure]:
    piece, found = read.piece, read.found
    attempt, length = piece.attempt, piece.blend.sequence_length
    layout = None if attempt is None else layout_of(piece.run, attempt)
    lo, hi = np.searchsorted(found.item, [item, item + 1])
    for each in range(int(lo), int(hi)):
        step, sample = int(read.steps[each]), int(found.sample[each])
        position = sample - piece.schedule.sample_range(step)[0]
        place = None if layout is None else layout.place(position)
        first = int(found.index[each]) * length
        yield Exposure(
            run=piece.run.id,
            attempt=None if attempt is None else attempt.number,
            step=step,
            sample=sample,
            position=position,
            replica=None if place is None else place[1],
            micro_batch=None if place is None else place[0],
            epoch=int(found.epoch[each]),
            start=max(first - offset, 0),
            end=min(first + length + 1 - offset, num_tokens),
        )
