"""From a loss spike to its data: the samples of the steps that led to it, and where else each was read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from treering.audit.corpora.catalog import Catalog, find_corpora
from treering.audit.documents.exposure_index import steps_of
from treering.audit.documents.readers import attempts_of, untold_steps
from treering.audit.evidence.recovery import HELPS, pieces_to
from treering.audit.evidence.segments import Piece, RecordedSegment
from treering.audit.evidence.step import find_step, rings_of
from treering.audit.report import Finding, Gap, Level, json_fields, lowest
from treering.data.corpus.corpus import Corpus
from treering.data.order.contract import Sample
from treering.project import Project
from treering.runlog.directory import RunDirectory
from treering.runlog.ring import Ring


@dataclass(frozen=True, slots=True)
class Reading:
    """A step that read a sample.

    Attributes:
        run: id of the run.
        attempt: number of the attempt, None where no record tells which one did the step.
        step: the step.
    """

    run: str
    attempt: int | None
    step: int


@dataclass(frozen=True, slots=True)
class SuspectSample:
    """A sample that was read in the steps before a spike.

    Attributes:
        step: the step that read it.
        sample: its number in the data order.
        corpus: where it comes from.
        epoch: how often all samples of the corpus had been read before.
        index: its number inside the corpus.
        documents: ids of the documents that it holds parts of, in order; empty if the corpus is missing.
        sources: the URIs of the files that they came from, each once.
        elsewhere: every other reading of the same sample by attempts of this run and of its ancestors.
    """

    step: int
    sample: int
    corpus: str
    epoch: int
    index: int
    documents: tuple[str, ...]
    sources: tuple[str, ...]
    elsewhere: tuple[Reading, ...]


@dataclass(frozen=True, slots=True)
class SuspectStep:
    """One of the steps that led to a spike.

    Attributes:
        attempt: number of the attempt that did it, None where no record tells.
        step: the step.
        loss: its loss, nats a token; None where its ring is gone.
        grad_norm: its gradient norm before clipping; None likewise.
        samples: what it read, in order.
    """

    attempt: int | None
    step: int
    loss: float | None
    grad_norm: float | None
    samples: tuple[SuspectSample, ...]


@dataclass(frozen=True, slots=True)
class SpikeData:
    """What was read on the way to a step.

    Attributes:
        run: id of the run.
        step: the step.
        steps: the steps before and the step itself, as its attempt went.
        level: level of assurance reached.
        gaps: what is missing, and what is answered without it.
    """

    run: str
    step: int
    steps: tuple[SuspectStep, ...]
    level: Level = Level.RECORDED
    gaps: tuple[Gap, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The answer as JSON values."""
        return json_fields(self)


def spike_data(run: RunDirectory, step: int, project: Project, before: int = 5) -> SpikeData:
    """The samples of steps [step - before, step], with every other reading of each.

    Args:
        run: the run.
        step: the step that spiked; of several attempts that did it the newest counts.
        project: where corpora are.
        before: how many steps before it to look at.

    Raises:
        NotFoundError: the run has no such step.
        EvidenceError: the run's config is missing, or contradicts a corpus's manifest.
    """
    found = find_step(run, step, project)
    run = found.piece.run
    number = None if found.piece.attempt is None else found.piece.attempt.number
    path, lost = pieces_to(run, number, step)
    attempts, unread = attempts_of(run)
    others = [*(piece for piece in path if piece.run.path != run.path), *attempts]
    others += list(untold_steps((piece for piece in path if piece.run.path == run.path), attempts))
    catalog = find_corpora(project, [piece.blend for piece in (*path, *others)], stored=True)
    first = max(step - before, path[0].first_step)
    rings: dict[int, Ring] = {}
    for piece in path:
        if piece.attempt is not None and piece.last_step >= first:
            rings |= rings_of(piece.attempt, max(first, piece.first_step), piece.last_step)[0]
    gaps = [*found.gaps, *lost, *unread]
    gaps += [_without_corpus(finding) for finding in catalog.missing.values()]
    ringless = [number for number in range(first, step) if number not in rings]
    if ringless:
        missing = f"{run.path}: no ring of the steps {', '.join(map(str, ringless))} is there; {HELPS}"
        answered = "their samples as schedule and blend of the recipe order them, without loss and gradient norm"
        gaps.append(Gap(missing, answered, Level.REDERIVED))
    steps = tuple(
        _suspect_step(
            next(each for each in path if each.last_step >= number),
            number,
            rings.get(number),
            others,
            catalog,
            gaps=gaps,
        )
        for number in range(first, step + 1)
    )
    gaps = list(dict.fromkeys(gaps))
    return SpikeData(run.id, step, steps, lowest(Level.RECORDED, gaps), tuple(gaps))


