"""Parquet tables, written and read a row group at a time."""

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from treering.files import check_regular

TABLE_ROWS = 8192
"""Rows of a row group."""


def write_rows(path: Path, rows: Iterable[dict[str, Any]], schema: pa.Schema) -> int:
    """Streams rows into a Parquet file and returns their number; equal rows give equal bytes."""
    remaining = iter(rows)
    groups = iter(lambda: list(itertools.islice(remaining, TABLE_ROWS)), [])
    return write_tables(path, (pa.Table.from_pylist(group, schema=schema) for group in groups), schema)


def write_tables(path: Path, tables: Iterable[pa.Table], schema: pa.Schema) -> int:
    """Streams tables into a Parquet file and returns the number of rows.

    Row groups do not depend on how the rows are spread over the tables: equal rows give equal bytes.
    """
    count = 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        waiting = schema.empty_table()
        for table in tables:
            waiting = pa.concat_tables([waiting, table])
            while len(waiting) >= TABLE_ROWS:
                writer.write_table(waiting.slice(0, TABLE_ROWS).combine_chunks())
                waiting = waiting.slice(TABLE_ROWS)
                count += TABLE_ROWS
        if len(waiting) or not count:
            writer.write_table(waiting.combine_chunks())
            count += len(waiting)
    return count


def read_tables(path: Path) -> Iterator[pa.Table]:
    """Yields the row groups of a Parquet file, as tables."""
    check_regular(path)
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=TABLE_ROWS):
            yield pa.Table.from_batches([batch])


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the rows of a Parquet file."""
    for table in read_tables(path):
        yield from table.to_pylist()
