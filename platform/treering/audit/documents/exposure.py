"""What samples held of a document, and what a checkpoint read of some documents."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from treering.audit.evidence.recovery import RecoveredAncestry
from treering.audit.report import json_fields


@dataclass(frozen=True, slots=True)
class Exposure:
    """One sample that held a part of a document.

    Attributes:
        run: id of the run that read it.
        attempt: number of the attempt, None where no record tells which one did the step.
        step: the step.
        sample: number of the sample in the run's data order.
        position: of the sample in the step's batch, from 0.
        replica: data-parallel replica that read it, None where the layout is not known.
        micro_batch: which of the replica's micro-batches it was in, from 0; None likewise.
        epoch: how often all samples of the corpus had been read before.
        start: first token of the part, counted in the document.
        end: token after its last one; the overlapping label counts.
    """

    run: str
    attempt: int | None
    step: int
    sample: int
    position: int
    replica: int | None
    micro_batch: int | None
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


def seen_by(ancestry: RecoveredAncestry, documents: Sequence[TracedDocument]) -> CheckpointExposure:
    """What a checkpoint saw of some documents, by exposures that were looked up, and perhaps sifted, before.

    Args:
        ancestry: the way to it.
        documents: the documents with their exposures.
    """
    path = [
        (piece.run.id, None if piece.attempt is None else piece.attempt.number, piece.first_step, piece.last_step)
        for piece in ancestry.pieces
    ]
    steps: list[int] = []
    seen = off_path = 0
    for document in documents:
        on: set[tuple[int, int]] = set()  # by step and sample: a step that nobody is named for may be several attempts'
        for each in document.exposures:
            if any(_fits(each, *place) for place in path):
                on.add((each.step, each.sample))
            elif each.run == ancestry.run_id and each.step <= ancestry.step:
                off_path += 1
        steps += [step for step, _ in on]
        seen += bool(on)
    return checkpoint_exposure(ancestry, seen, np.array(steps, dtype=np.int64), off_path)


def checkpoint_exposure(
    ancestry: RecoveredAncestry, documents: int, steps: NDArray[np.int64], off_path: int
) -> CheckpointExposure:
    """What a checkpoint saw: documents, the steps on its path that read a part of one, and how many off it."""
    return CheckpointExposure(
        run=ancestry.run_id,
        step=ancestry.step,
        path=str(ancestry.checkpoint.path),
        documents=documents,
        exposures=len(steps),
        first_step=int(steps.min()) if len(steps) else None,
        last_step=int(steps.max()) if len(steps) else None,
        off_path=off_path,
    )


def _fits(exposure: Exposure, run: str, attempt: int | None, first: int, last: int) -> bool:
    return exposure.run == run and attempt in (None, exposure.attempt) and first <= exposure.step <= last


class AnswerAboutCheckpoints(Protocol):
    """An answer that has what each checkpoint read; a dataclass."""

    @property
    def checkpoints(self) -> Sequence[CheckpointExposure]:
        """What each checkpoint read."""


def answer_json(answer: AnswerAboutCheckpoints) -> dict[str, Any]:
    """An answer as JSON values, each checkpoint with whether it is clean."""
    return {
        **json_fields(answer),
        "checkpoints": [{**asdict(each), "clean": each.clean} for each in answer.checkpoints],
    }