def rings_left(run: RunDirectory) -> tuple[list[Ring], list[Gap]]:
    """The rings on the path to the newest one, as far as they are there; and what is missing of them.

    Raises:
        EvidenceError: the run's config is missing.
    """
    newest = next((each for each in reversed(run.attempts(headless=True)) if each.ring_log.first()), None)
    if newest is None:
        return [], []
    path, gaps = pieces_to(run, newest.number, newest.last_step())
    rings: list[Ring] = []
    for piece in path:
        if piece.attempt is not None:
            held, problem = rings_of(piece.attempt, piece.first_step, piece.last_step)
            rings += held.values()
            if problem and isinstance(piece, RecordedSegment):
                answered = f"{len(held)} of the steps {piece.first_step} to {piece.last_step}"
                gaps.append(Gap.from_error(problem, answered, Level.REDERIVED, helps=HELPS))
    return rings, gaps


def _without_corpus(finding: Finding) -> Gap:
    answered = f"which samples of corpus {finding.corpus} were read, and where else, without their documents"
    return Gap(finding.text, answered, Level.RECORDED, corpus=finding.corpus)


def _suspect_step(
    piece: Piece,
    step: int,
    ring: Ring | None,
    others: Sequence[Piece],
    catalog: Catalog,
    *,
    gaps: list[Gap],
) -> SuspectStep:
    order = catalog.order(piece.blend)
    lo, hi = piece.schedule.sample_range(step)
    arrays, held = order.samples(lo, hi), order.samples_with_spans(lo, hi)
    samples: list[SuspectSample | None] = [None] * (hi - lo)
    for position, component in enumerate(piece.blend.components):
        digest = component.digest or ""
        where = np.flatnonzero(arrays.component == position)
        indices = arrays.index[where]
        readings: list[list[Reading]] = [[] for _ in where]
        for other in others:
            _add_readings(readings, indices, digest, other, catalog, (*_place(piece), step))
        rows = _rows(held, position, catalog.corpora.get(digest) or catalog.partial.get(digest), catalog, gaps)
        for item, at in enumerate(where.tolist()):
            mine = [rows[span.document] for span in held[at].spans]
            samples[at] = SuspectSample(
                step=step,
                sample=lo + at,
                corpus=component.corpus,
                epoch=int(arrays.epoch[at]),
                index=int(indices[item]),
                documents=tuple(row["id"] for row in mine),
                sources=tuple(dict.fromkeys(row["source"] for row in mine)),
                elsewhere=tuple(readings[item]),
            )
    return SuspectStep(
        attempt=None if piece.attempt is None else piece.attempt.number,
        step=step,
        loss=None if ring is None else ring.loss,
        grad_norm=None if ring is None else ring.grad_norm,
        samples=tuple(sample for sample in samples if sample is not None),
    )


def _rows(
    held: Sequence[Sample], component: int, corpus: Corpus | None, catalog: Catalog, gaps: list[Gap]
) -> dict[int, dict[str, Any]]:
    """The documents of one corpus that some samples hold parts of, by number."""
    numbers = {span.document for each in held if each.component == component for span in each.spans}
    if corpus is None or not numbers:
        return {}
    asked = np.array(sorted(numbers), dtype=np.int64)
    rows, problem = catalog.described(corpus, asked)
    if problem is not None:
        answered = f"documents of corpus {corpus.name} by their number in the index, without source"
        gaps.append(Gap.from_error(problem, answered, Level.RECORDED, corpus=corpus.name))
    return dict(zip(asked.tolist(), rows, strict=True))


def _place(piece: Piece) -> tuple[str, int | None]:
    return str(piece.run.path), None if piece.attempt is None else piece.attempt.number


def _add_readings(  # noqa: PLR0917 - private, called once
    readings: list[list[Reading]],
    indices: "np.ndarray[Any, np.dtype[np.int64]]",
    digest: str,
    other: Piece,
    catalog: Catalog,
    own: tuple[str, int | None, int],
) -> None:
    """Adds what other steps read of the same samples, the reading that was asked about left out."""
    digests = [component.digest for component in other.blend.components]
    if digest not in digests:
        return
    found = catalog.order(other.blend).index_exposures(digests.index(digest), indices, *other.sample_range)
    run, attempt, place = other.run.id, None if other.attempt is None else other.attempt.number, _place(other)
    for item, step in zip(found.item.tolist(), steps_of(other.schedule, found.sample).tolist(), strict=True):
        if (*place, step) != own:
            readings[item].append(Reading(run, attempt, step))
