"""The shelf: documents that passed the filter, each found by its number, and their signatures; all of it on disk.

Step filter writes one shelf for each corpus, in a work folder that the stage removes when it succeeds.
The next curation removes what a failed one left.
"""

import json
import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import orjson

DIGEST_BYTES = 16

_ENCODER = json.JSONEncoder(ensure_ascii=False)


def json_line(row: dict[str, Any]) -> bytes:
    """A document as a line of JSON Lines."""
    return _ENCODER.encode(row).encode("utf-8", "replace") + b"\n"


@dataclass(frozen=True, slots=True)
class Column:
    """One row of numbers for each document, on disk; a slice is read into memory.

    Attributes:
        path: the file: the rows one after another.
        dtype: of the numbers.
        width: numbers in a row.
    """

    path: Path
    dtype: str
    width: int

    @property
    def row_bytes(self) -> int:
        """Size of a row."""
        return self.width * np.dtype(self.dtype).itemsize

    def __len__(self) -> int:
        return self.path.stat().st_size // self.row_bytes

    def __getitem__(self, rows: slice) -> npt.NDArray[Any]:
        begin, end, _ = rows.indices(len(self))
        count = max(0, end - begin) * self.width
        return np.fromfile(self.path, self.dtype, count, offset=begin * self.row_bytes).reshape(-1, self.width)


class Signatures:
    """What is known about the documents of one shelf without their text.

    Args:
        prefix: path of the files, without their endings.

    Attributes:
        ends: byte at which each document's line ends: int64 [n, 1].
        rows: number of the raw document in its corpus: int64 [n, 1].
        digests: first 16 bytes of the sha256 of the text: uint8 [n, 16].
    """

    def __init__(self, prefix: Path) -> None:
        self.ends = Column(prefix.with_name(f"{prefix.name}.ends"), "int64", 1)
        self.rows = Column(prefix.with_name(f"{prefix.name}.rows"), "int64", 1)
        self.digests = Column(prefix.with_name(f"{prefix.name}.digests"), "uint8", DIGEST_BYTES)
        self._bands = prefix.with_name(f"{prefix.name}.bands")

    @property
    def bands(self) -> Column:
        """MinHash band hashes: uint64 [n, bands]. The files say how many bands a document has."""
        return Column(self._bands, "uint64", self._bands.stat().st_size // 8 // max(1, len(self)))

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files, in the order in which `SignatureWriter` writes them."""
        return self.ends.path, self.rows.path, self.digests.path, self._bands

    def __len__(self) -> int:
        return len(self.rows)


class SignatureWriter:
    """Writes the signatures of one shelf, document after document.

    Args:
        signatures: where to.
    """

    def __init__(self, signatures: Signatures) -> None:
        with ExitStack() as stack:
            self._files = [stack.enter_context(path.open("wb")) for path in signatures.paths]
            self._stack = stack.pop_all()

    def __enter__(self) -> "SignatureWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add(self, end: int, row: int, digest: bytes, bands: npt.NDArray[np.uint64]) -> None:
        """Appends a document, with its sha256."""
        values = (np.int64(end).tobytes(), np.int64(row).tobytes(), digest[:DIGEST_BYTES], bands.tobytes())
        for file, value in zip(self._files, values, strict=True):
            file.write(value)


class Shelf:
    """Random access to the documents of one corpus.

    Args:
        path: the JSON Lines file.
        ends: see `Signatures.ends`.
    """

    def __init__(self, path: Path, ends: Column) -> None:
        self._file: BinaryIO = path.open("rb")
        self._ends: BinaryIO = ends.path.open("rb")

    def document(self, index: int) -> dict[str, Any]:
        """The row of one document: id, text, source, offset, licence."""
        found = os.pread(self._ends.fileno(), 16, max(0, index - 1) * 8)
        ends = np.frombuffer(found, np.int64)
        start, end = (0, int(ends[0])) if index == 0 else ends.tolist()
        row: dict[str, Any] = orjson.loads(os.pread(self._file.fileno(), end - start, start))
        return row

    def close(self) -> None:
        """Closes the files."""
        self._file.close()
        self._ends.close()
