"""The held-out side: documents that no training may have read, known by the digests of their tokens."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from treering.config.canonical import DIGEST_PREFIX
from treering.data.corpus.corpus import MANIFEST, Corpus
from treering.errors import EvidenceError, TreeringError
from treering.project import Project

_HEX = np.full(256, 255, dtype=np.uint8)
_HEX[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16, dtype=np.uint8)
_PREFIX = np.frombuffer(DIGEST_PREFIX.encode(), np.uint8)
_WORDS, _WORD_HEX = 4, 16


class HeldOutDocuments:
    """Digests of the available held-out documents, looked up by the million. Memory: 32 bytes a document.

    Args:
        corpora: the held-out corpora; one whose document table cannot be read is left out.
    """

    def __init__(self, corpora: list[Corpus]) -> None:
        self._corpora = corpora
        parts = [np.empty((0, _WORDS), dtype=np.uint64), *self._read()]
        words = np.concatenate(parts)
        words = words[np.lexsort(words.T[::-1])]
        distinct = np.ones(len(words), dtype=np.bool_)
        distinct[1:] = np.any(words[1:] != words[:-1], axis=1)
        self._words = words[distinct]
        self._first = np.ascontiguousarray(self._words[:, 0])

    @classmethod
    def of(cls, project: Project) -> Self | None:
        """Those of a project; None where there are none."""
        corpora = []
        for manifest in sorted(project.corpora.glob(f"heldout/*/{MANIFEST}")):
            with suppress(TreeringError):
                corpora.append(Corpus.open(manifest.parent))
        found = cls(corpora)
        return found if len(found) else None

    def _read(self) -> Iterator[NDArray[np.uint64]]:
        for corpus in self._corpora:
            with suppress(EvidenceError):
                yield np.concatenate([digest_words(batch["digest"], _WORDS) for _, batch in corpus.batches("digest")])

    def __len__(self) -> int:
        return len(self._words)

    def among(self, digests: pa.StringArray) -> NDArray[np.int64]:
        """Positions of the digests that are those of a held-out document, ascending.

        Raises:
            EvidenceError: one of them is not a digest.
        """
        first = digest_words(digests, 1)[:, 0]
        at = np.minimum(np.searchsorted(self._first, first), len(self) - 1)
        alike = np.flatnonzero(self._first[at] == first)
        if not len(alike):
            return alike
        whole = digest_words(digests.take(pa.array(alike)), _WORDS)
        found = np.zeros(len(alike), dtype=np.bool_)
        ends = np.searchsorted(self._first, first[alike], side="right")
        for step in range(int((ends - at[alike]).max())):  # once, but for digests that begin alike
            found |= np.all(self._words[np.minimum(at[alike] + step, len(self) - 1)] == whole, axis=1)
        return alike[found]

    def name_of(self, digest: str) -> str:
        """`corpus:id` of a held-out document with that digest."""
        for corpus in self._corpora:
            with suppress(EvidenceError):
                for _, batch in corpus.batches("digest", "id"):
                    for name in batch.filter(pc.equal(batch["digest"], digest))["id"].to_pylist():
                        return f"{corpus.name}:{name}"
        return digest


def digest_words(digests: pa.StringArray, count: int) -> NDArray[np.uint64]:
    """The first words of 64 bits of digests: uint64 [len(digests), count].

    Raises:
        EvidenceError: one is not `sha256:` with 64 hexadecimal digits.
    """
    length = len(_PREFIX) + _WORDS * _WORD_HEX
    ends = np.frombuffer(digests.buffers()[1], np.int32)[digests.offset :][: len(digests) + 1]
    if np.any(np.diff(ends) != length):
        raise EvidenceError(
            f"digests of documents: found one that is not sha256: with {_WORDS * _WORD_HEX} digits",
            expected="sha256: with 64 digits",
        )
    texts = np.frombuffer(digests.buffers()[2], np.uint8)[ends[0] : ends[-1]].reshape(-1, length)
    digits = _HEX[texts[:, len(_PREFIX) :][:, : count * _WORD_HEX]]
    if np.any(texts[:, : len(_PREFIX)] != _PREFIX) or digits.max(initial=0) > 15:
        raise EvidenceError(
            "digests of documents: found one that is not sha256: with hexadecimal digits", expected="hexadecimal digits"
        )
    joined = digits[:, ::2] << 4 | digits[:, 1::2]
    return np.ascontiguousarray(joined).view(">u8").astype(np.uint64)
