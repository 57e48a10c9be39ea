"""What two checkpoints read differently: the first step that differs, and the samples that only one of them saw."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treering.audit.content import Progress, quiet
from treering.audit.path import Stretch, stretches_to
from treering.audit.shelf import Shelf, find_corpora
from treering.config.canonical import short
from treering.config.resolve import RUN_ID_LENGTH
from treering.project import Project
from treering.runlog.directory import CheckpointDirectory


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

    Memory: a byte for each sample of an epoch and each of the two checkpoints.

    Raises:
        EvidenceError: a record or a ring on the way to one of them does not hold.
    """
    paths = stretches_to(a), stretches_to(b)
    shelf = find_corpora(project, [stretch.blend for path in paths for stretch in path])
    first_step, reason = _first_difference(a, b, paths)
    read = tuple(_Reads(path, shelf, progress) for path in paths)
    totals = tuple(checkpoint.manifest.consumed_samples for checkpoint in (a, b))
    names = {digest: name for each in read for digest, name in each.names.items()}
    return CheckpointDifference(
        a=_side(a),
        b=_side(b),
        first_step=first_step,
        reason=reason,
        corpora=tuple(_corpus_difference(name, digest, read, totals) for digest, name in names.items()),
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
    """What a path read of each corpus.

    Attributes:
        names: name of each corpus by digest, in the order of the blends.
        counts: samples read of each, repetitions counted.
        seen: by digest and sequence length, which samples of an epoch: bool [num_samples].
        documents: by digest, of which documents a part: bool [num_documents]; corpora at hand alone.
    """

    def __init__(self, path: Sequence[Stretch], shelf: Shelf, progress: Progress) -> None:
        self.names: dict[str, str] = {}
        self.counts: dict[str, int] = {}
        self.seen: dict[tuple[str, int], NDArray[np.bool_]] = {}
        self.documents: dict[str, NDArray[np.bool_]] = {}
        for done, stretch in enumerate(path, 1):
            order, (lo, hi) = shelf.order(stretch.blend), stretch.sample_range
            for position, part in enumerate(stretch.blend.components):
                digest, key = part.digest or "", (part.digest or "", order.sequence_length)
                counts = order.read_counts(position, lo, hi)
                self.names.setdefault(digest, part.corpus)
                self.counts[digest] = self.counts.get(digest, 0) + int(counts.sum())
                self.seen[key] = self.seen.get(key, np.zeros(len(counts), dtype=np.bool_)) | (counts > 0)
                if digest in shelf.corpora:
                    held, _tokens = order.document_reads(position, counts)
                    self.documents[digest] = self.documents.get(digest, np.zeros_like(held)) | held
            progress("attempts", done, len(path))


def _corpus_difference(name: str, digest: str, read: tuple[_Reads, ...], totals: tuple[int, ...]) -> CorpusDifference:
    seen = [{length: flags for (each, length), flags in side.seen.items() if each == digest} for side in read]
    lengths = seen[0].keys() | seen[1].keys()
    only = [0, 0]
    both = 0
    for length in lengths:  # samples of another length are other samples
        none = np.zeros(1, dtype=np.bool_)
        a, b = np.broadcast_arrays(*(side.get(length, none) for side in seen))
        only = [only[0] + int(np.count_nonzero(a & ~b)), only[1] + int(np.count_nonzero(b & ~a))]
        both += int(np.count_nonzero(a & b))
    counts = [side.counts.get(digest, 0) for side in read]
    return CorpusDifference(
        corpus=name,
        digest=digest,
        share_a=counts[0] / totals[0],
        share_b=counts[1] / totals[1],
        reads_a=counts[0],
        reads_b=counts[1],
        only_a=only[0],
        only_b=only[1],
        both=both,
        documents_only_a=_documents_only(digest, *read),
        documents_only_b=_documents_only(digest, *reversed(read)),
    )


def _documents_only(digest: str, mine: _Reads, other: _Reads) -> int | None:
    """Documents of a corpus of which one side read a part and the other did not; None if it is not at hand."""
    held = mine.documents.get(digest, other.documents.get(digest))
    if held is None:
        return None
    nothing = np.zeros_like(held)
    return int(np.count_nonzero(mine.documents.get(digest, nothing) & ~other.documents.get(digest, nothing)))
