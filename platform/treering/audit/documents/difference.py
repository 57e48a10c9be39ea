"""What two checkpoints read differently: the first step that differs, and the samples that only one of them saw.

Batch digests are compared ring by ring. The cause is another blend, another schedule, or, if both are equal, that one
of the two was not fed what its order says. Samples of another sequence length are other samples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treering.audit.corpora.catalog import Catalog, find_corpora, order_of
from treering.audit.evidence.recovery import RecoveredAncestry, recover_ancestry
from treering.audit.evidence.rings import Recorded, read_path
from treering.audit.evidence.segments import Piece, path_joins
from treering.audit.report import Gap, Level, json_fields, lowest, messages
from treering.config.canonical import short
from treering.config.resolved import RUN_ID_LENGTH
from treering.data.blend.joins import CorpusJoin
from treering.data.corpus.corpus import Corpus
from treering.data.order.spans import held_documents
from treering.errors import EvidenceError
from treering.progress import Progress, quiet
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
        documents_only_a: documents that A read at least in part, and B not at all; None if the corpus is missing.
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
        missing: what is missing, in words: corpora, whose documents are then not compared, and the gaps.
        level: level of assurance reached.
        gaps: records that are missing, and what is compared without them.
        joins: where each corpus goes on at the places of the two paths where a run starts from another run, A's first.
    """

    a: Side
    b: Side
    first_step: int | None
    reason: str
    corpora: tuple[CorpusDifference, ...]
    missing: tuple[str, ...]
    level: Level = Level.RECORDED
    gaps: tuple[Gap, ...] = ()
    joins: tuple[CorpusJoin, ...] = ()

    @property
    def same_data(self) -> bool:
        """Whether both read the same batches in the same order."""
        return self.first_step is None

    def to_json(self) -> dict[str, Any]:
        """The difference as JSON values."""
        return {"same_data": self.same_data, **json_fields(self)}


def compare_checkpoints(
    a: CheckpointDirectory, b: CheckpointDirectory, project: Project, progress: Progress = quiet
) -> CheckpointDifference:
    """Compares what two checkpoints read, by their data orders and their rings.

    Steps without a ring are compared by blend and schedule.

    Memory: some bytes for each sample of an epoch of one corpus, whatever the number of documents.

    Raises:
        EvidenceError: of one of them no order is known, since there is no config of its run; or a corpus at hand is not
            as its blend says, or its index contradicts itself.
    """
    ancestries = recover_ancestry(a, project), recover_ancestry(b, project)
    for ancestry in ancestries:
        if not ancestry.pieces:
            raise EvidenceError(
                f"{'; '.join(messages(ancestry.gaps))}; a difference needs both orders",
                file=ancestry.checkpoint.run.config_file,
                step=ancestry.step,
            )
    catalog = find_corpora(project, [piece.blend for ancestry in ancestries for piece in ancestry.pieces], stored=True)
    recorded = tuple(read_path(ancestry.checkpoint, ancestry.pieces) for ancestry in ancestries)
    first_step, reason = _first_difference(ancestries, recorded)
    for ancestry in ancestries:
        for piece in ancestry.pieces:
            catalog.check(piece.blend)
    read = tuple(_Reads(ancestry.pieces) for ancestry in ancestries)
    totals = tuple(ancestry.consumed_samples for ancestry in ancestries)
    names = {digest: name for each in read for digest, name in each.names.items()}
    corpora = []
    for done, (digest, name) in enumerate(names.items(), 1):
        corpora.append(_corpus_difference(name, digest, read, totals, catalog))
        progress("corpora", done, len(names))
    lost = (each.gap for each in recorded if each.gap is not None)
    gaps = tuple(dict.fromkeys((*ancestries[0].gaps, *ancestries[1].gaps, *lost)))
    return CheckpointDifference(
        a=_side(ancestries[0]),
        b=_side(ancestries[1]),
        first_step=first_step,
        reason=reason,
        corpora=tuple(corpora),
        missing=messages(gaps, (finding.text for finding in catalog.missing.values())),
        level=lowest(Level.RECORDED, gaps),
        gaps=gaps,
        joins=tuple(dict.fromkeys(join for ancestry in ancestries for join in path_joins(ancestry.pieces))),
    )


def _side(ancestry: RecoveredAncestry) -> Side:
    return Side(str(ancestry.checkpoint.path), ancestry.run_id, ancestry.step, ancestry.consumed_samples)


def _first_difference(
    ancestries: tuple[RecoveredAncestry, RecoveredAncestry], recorded: tuple[Recorded, ...]
) -> tuple[int | None, str]:
    last = [ancestry.pieces[-1].last_step for ancestry in ancestries]
    for step in range(max(ancestry.pieces[0].first_step for ancestry in ancestries), min(last) + 1):
        left, right = (each.batch_digests.get(step) for each in recorded)
        mine, other = (next(each for each in ancestry.pieces if each.last_step >= step) for ancestry in ancestries)
        on_record = left is not None and right is not None
        if (left != right) if on_record else (_order_of(mine, step) != _order_of(other, step)):
            return step, _why(mine, other, step)
    if last[0] != last[1]:
        longer = ancestries[last[0] < last[1]]
        step = min(last) + 1
        return step, f"only run {longer.run_id} went on to this step; until there the batches are the same"
    return None, "the same batches in the same order"


def _order_of(piece: Piece, step: int) -> tuple[str, tuple[int, int]]:
    """What says which tokens a step reads."""
    return piece.blend.digest, piece.schedule.sample_range(step)


def _why(left: Piece, right: Piece, step: int) -> str:
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


def _described(piece: Piece) -> str:
    blend = piece.blend
    parts = ", ".join(f"{component.corpus} {component.weight}" for component in blend.components)
    run = short(piece.run.resolved.recipe.digest, RUN_ID_LENGTH)
    goes_on = "" if blend.continues is None else f", goes on from sample {blend.continues.sample:,}"
    length = blend.sequence_length
    return f"{short(blend.digest)} of run {run} ({parts}; seed {blend.seed}, sequence length {length}{goes_on})"


class _Reads:
    """What a path read of each corpus, worked out when it is asked for.

    Attributes:
        names: name of each corpus by digest, in the order of the blends.
    """

    def __init__(self, path: Sequence[Piece]) -> None:
        self.names: dict[str, str] = {}
        self._places: dict[str, list[tuple[Piece, int]]] = {}
        for piece in path:
            for position, part in enumerate(piece.blend.components):
                self.names.setdefault(part.digest or "", part.corpus)
                self._places.setdefault(part.digest or "", []).append((piece, position))

    def counts(self, digest: str) -> dict[int, NDArray[np.int32]]:
        """How often each sample of a corpus was read, by sequence length: int32 [num_samples]."""
        found: dict[int, NDArray[np.int32]] = {}
        for piece, position in self._places.get(digest, ()):
            order = order_of(piece.blend)
            counts = order.read_counts(position, *piece.sample_range)
            length = order.sequence_length
            found[length] = found[length] + counts if length in found else counts
        return found


def _corpus_difference(
    name: str, digest: str, read: tuple[_Reads, ...], totals: tuple[int, ...], catalog: Catalog
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
    documents = _documents_only(catalog.corpora.get(digest), counts, catalog)
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
    corpus: Corpus | None, counts: Sequence[Mapping[int, NDArray[np.int32]]], catalog: Catalog
) -> tuple[int, int] | None:
    """Documents that only A read at least in part, and those that only B read; None if the corpus is missing."""
    if corpus is None:
        return None
    offsets, only = catalog.offsets(corpus), [0, 0]
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
