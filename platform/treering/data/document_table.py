"""The document table of a corpus, read in parts: a row group for a document, a column for a question about all."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from treering.errors import EvidenceError

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
"""Id, source URI and offset in it (see `treering.data.documents.RawDocument`), licence, number of tokens with the
end-of-document token, digest of those tokens."""

_KEPT_ROWS = 1 << 21


class DocumentTable:
    """A document table, opened; of hundreds of millions of documents only what is asked for is read.

    Args:
        path: the Parquet file.
        num_documents: rows that it must have.

    Raises:
        EvidenceError: it cannot be read, or is none of so many documents.
    """

    def __init__(self, path: Path, num_documents: int) -> None:
        self._path = path
        try:
            self._file = pq.ParquetFile(path)
            schema, metadata = self._file.schema_arrow, self._file.metadata
            names = ", ".join(schema.names)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise self._unreadable(error) from None
        if not schema.equals(DOCUMENT_SCHEMA) or metadata.num_rows != num_documents:
            raise EvidenceError(
                f"{path}: found {metadata.num_rows} rows of {names}, expected {num_documents} of "
                f"{', '.join(DOCUMENT_SCHEMA.names)} with their types; `dvc checkout` restores it"
            )
        rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        self._starts = np.concatenate(([0], np.cumsum(rows, dtype=np.int64)))
        self._groups: dict[int, pa.Table] = {}

    def row(self, index: int) -> dict[str, Any]:
        """The row of a document.

        Raises:
            EvidenceError: its row group cannot be read.
        """
        group = int(np.searchsorted(self._starts, index, side="right")) - 1
        # Kept are the last ones that were asked for, two million rows of them.
        table = self._groups.pop(group, None) or self._read(lambda: self._file.read_row_group(group))
        self._groups[group] = table
        while sum(each.num_rows for each in self._groups.values()) > _KEPT_ROWS and len(self._groups) > 1:
            self._groups.pop(next(iter(self._groups)))
        row: dict[str, Any] = table.slice(index - int(self._starts[group]), 1).to_pylist()[0]
        return row

    def column(self, name: str) -> pa.ChunkedArray:
        """One column, [num_documents].

        Raises:
            EvidenceError: it cannot be read.
        """
        return self._read(lambda: self._file.read(columns=[name])).column(name)

    def _read(self, read: Callable[[], pa.Table]) -> pa.Table:
        try:
            table = read()
            table.validate(full=True)  # a damaged text that is no UTF-8 would fail only where it is used
        except (OSError, ValueError, pa.ArrowException) as error:
            raise self._unreadable(error) from None
        return table

    def _unreadable(self, error: Exception) -> EvidenceError:
        return EvidenceError(f"{self._path}: unreadable ({error}); `dvc checkout` restores it")
