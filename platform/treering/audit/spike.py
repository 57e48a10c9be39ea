"""From a loss spike to its data: the samples of the steps that led to it, and where else each was read."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from treering.audit.batch import find_ring, sample_rows
from treering.audit.exposure import attempt_stretch, steps_of
from treering.audit.path import Stretch, stretches_of
from treering.audit.shelf import Shelf, find_corpora
from treering.errors import EvidenceError
from treering.project import Project
from treering.runlog.directory import RunDirectory, path_of
from treering.runlog.ring import Ring


@dataclass(frozen=True, slots=True)
class Reading:
    """A step that read a sample.

    Attributes:
        run: id of the run.
        attempt: number of the attempt.
        step: the step.
    """

    run: str
    attempt: int
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
        documents: ids of the documents that it holds parts of, in order.
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
        attempt: number of the attempt that did it.
        step: the step.
        loss: its loss, nats a token.
        grad_norm: its gradient norm before clipping.
        samples: what it read, in order.
    """

    attempt: int
    step: int
    loss: float
    grad_norm: float
    samples: tuple[SuspectSample, ...]


@dataclass(frozen=True, slots=True)
class SpikeData:
    """What was read on the way to a step.

    Attributes:
        run: id of the run.
        step: the step.
        steps: the steps before and the step itself, as its attempt went.
    """

    run: str
    step: int
    steps: tuple[SuspectStep, ...]

    def to_json(self) -> dict[str, Any]:
        """The answer as JSON values."""
        return asdict(self)


def spike_data(run: RunDirectory, step: int, project: Project, before: int = 5) -> SpikeData:
    """The samples of steps [step - before, step], with every other reading of each.

    Args:
        run: the run.
        step: the step that spiked; of several attempts that did it the newest counts.
        project: where corpora lie.
        before: how many steps before it to look at.

    Raises:
        NotFoundError: no attempt of the run did that step.
        EvidenceError: the run log is damaged, or a corpus is not at hand.
    """
    segment, _ring = find_ring(run, step)
    path = stretches_of(path_of(segment))
    others = [*(stretch for stretch in path if stretch.segment.run.path != run.path), *_attempts(run)]
    shelf = find_corpora(project, [stretch.blend for stretch in (*path, *others)])
    if shelf.missing:
        raise EvidenceError("; ".join(finding.text for finding in shelf.missing.values()))
    first = max(1, step - before)
    rings = {ring.step: ring for stretch in path for ring in stretch.segment.rings() if first <= ring.step <= step}
    return SpikeData(
        run.id,
        step,
        tuple(
            _suspect_step(next(each for each in path if each.last_step >= number), rings[number], others, shelf)
            for number in range(first, step + 1)
        ),
    )


def _attempts(run: RunDirectory) -> Iterator[Stretch]:
    for attempt in run.attempts():
        stretch = attempt_stretch(run, attempt)
        if stretch is not None:
            yield stretch


def _suspect_step(stretch: Stretch, ring: Ring, others: Sequence[Stretch], shelf: Shelf) -> SuspectStep:
    order = shelf.order(stretch.blend)
    lo, hi = stretch.schedule.sample_range(ring.step)
    arrays, held = order.samples(lo, hi), order.samples_with_spans(lo, hi)
    documents = sample_rows(held, [shelf.corpora[each.digest or ""] for each in stretch.blend.components], shelf)
    samples: list[SuspectSample | None] = [None] * (hi - lo)
    for position, component in enumerate(stretch.blend.components):
        where = np.flatnonzero(arrays.component == position)
        indices = arrays.index[where]
        readings: list[list[Reading]] = [[] for _ in where]
        own = (str(stretch.segment.attempt.path), ring.step)
        for other in others:
            _add_readings(readings, indices, component.digest or "", other, shelf, own)
        for item, at in enumerate(where.tolist()):
            rows = [documents[position, span.document].row for span in held[at].spans]
            samples[at] = SuspectSample(
                step=ring.step,
                sample=lo + at,
                corpus=component.corpus,
                epoch=int(arrays.epoch[at]),
                index=int(indices[item]),
                documents=tuple(row["id"] for row in rows),
                sources=tuple(dict.fromkeys(row["source"] for row in rows)),
                elsewhere=tuple(readings[item]),
            )
    return SuspectStep(
        attempt=stretch.segment.attempt.number,
        step=ring.step,
        loss=ring.loss,
        grad_norm=ring.grad_norm,
        samples=tuple(sample for sample in samples if sample is not None),
    )


def _add_readings(  # noqa: PLR0917 - private, called once
    readings: list[list[Reading]],
    indices: "np.ndarray[Any, np.dtype[np.int64]]",
    digest: str,
    other: Stretch,
    shelf: Shelf,
    own: tuple[str, int],
) -> None:
    """Adds what another attempt read of the same samples, the reading that was asked about left out."""
    digests = [component.digest for component in other.blend.components]
    if digest not in digests:
        return
    found = shelf.order(other.blend).index_exposures(digests.index(digest), indices, *other.sample_range)
    run, attempt = other.segment.run.id, other.segment.attempt
    for item, step in zip(found.item.tolist(), steps_of(other.schedule, found.sample).tolist(), strict=True):
        if (str(attempt.path), step) != own:
            readings[item].append(Reading(run, attempt.number, step))
