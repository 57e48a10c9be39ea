"""One corpus of a blend, cut into samples and shuffled differently in each epoch.

Part of `treering-1`, used by `treering.data.order.treering1`. A corpus has n = floor((T - 1) / S) samples. Its k-th
sample, counted from the first one of epoch 0, is sample `permutation(epoch)[k mod n]` of epoch k // n.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from treering.data.order.feistel import Permutation
from treering.data.order.spans import Offsets
from treering.errors import UserError

_CHUNK = 1 << 19


class BlendComponent(Protocol):
    """What the order reads of one component of a blend."""

    @property
    def corpus(self) -> str:
        """Name of the corpus."""

    @property
    def digest(self) -> str | None:
        """Digest of the corpus; None for a declared one, which can be planned and never read."""

    @property
    def weight(self) -> str:
        """Share of the samples, a decimal string."""

    @property
    def num_tokens(self) -> int:
        """Tokens of the corpus."""


class Continued(Protocol):
    """Where an order begins that goes on from another one."""

    @property
    def sample(self) -> int:
        """Number of the first sample."""

    @property
    def positions(self) -> Sequence[int]:
        """By component: how many samples of its corpus precede that sample."""


class Blend(Protocol):
    """What the order reads of a blend, as `treering.config.resolved_blend.ResolvedBlend` has it."""

    @property
    def algorithm(self) -> str:
        """Name of the data order's algorithm."""

    @property
    def seed(self) -> int:
        """Seed of the order."""

    @property
    def sequence_length(self) -> int:
        """Tokens a sample counts; it is read with one more, the last label."""

    @property
    def components(self) -> Sequence[BlendComponent]:
        """The components in declared order."""

    @property
    def continues(self) -> Continued | None:
        """Where the order begins if it goes on from another one, None if it begins with sample 0."""


@dataclass(frozen=True, slots=True)
class Component:
    """One corpus of a blend, as the order sees it.

    Attributes:
        corpus: name.
        digest: corpus digest, None if declared.
        weight: decimal string.
        num_tokens: T.
        num_samples: n, samples of one epoch.
        unread_tokens: tokens after the last sample, which no epoch reads.
        seed: seed of the order, which shuffles the samples of each epoch.
        document_offsets: [num_documents + 1], token offsets of the documents with the end, or None.
    """

    corpus: str
    digest: str | None
    weight: str
    num_tokens: int
    num_samples: int
    unread_tokens: int
    seed: int
    document_offsets: Offsets | None

    @classmethod
    def of(cls, part: BlendComponent, blend: Blend, offsets: Offsets | None) -> "Component":
        """Cuts a corpus of a blend into samples.

        Raises:
            UserError: the corpus is shorter than one sample, or the document offsets are not those of this corpus.
        """
        sequence_length = blend.sequence_length
        num_samples = (part.num_tokens - 1) // sequence_length
        if num_samples < 1:
            raise UserError(
                f"blend: corpus {part.corpus!r} has {part.num_tokens} tokens, expected at least {sequence_length + 1} "
                f"(one sample of sequence_length {sequence_length} and its last label); give it more text, shorten "
                f"`blend.sequence_length`, or remove it from `blend`"
            )
        if offsets is not None and (len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != part.num_tokens):
            raise UserError(
                f"blend: the document offsets of corpus {part.corpus!r} do not lead from 0 to its {part.num_tokens} "
                f"tokens, so they belong to another corpus; run `dvc repro tokenize`"
            )
        unread = part.num_tokens - (num_samples * sequence_length + 1)
        return cls(part.corpus, part.digest, part.weight, part.num_tokens, num_samples, unread, blend.seed, offsets)

    def offsets(self) -> Offsets:
        """The document offsets.

        Raises:
            UserError: the order was opened without them.
        """
        if self.document_offsets is None:
            raise UserError(
                f"data order: corpus {self.corpus!r} was opened without document offsets, expected them: its documents "
                f"are asked for; run `dvc repro tokenize`, then open the corpus"
            )
        return self.document_offsets

    def pieces(self, first: int, end: int) -> Iterator[tuple[int, Permutation, NDArray[np.int64]]]:
        """What is read as the k-th samples of this corpus, k in [first, end), epoch by epoch.

        Yields:
            An epoch, its permutation, and the positions in it that are read: int64, ascending.

        Raises:
            UserError: the corpus is declared.
        """
        n = self.num_samples
        for epoch in range(first // n, -(-end // n)):
            start, stop = max(first - epoch * n, 0), min(end - epoch * n, n)
            yield epoch, self._permutation(epoch), np.arange(start, stop, dtype=np.int64)

    def readings(
        self, indices: NDArray[np.int64], first: int, end: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """As which k-th samples of this corpus, k in [first, end), the samples with these indices are read.

        Returns:
            Three int64 arrays with one entry for each reading, in the order of the readings: which of `indices` is
            read, by its position among them; k; and the epoch.

        Raises:
            UserError: the corpus is declared.
        """
        n = self.num_samples
        found = [np.empty((3, 0), dtype=np.int64)]
        for epoch in range(first // n, -(-end // n) if len(indices) else 0):
            ks = epoch * n + self._permutation(epoch).inverse(indices)
            read = np.flatnonzero((ks >= first) & (ks < end))
            read = read[np.argsort(ks[read])]
            found.append(np.stack((read, ks[read], np.full(len(read), epoch))))
        which, k, epochs = np.concatenate(found, axis=1)
        return which, k, epochs

    def read_counts(self, first: int, end: int) -> NDArray[np.int32]:
        """How often the k-th samples of this corpus, k in [first, end), are each sample: int32 [num_samples].

        Whole epochs cost nothing; each of the others costs a permutation of what is read in it.

        Raises:
            UserError: the corpus is declared.
        """
        n = self.num_samples
        whole = max(end // n - -(-first // n), 0)
        counts = np.full(n, whole, dtype=np.int32)
        for epoch in dict.fromkeys((first // n, end // n)):
            start, stop = max(first - epoch * n, 0), min(end - epoch * n, n)
            if stop - start == n or start >= stop:
                continue
            permutation = self._permutation(epoch)
            for chunk in range(start, stop, _CHUNK):
                counts[permutation.permute(np.arange(chunk, min(chunk + _CHUNK, stop), dtype=np.int64))] += 1
        return counts

    def _permutation(self, epoch: int) -> Permutation:
        if self.digest is None:
            raise UserError(
                f"data order: corpus {self.corpus!r} is declared and has no digest, so its samples can be counted but "
                f"not read; tokenize its text (`dvc repro tokenize`) to give it one"
            )
        return Permutation.of_epoch(self.num_samples, self.seed, self.digest, epoch)
