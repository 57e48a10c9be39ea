"""Where each document of a corpus begins, looked up in its `.idx` without reading the whole index."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from treering.data.corpus.index_header import HEADER, IndexHeader, opened_index
from treering.errors import EvidenceError


@dataclass(frozen=True, slots=True)
class MappedOffsets:
    """First token of each document, with the end, looked up in a memory-mapped `.idx`; a `data.order.spans.Offsets`.

    Opening reads only the header and the last entries, whatever the number of documents. The index must have one
    sequence for each document, as `index_bytes` writes it. The index holds the begin and the length of each document.
    Both are compared for the documents that are looked up, so that a changed byte is an error and never another answer.
    `Corpus.verify` digests the whole index.

    Attributes:
        path: the index.
        num_tokens: tokens of all documents.
        positions: byte of `.bin` at which each document begins: [num_documents], not aligned.
        lengths: tokens of each document: [num_documents], not aligned.
        token_width_bytes: bytes of a token.
    """

    path: Path
    num_tokens: int
    positions: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int32]
    token_width_bytes: int

    @classmethod
    def open(cls, idx_path: Path) -> "MappedOffsets":
        """Opens an index.

        Raises:
            EvidenceError: the index is missing, or does not have one sequence for each document.
        """
        with opened_index(idx_path, "an index of tokens") as file:
            header = IndexHeader.read(idx_path, file)
        num_sequences = header.num_sequences
        if header.num_offsets != num_sequences + 1 or not num_sequences or header.modes:
            raise EvidenceError(
                f"{idx_path}: found {num_sequences} sequences of {header.num_offsets - 1} documents"
                f"{' with modes' * header.modes}, expected one for each",
                file=idx_path,
                found=num_sequences,
                expected=header.num_offsets - 1,
            )
        lengths = np.memmap(idx_path, "<i4", "r", HEADER.size, (num_sequences,))
        positions = np.memmap(idx_path, "<i8", "r", header.pointers_at, (num_sequences,))
        width = header.dtype.itemsize
        if lengths[-1] < 1 or positions[-1] < 0 or positions[-1] % width:
            raise EvidenceError(
                f"{idx_path}: document {num_sequences - 1} begins at byte {positions[-1]} and has {lengths[-1]} tokens"
                f" of {width} bytes, expected a multiple of {width} and at least one token",
                file=idx_path,
                found=int(positions[-1]),
                expected=f"a multiple of {width}",
            )
        num_tokens = int(positions[-1]) // width + int(lengths[-1])
        return cls(idx_path, num_tokens, np.asarray(positions), np.asarray(lengths), width)

    def __len__(self) -> int:
        return len(self.positions) + 1

    def __getitem__(self, key: Any, /) -> Any:
        """Offsets by position: a whole number, a slice, or an array of whole numbers of at least 0.

        Raises:
            EvidenceError: the index contradicts itself about one of these documents.
        """
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            return self._stretch(start, stop) if step == 1 else self[np.arange(start, stop, step)]
        if isinstance(key, np.ndarray):
            found = self._at(key)
            self._check(key, found, self._at(np.minimum(key + 1, len(self) - 1)))
            return found
        return int(self[np.array([range(len(self))[key]])][0])

    def _at(self, key: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Offsets as the index holds them, unchecked."""
        found = self.positions[np.minimum(key, len(self) - 2)] // self.token_width_bytes
        found[key == len(self) - 1] = self.num_tokens
        return found

    def _stretch(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Offsets [start, stop), read and not mapped: a walk through all of them leaves no page of the file behind."""
        count = max(min(stop, len(self) - 1) - start, 0)
        begin = HEADER.size + 4 * len(self.positions) + 8 * start
        found, rest = np.divmod(np.fromfile(self.path, "<i8", count, offset=begin), self.token_width_bytes)
        if rest.any():
            self._within(start + int(np.flatnonzero(rest)[0]))
        if stop == len(self) > start:
            found = np.append(found, self.num_tokens)
        if len(found) > 1:
            lengths = np.fromfile(self.path, "<i4", len(found) - 1, offset=HEADER.size + 4 * start)
            wrong = np.flatnonzero((np.diff(found) != lengths) | (lengths < 1))
            if len(wrong):
                self._contradiction(start + int(wrong[0]), *found[wrong[0] :][:2].tolist())
        return found

    def _check(self, key: npt.NDArray[np.int64], begin: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> None:
        """Compares the lengths of documents with where they and the next ones begin; the end is not a document."""
        documents = np.minimum(key, len(self) - 2)
        within = np.flatnonzero(self.positions[documents] % self.token_width_bytes)
        if len(within):
            self._within(int(documents[within[0]]))
        lengths = self.lengths[documents]
        wrong = np.flatnonzero(((end - begin != lengths) | (lengths < 1)) & (key < len(self) - 1))
        if len(wrong):
            self._contradiction(int(key[wrong[0]]), int(begin[wrong[0]]), int(end[wrong[0]]))

    def _contradiction(self, document: int, begin: int, end: int) -> NoReturn:
        raise EvidenceError(
            f"{self.path}: document {document} begins at token {begin} and has {self.lengths[document]} tokens, but the"
            f" next one begins at token {end}: the index was changed; `treering verify` names what, `dvc checkout`"
            " restores it",
            file=self.path,
            found=end,
            expected=begin + int(self.lengths[document]),
            remedy="`dvc checkout`",
        )

    def _within(self, document: int) -> NoReturn:
        raise EvidenceError(
            f"{self.path}: document {document} begins at byte {self.positions[document]} of the token file, expected a"
            f" multiple of {self.token_width_bytes}: the index was changed; `treering verify` names what,"
            " `dvc checkout` restores it",
            file=self.path,
            found=int(self.positions[document]),
            expected=f"a multiple of {self.token_width_bytes}",
            remedy="`dvc checkout`",
        )

    def searchsorted(self, v: Any, side: str = "left") -> Any:
        """As `numpy.searchsorted`, which would copy the whole array, since the array is not aligned.

        Raises:
            EvidenceError: the index contradicts itself about a document next to a place that was found.
        """
        values = np.asarray(v, dtype=np.int64).reshape(-1)
        # Positions are compared in bytes, without a division. Byte b is below this bound where the token at b is below
        # the value (or equal to it, for "right"), also where a changed index holds no multiple of the width.
        bounds = (values + (side == "right")) * self.token_width_bytes
        found = np.zeros(values.shape, dtype=np.int64)
        rest = len(self.positions)
        while rest > 1:
            half = rest // 2
            found += half * (self.positions[found + (half - 1)] < bounds)
            rest -= half
        found += self.positions[found] < bounds
        found += (found == len(self.positions)) & (self.num_tokens * self.token_width_bytes < bounds)
        inside = found[(found > 0) & (found < len(self))] - 1
        self._check(inside, self._at(inside), self._at(inside + 1))
        return found.reshape(np.shape(v))
