"""The document table of a corpus, read in parts: a row group for one document, a column for a question about all."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from treering.errors import EvidenceError
from treering.files import check_regular

DOCUMENT_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("licence", pa.string(), nullable=False),
        pa.field("tokens", pa.int64(), nullable=False),
        pa.field("digest", pa.string(), nullable=False),
    ]
)
"""Id, source URI and offset in it (see `data.sources.documents.RawDocument`), licence, number of tokens with the
end-of-document token, digest of those tokens."""

_KEPT_ROWS = 1 << 18
_BATCH = 1 << 16
_UNREADABLE = (OSError, ValueError, pa.ArrowException)


class DocumentTable:
    """A document table, opened; of hundreds of millions of rows only the requested ones are read.

    Opening reads the footer. In memory are a batch of one row group, and the rows that `row` keeps.

    Args:
        path: the Parquet file.
        num_documents: rows that it must have.

    Raises:
        EvidenceError: the file cannot be read, or is not a document table of that many rows.
    """

    def __init__(self, path: Path, num_documents: int) -> None:
        self._path = path
        try:
            check_regular(path)
            self._file = pq.ParquetFile(path)
            schema, metadata = self._file.schema_arrow, self._file.metadata
            names = ", ".join(schema.names)  # a damaged name that is not UTF-8 fails only where it is read
            rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        except _UNREADABLE as error:
            raise self._damaged(f"unreadable ({error})", str(error), "a Parquet file") from None
        whole = metadata.num_rows == sum(rows) == num_documents and min(rows, default=0) >= 0
        if not schema.equals(DOCUMENT_SCHEMA) or not whole:
            found = f"{metadata.num_rows} rows of {names}"
            expected = f"{num_documents} of {', '.join(DOCUMENT_SCHEMA.names)} with their types"
            raise self._damaged(f"found {found}, expected {expected}", found, expected)
        self._starts: NDArray[np.int64] = np.concatenate(([0], np.cumsum(rows, dtype=np.int64)))
        self._groups: dict[int, pa.Table] = {}

    def row(self, index: int) -> dict[str, Any]:
        """The row of a document; the row groups of the latest documents are kept.

        Raises:
            EvidenceError: its row group cannot be read.
        """
        group = int(np.searchsorted(self._starts, index, side="right")) - 1
        table = self._groups.pop(group, None)
        if table is None:
            table = pa.Table.from_batches([batch for _, batch in self._read(group, DOCUMENT_SCHEMA.names)])
        self._groups[group] = table
        while sum(each.num_rows for each in self._groups.values()) > _KEPT_ROWS and len(self._groups) > 1:
            self._groups.pop(next(iter(self._groups)))
        row: dict[str, Any] = table.slice(index - int(self._starts[group]), 1).to_pylist()[0]
        return row

    def rows(self, numbers: Sequence[int] | NDArray[np.int64], columns: Sequence[str]) -> list[dict[str, Any]]:
        """Some columns of some rows, in the order of their numbers; each row group is read once.

        Raises:
            EvidenceError: a row group that is read is damaged.
        """
        wanted, back = np.unique(np.asarray(numbers, dtype=np.int64), return_inverse=True)
        groups = np.searchsorted(self._starts, wanted, side="right") - 1
        found: list[dict[str, Any]] = []
        for group in np.unique(groups).tolist():
            for first, batch in self._read(group, columns):
                inside = wanted[(wanted >= first) & (wanted < first + len(batch))]
                found += batch.take(pa.array(inside - first)).to_pylist()
        return [found[position] for position in back.tolist()]

    def batches(self, columns: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Some columns of all rows, in order: the number of a batch's first row, and the batch.

        Raises:
            EvidenceError: a row group that is read is damaged.
        """
        for group in range(len(self._starts) - 1):
            yield from self._read(group, columns)

    def _read(self, group: int, columns: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        first, end = self._starts[group : group + 2].tolist()
        place = f"rows {first} to {end}"
        try:
            for batch in self._file.iter_batches(_BATCH, row_groups=[group], columns=list(columns), use_threads=False):
                batch.validate(full=True)  # a damaged text that is not UTF-8 would fail only where it is used
                yield first, batch
                first += len(batch)
        except _UNREADABLE as error:
            raise self._damaged(f"unreadable ({place}: {error})", str(error), f"readable {place}") from None
        if first != end:
            raise self._damaged(f"unreadable ({place}: they end at row {first})", f"an end at row {first}", place)

    def _damaged(self, problem: str, found: str, expected: str) -> EvidenceError:
        return EvidenceError(
            f"{self._path}: {problem}; `dvc checkout` restores it",
            file=self._path,
            found=found,
            expected=expected,
            remedy="`dvc checkout`",
        )
