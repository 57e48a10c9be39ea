"""What two checkpoints read differently: the first step that differs, and the samples that only one of them saw."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treering.audit.content import Progress, quiet
from treering.audit.path import Stretch, stretches_to
from treering.audit.shelf import Shelf, find_corpora, order_of
from treering.config.canonical import short
from treering.config.resolve import RUN_ID_LENGTH
from treering.data.corpus import Corpus
from treering.data.spans import held_documents
from treering.project import Project
from treering.runlog.directory import CheckpointDirectory

_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Side:
    """One checkpoint's part of a difference.

    Attributes:
        checkpoint: its folder.
        run: id of its run.
        step: its step.
        consumed_samples: samples read on its path.
    """

    checkpoint: str
    run: str
    step: int
    consumed_samples: int


@dataclass(frozen=True, slots=True)
class CorpusDifference:
    """What two checkpoints A and B read of one corpus; a sample is a place in the corpus, however often it is read.

    Attributes:
        corpus: name.
        digest: identity.
        share_a: share of A's samples that came from it: the effective blend.
        share_b: the same of B.
        reads_a: samples that A read from it, each as often as it was read.
        reads_b: the same of B.
        only_a: samples that A read and B did not.
        only_b: samples that B read and A did not.
        both: samples that both read.
        documents_only_a: documents of which A read a part and B did not; None if the corpus is not at hand.
        documents_only_b: the other way round.
    """

    corpus: str
    digest: str
    share_a: float
    share_b: float
    reads_a: int
    reads_b: int
    only_a: int
    only_b: int
    both: int
    documents_only_a: int | None
    documents_only_b: int | None


@dataclass(frozen=True, slots=True)
class CheckpointDifference:
    """The difference of two checkpoints A and B.

    Attributes:
        a: the one.
        b: the other.
        first_step: first step whose batch differs by its recorded digest, or that only one of them has; None if both
            read the same batches from first to last.
        reason: why it differs there, in words.
        corpora: by corpus.
        missing: corpora that are not at hand, in words.
    """

    a: Side
    b: Side
    first_step: int | None
    reason: str
    corpora: tuple[CorpusDifference, ...]
    missing: tuple[str, ...]

    @property
    def same_data(self) -> bool:
        """Whether both read the same batches in the same order."""
        return self.first_step is None

    def to_json(self) -> dict[str, Any]:
        """The difference as JSON values."""
        return {"same_data": self.same_data, **asdict(self)}


def compare_checkpoints(
    a: CheckpointDirectory, b: CheckpointDirectory, project: Project, progress: Progress = quiet
) -> CheckpointDifference:
    """Compares what two checkpoints read, by their data orders and their rings.

    Memory: some bytes for each sample of an epoch of one corpus, whatever the number of documents.

    Raises:
        EvidenceError: a record or a ring on the way to one of them does not hold, or a corpus at hand is not as its
            blend says, or its index contradicts itself.
    """
    paths = stretches_to(a), stretches_to(b)
    shelf = find_corpora(project, [stretch.blend for path in paths for stretch in path])
    first_step, reason = _first_difference(a, b, paths)
    for path in paths:
        for stretch in path:
            shelf.check(stretch.blend)
    read = tuple(_Reads(path) for path in paths)
    totals = tuple(checkpoint.manifest.consumed_samples for checkpoint in (a, b))
    names = {digest: name for each in read for digest, name in each.names.items()}
    corpora = []
    for done, (digest, name) in enumerate(names.items(), 1):
        corpora.append(_corpus_difference(name, digest, read, totals, shelf))
        progress("corpora", done, len(names))
    return CheckpointDifference(
        a=_side(a),
        b=_side(b),
        first_step=first_step,
        reason=reason,
        corpora=tuple(corpora),
        missing=tuple(finding.text for finding in shelf.missing.values()),
    )


def _side(checkpoint: CheckpointDirectory) -> Side:
    return Side(str(checkpoint.path), checkpoint.run.id, checkpoint.step, checkpoint.manifest.consumed_samples)


def _first_difference(
    a: CheckpointDirectory, b: CheckpointDirectory, paths: tuple[Sequence[Stretch], Sequence[Stretch]]
) -> tuple[int | None, str]:
    rings = (checkpoint.run.path_rings(checkpoint) for checkpoint in (a, b))
    for step, (left, right) in enumerate(zip_longest(*rings), 1):
        if left is None or right is None:
            longer = a if right is None else b
            return step, f"only run {longer.run.id} went on to this step; until there the batches are the same"
        if left.batch_digest != right.batch_digest:
            mine, other = (next(each for each in path if each.last_step >= step) for path in paths)
            return step, _why(mine, other, step)
    return None, "the same batches in the same order"


def _why(left: Stretch, right: Stretch, step: int) -> str:
    if left.blend.digest != right.blend.digest:
        return f"the blends differ: {_described(left)} and {_described(right)}"
    ranges = left.schedule.sample_range(step), right.schedule.sample_range(step)
    skipped = [side.schedule.skipped_samples for side in (left, right)]
    if skipped[0] != skipped[1]:
        return "{:,} and {:,} samples were passed over: samples {:,} to {:,} and {:,} to {:,}".format(
            *skipped, *ranges[0], *ranges[1]
        )
    if ranges[0] != ranges[1]:
        return "the schedules differ: samples {:,} to {:,} and {:,} to {:,}".format(*ranges[0], *ranges[1])
    return "blend and schedule are the same, so one of the two was not fed what its data order says: audit both"


def _described(stretch: Stretch) -> str:
    blend = stretch.blend
    parts = ", ".join(f"{component.corpus} {component.weight}" for component in blend.components)
    run = short(stretch.segment.run.resolved.recipe.digest, RUN_ID_LENGTH)
    return f"{short(blend.digest)} of run {run} ({parts}; seed {blend.seed}, sequence length {blend.sequence_length})"


class _Reads:
    """What a path read of each corpus, worked out when it is asked for.

    Attributes:
        names: name of each corpus by digest, in the order of the blends.
    """

    def __init__(self, path: Sequence[Stretch]) -> None:
        self.names: dict[str, str] = {}
        self._places: dict[str, list[tuple[Stretch, int]]] = {}
        for stretch in path:
            for position, part in enumerate(stretch.blend.components):
                self.names.setdefault(part.digest or "", part.corpus)
                self._places.setdefault(part.digest or "", []).append((stretch, position))

    def counts(self, digest: str) -> dict[int, NDArray[np.int32]]:
        """How often each sample of a corpus was read, by sequence length: int32 [num_samples]."""
        found: dict[int, NDArray[np.int32]] = {}
        for stretch, position in self._places.get(digest, ()):
            order = order_of(stretch.blend)
            counts = order.read_counts(position, *stretch.sample_range)
            length = order.sequence_length
            found[length] = found[length] + counts if length in found else counts
        return found


def _corpus_difference(
    name: str, digest: str, read: tuple[_Reads, ...], totals: tuple[int, ...], shelf: Shelf
) -> CorpusDifference:
    counts = [side.counts(digest) for side in read]
    only = [0, 0]
    both = 0
    for length in counts[0].keys() | counts[1].keys():  # samples of another length are other samples
        none = np.zeros(1, dtype=np.int32)
        a, b = np.broadcast_arrays(*(side.get(length, none) > 0 for side in counts))
        only = [only[0] + int(np.count_nonzero(a & ~b)), only[1] + int(np.count_nonzero(b & ~a))]
        both += int(np.count_nonzero(a & b))
    reads = [sum(int(each.sum()) for each in side.values()) for side in counts]
    documents = _documents_only(shelf.corpora.get(digest), counts, shelf)
    return CorpusDifference(
        corpus=name,
        digest=digest,
        share_a=reads[0] / totals[0],
        share_b=reads[1] / totals[1],
        reads_a=reads[0],
        reads_b=reads[1],
        only_a=only[0],
        only_b=only[1],
        both=both,
        documents_only_a=None if documents is None else documents[0],
        documents_only_b=None if documents is None else documents[1],
    )


def _documents_only(
    corpus: Corpus | None, counts: Sequence[Mapping[int, NDArray[np.int32]]], shelf: Shelf
) -> tuple[int, int] | None:
    """Documents of a corpus of which A read a part and B did not, and the other way round; None if not at hand."""
    if corpus is None:
        return None
    offsets, only = shelf.offsets(corpus), [0, 0]
    for first in range(0, corpus.num_documents, _CHUNK):
        part = offsets[first : min(first + _CHUNK, corpus.num_documents) + 1]
        a, b = (
            np.logical_or.reduce([held_documents(part, each, length) for length, each in side.items()])
            if side
            else np.zeros(len(part) - 1, dtype=np.bool_)
            for side in counts
        )
        only = [only[0] + int(np.count_nonzero(a & ~b)), only[1] + int(np.count_nonzero(b & ~a))]
    return only[0], only[1]
