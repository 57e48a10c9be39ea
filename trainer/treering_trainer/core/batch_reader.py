"""Reads a replica's share of each global batch, and digests the arrays that the model is fed.

Sample numbers come from the schedule, the layout shares them among the replicas, and the data order turns them into
tokens. The reader keeps no position, so a restart reads the same samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from treering.config.canonical import DIGEST_PREFIX, short
from treering.config.layout import RankCoordinates
from treering.config.resolved_blend import ResolvedBlend
from treering.data.blend.corpora import check_component
from treering.data.corpus.corpus import MANIFEST, Corpus
from treering.data.order.batch import TokenSource, read_samples, sample_digests
from treering.data.order.treering1 import DataOrder
from treering.errors import EvidenceError, UserError
from treering.project import Project
from treering_trainer.core.engine import MicroBatch

DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class ReplicaBatch:
    """The samples of one replica in one step.

    Attributes:
        micro_batches: token ids and labels of each micro-batch; empty on a middle stage.
        digests: uint8 [samples, 32], the raw digest of each sample in the order of `micro_batches`.
    """

    micro_batches: tuple[MicroBatch, ...]
    digests: NDArray[np.uint8]


class BatchReader:
    """One replica's reader.

    Args:
        order: the data order.
        corpora: one for each component, in the blend's order.
        coordinates: of this rank in the layout.
    """

    def __init__(self, order: DataOrder, corpora: Sequence[TokenSource], coordinates: RankCoordinates) -> None:
        self._order = order
        self._corpora = corpora
        self._coordinates = coordinates

    def read(self, lo: int, hi: int) -> ReplicaBatch:
        """This replica's micro-batches of the global batch [lo, hi)."""
        if not self._coordinates.reads_data:
            return ReplicaBatch((), np.empty((0, DIGEST_BYTES), dtype=np.uint8))
        size = self._coordinates.layout.micro_batch_size
        parts = [
            read_samples(self._order, self._corpora, start, start + size).astype(np.int64)
            for start in self._coordinates.micro_batch_starts(lo, hi)
        ]
        # The tensors below share the memory of the digested arrays, so the digests are evidence of what was fed.
        digests = [raw_digest(digest) for part in parts for digest in sample_digests(part)]
        return ReplicaBatch(tuple(micro_batch(part) for part in parts), np.stack(digests))


def micro_batch(tokens: NDArray[np.int64]) -> MicroBatch:
    """Token ids and labels [B, S] as views of samples [B, S + 1]."""
    tensor = torch.from_numpy(tokens)
    return tensor[:, :-1], tensor[:, 1:]


def raw_digest(digest: str) -> NDArray[np.uint8]:
    """The 32 bytes of a digest."""
    return np.frombuffer(bytes.fromhex(digest.removeprefix(DIGEST_PREFIX)), dtype=np.uint8)


def text_digest(raw: NDArray[np.uint8]) -> str:
    """A digest from its 32 bytes."""
    return DIGEST_PREFIX + raw.tobytes().hex()


def open_corpora(project: Project, blend: ResolvedBlend) -> list[Corpus]:
    """Opens the training corpora of a blend, in its order.

    Raises:
        UserError: the blend declares a corpus without content.
        EvidenceError: a corpus on disk is another one than the blend names.
    """
    if blend.declared:
        raise UserError(
            f"blend: {', '.join(blend.declared)} declared without content, expected corpora with a digest: "
            "a declared blend can be planned, not trained on"
        )
    corpora = []
    for component in blend.components:
        corpus = Corpus.open(project.corpus(component.corpus))
        manifest = corpus.directory / MANIFEST
        if corpus.digest != component.digest:
            remedy = "`dvc repro blend` resolves the blend again"
            raise EvidenceError(
                f"{corpus.directory}: corpus {short(corpus.digest)}, but the blend names "
                f"{short(component.digest or '')}; {remedy}",
                file=manifest,
                found=corpus.digest,
                expected=component.digest,
                remedy=remedy,
            )
        if corpus.name != component.corpus:
            remedy = "`dvc repro -f tokenize` makes the corpus again"
            raise EvidenceError(
                f"{manifest}: name is {corpus.name}, expected {component.corpus} by the blend; {remedy}",
                file=manifest,
                found=corpus.name,
                expected=component.corpus,
                remedy=remedy,
            )
        check_component(blend, component, corpus, "blend")
        corpora.append(corpus)
    return corpora


def verified_digests(corpora: Sequence[Corpus]) -> dict[str, str]:
    """Digests every corpus again; the digest of each by name.

    Raises:
        EvidenceError: a file differs from its manifest.
    """
    for corpus in corpora:
        for damage in corpus.verify():
            file = corpus.directory / damage.file
            remedy = "`dvc checkout` restores the file, `dvc repro -f tokenize` makes it again"
            raise EvidenceError(
                f"{file}: corpus {corpus.name}, {damage.text}; {remedy}",
                file=file,
                found=damage.reason,
                remedy=remedy,
            )
    return {corpus.name: corpus.digest for corpus in corpora}
