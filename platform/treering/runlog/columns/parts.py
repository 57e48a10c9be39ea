"""The files of the columns: rows of a part and its pyramid as Parquet, in bytes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from treering.runlog.columns.buckets import STATISTICS, Buckets
from treering.runlog.columns.head import Part, Summary
from treering.runlog.columns.rows import METRIC_PREFIX, Rows
from treering.runlog.columns.store import DamagedPartError, Store

PART_ROWS: Final = 1 << 17
"""Most rows of a part."""
LEVELS: Final = (4096, 64)
"""Rings in a bucket of the pyramid, one row group of the file for each."""
MERGED: Final = 2
"""New rows take in a part that is at most so many times as large: the number of small parts stays logarithmic."""


def rows_content(rows: Rows) -> bytes:
    """The file of a part's rows."""
    return _content([rows.to_arrow()], delta=("step", "end"))


def pyramid_content(rows: Rows) -> bytes:
    """The file of a part's buckets: for each level its statistics one after the other, a column for each metric."""
    tables = []
    singles = {name: Buckets.of_rows(rows.steps, series) for name, series in sorted(rows.metrics.items())}
    numbers = np.arange(len(rows))
    for level in LEVELS:
        starts = numbers[::level]
        ends = np.minimum(starts + level, len(rows)) - 1
        count = len(starts)
        columns: dict[str, Any] = {
            "rings": pa.array(np.full(count * len(STATISTICS), level, np.int32)),
            "statistic": pa.array(np.repeat(STATISTICS, count)).dictionary_encode(),
            "first_step": pa.array(np.tile(rows.steps[starts], len(STATISTICS))),
            "last_step": pa.array(np.tile(rows.steps[ends], len(STATISTICS))),
        }
        for name, single in singles.items():
            columns[f"{METRIC_PREFIX}{name}"] = pa.array(single.in_groups_of(level).to_rows())
        tables.append(pa.table(columns))
    return _content(tables, delta=("first_step", "last_step"))


def summaries(rows: Rows) -> dict[str, Summary]:
    """The summary of every metric of the rows."""
    found = {}
    for name, series in rows.metrics.items():
        every = Buckets.of_rows(rows.steps, series).in_groups_of(len(rows))
        some = bool(every.max_step[0])
        newest = int(np.flatnonzero(series.known)[-1])
        found[name] = Summary(
            int(every.count[0]),
            int(every.nans[0]),
            float(every.minimum[0]) if some else None,
            int(every.min_step[0]),
            float(every.maximum[0]) if some else None,
            int(every.max_step[0]),
            float(every.last[0]),
            int(rows.steps[newest]),
        )
    return found


def read_rows(store: Store, part: Part) -> Rows:
    """All rows of a part."""
    with _opened(store, part.name) as file:
        return Rows.of_arrow(file.read())


def read_columns(store: Store, part: Part, columns: Sequence[str]) -> dict[str, Any]:
    """Some columns of a part by name; those that it does not have are left out."""
    with _opened(store, part.name) as file:
        there = set(file.schema_arrow.names)
        table = file.read(columns=[name for name in columns if name in there], use_threads=False)
        return {name: table[name] for name in columns if name in there}


def read_buckets(store: Store, part: Part, metrics: Sequence[str], level: int) -> dict[str, Buckets]:
    """The buckets of a part's pyramid by metric; those that the part does not have are left out."""
    with _opened(store, part.pyramid) as file:
        there = set(file.schema_arrow.names)
        names = {name: f"{METRIC_PREFIX}{name}" for name in metrics if f"{METRIC_PREFIX}{name}" in there}
        wanted = ["first_step", "last_step", *names.values()]
        table = file.read_row_group(LEVELS.index(level), columns=wanted, use_threads=False)
        count = table.num_rows // len(STATISTICS)
        first, last = (table[name].to_numpy()[:count] for name in wanted[:2])
        return {name: Buckets.from_rows(first, last, table[column].to_numpy()) for name, column in names.items()}


@contextmanager
def _opened(store: Store, name: str) -> Iterator[Any]:
    try:
        with pq.ParquetFile(store.source(name), page_checksum_verification=True) as file:
            yield file
    except (OSError, KeyError, pa.ArrowException) as error:
        raise DamagedPartError(f"{name}: {error}") from error


def _content(tables: Sequence[Any], delta: Sequence[str]) -> bytes:
    """Row groups as a Parquet file: floats split into streams of bytes, which compress, with a checksum a page."""
    schema = tables[0].schema
    dictionary = [field.name for field in schema if pa.types.is_dictionary(field.type)]
    encoding = {field.name: "BYTE_STREAM_SPLIT" for field in schema if pa.types.is_float64(field.type)}
    encoding |= dict.fromkeys(delta, "DELTA_BINARY_PACKED")
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        compression_level=3,
        use_dictionary=dictionary,
        column_encoding=encoding,
        write_statistics=False,
        write_page_checksum=True,
    ) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=max(1, table.num_rows))
    return bytes(sink.getvalue().to_pybytes())
