"""Decisions: one row a raw document, what became of it and why. The audit asks here.

Columns: corpus, id, source, offset, licence (see `treering.data.documents.RawDocument`); characters of the extracted
text; kept; step and rule that dropped it, null for a kept one; near_duplicate_of (`corpus:id` of the document that is
kept in its stead, or of the held-out twin); cluster (`corpus:id` of the first document of its near-duplicate cluster,
null if it never got that far); split (`train`, `heldout` or null).
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = pa.schema(
    [
        pa.field("corpus", pa.string(), nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("licence", pa.string(), nullable=False),
        pa.field("characters", pa.int64(), nullable=False),
        pa.field("kept", pa.bool_(), nullable=False),
        pa.field("step", pa.string()),
        pa.field("rule", pa.string()),
        pa.field("near_duplicate_of", pa.string()),
        pa.field("cluster", pa.string()),
        pa.field("split", pa.string()),
    ]
)
STEPS = ("extract", "filter", "dedup", "heldout", "decontaminate")
"""Steps that drop documents, in their order."""

_ROW_GROUP = 8192


def write_rows(path: Path, rows: Iterable[dict[str, Any]], schema: pa.Schema = SCHEMA) -> int:
    """Streams rows into a Parquet file and returns their number."""
    count = 0
    with pq.ParquetWriter(path, schema, compression="zstd", write_statistics=False) as writer:
        group: list[dict[str, Any]] = []
        for row in rows:
            group.append(row)
            count += 1
            if len(group) == _ROW_GROUP:
                writer.write_table(pa.Table.from_pylist(group, schema=schema))
                group = []
        if group or not count:
            writer.write_table(pa.Table.from_pylist(group, schema=schema))
    return count


def read_rows(path: Path) -> Iterable[dict[str, Any]]:
    """Yields the rows of a Parquet file, a row group at a time."""
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=_ROW_GROUP):
            yield from batch.to_pylist()
