"""Parquet tables, written and read a row group at a time."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from treering.files import check_regular

_ROW_GROUP = 8192


def write_rows(path: Path, rows: Iterable[dict[str, Any]], schema: pa.Schema) -> int:
    """Streams rows into a Parquet file and returns their number; equal rows give equal bytes."""
    count = 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
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


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the rows of a Parquet file."""
    check_regular(path)
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=_ROW_GROUP):
            yield from batch.to_pylist()
