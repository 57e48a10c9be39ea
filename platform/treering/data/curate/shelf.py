"""The shelf: documents that passed the filter, on disk, each found by its number; and their signatures, in memory.

Step filter writes one shelf for each corpus, in a work folder that the stage removes at its end.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Signatures:
    """What is in memory about the documents of one shelf.

    Attributes:
        offsets: byte at which each document's line starts, with the end: int64 [n + 1].
        rows: number of the raw document in its corpus: int64 [n].
        digests: first 16 bytes of the sha256 of the text: uint8 [n, 16].
        bands: MinHash band hashes: uint64 [n, bands].
    """

    offsets: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    digests: npt.NDArray[np.uint8]
    bands: npt.NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.rows)

    def save(self, path: Path) -> None:
        """Writes the four arrays."""
        np.savez(path, offsets=self.offsets, rows=self.rows, digests=self.digests, bands=self.bands)

    @classmethod
    def load(cls, path: Path) -> "Signatures":
        """Reads what `save` wrote."""
        with np.load(path) as arrays:
            return cls(arrays["offsets"], arrays["rows"], arrays["digests"], arrays["bands"])


class Shelf:
    """Random access to the documents of one corpus.

    Args:
        path: the JSON Lines file.
        offsets: see `Signatures.offsets`.
    """

    def __init__(self, path: Path, offsets: npt.NDArray[np.int64]) -> None:
        self._file: BinaryIO = path.open("rb")
        self._offsets = offsets

    def document(self, index: int) -> dict[str, Any]:
        """The row of one document: id, text, source, offset, licence."""
        start, end = int(self._offsets[index]), int(self._offsets[index + 1])
        self._file.seek(start)
        row: dict[str, Any] = json.loads(self._file.read(end - start))
        return row

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
