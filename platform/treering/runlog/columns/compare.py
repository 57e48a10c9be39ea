"""Whether the columns of an attempt are what its rings give: what a rebuild of them would change."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from treering.runlog.columns.attempt import COLUMNS, Attempt, AttemptColumns
from treering.runlog.columns.head import Head, Part, read_head
from treering.runlog.columns.parts import pyramid_content, read_rows
from treering.runlog.columns.rows import METRIC_PREFIX, Rows, Series
from treering.runlog.columns.store import DamagedPartError, FolderStore


def columns_difference(attempt: Attempt) -> tuple[str, bool] | None:
    """The first difference between an attempt's columns and new ones; nothing is written.

    Args:
        attempt: the attempt.

    Returns:
        What it is, and whether the columns only lack the newest rings; None where they are equal.

    Raises:
        EvidenceError: a ring was changed, removed or put in.
    """
    folder = attempt.path / COLUMNS
    expected = AttemptColumns(attempt, keep=False)
    whole = expected.head()
    head = read_head(folder)
    if head is None:
        return (f"{folder}: found no columns, expected {whole.rings} rings", True) if whole.rings else None
    if text := next(_differences(FolderStore(folder), head, expected), None):
        return f"{folder}: {text}", False
    if head.rings < whole.rings:
        return f"{folder}: found {head.rings} rings, expected {whole.rings}", True
    names = {*head.metrics, *whole.metrics}
    same = all(name in head.metrics and head.metrics[name].is_same(whole.metrics.get(name)) for name in names)
    if not same or head.tokens != whole.tokens:
        return f"{folder}/head.json: found other extreme or newest values than the rings have", False
    return None


def _differences(store: FolderStore, head: Head, expected: AttemptColumns) -> Iterator[str]:
    last = expected.ring(head.last_step) if head.rings else None
    if head.rings and (last is None or last.digest != head.place.prev):
        yield f"found columns up to ring {head.place.prev}, which the attempt does not have"
    for part in head.parts:
        try:
            rows = read_rows(store, part)
            yield from _unequal_rows(part, rows, expected)
            yield from _unequal_pyramid(store, part, rows)
        except DamagedPartError as error:
            yield f"found a damaged part: {error}"


def _unequal_rows(part: Part, rows: Rows, expected: AttemptColumns) -> Iterator[str]:
    names = expected.head().metrics
    columns = ["ended_at", "tokens", *(f"{METRIC_PREFIX}{name}" for name in names)]
    steps, series = expected.series(columns, part.first_step - 1, part.last_step)
    if steps.tolist() != rows.steps.tolist():
        yield f"{part.name}: found {len(rows)} steps, expected {len(steps)}"
        return
    if (
        not np.array_equal(series["ended_at"].values, rows.ended_at)
        or _differ(series["tokens"], rows.tokens) is not None
    ):
        yield f"{part.name}: found other times or tokens than the rings have"
    for name in sorted({*names, *rows.metrics}):
        want, have = series.get(f"{METRIC_PREFIX}{name}", Series.missing(len(rows))), rows.series(name)
        if (row := _differ(want, have)) is not None:
            yield f"{part.name}: metric {name} at step {steps[row]}: found {_at(have, row)}, expected {_at(want, row)}"


def _differ(one: Series, other: Series) -> int | None:
    """The first row that differs."""
    same = (one.known == other.known) & ((one.values == other.values) | (np.isnan(one.values) & np.isnan(other.values)))
    same |= ~one.known & ~other.known
    return None if same.all() else int(np.argmin(same))


def _at(series: Series, row: int) -> float | None:
    return float(series.values[row]) if series.known[row] else None


def _unequal_pyramid(store: FolderStore, part: Part, rows: Rows) -> Iterator[str]:
    try:
        found = pq.read_table(store.source(part.pyramid))
    except (OSError, pa.ArrowException) as error:
        yield f"{part.pyramid}: cannot be read ({error})"
        return
    expected = pq.read_table(pa.BufferReader(pyramid_content(rows)))
    if found.column_names != expected.column_names or found.num_rows != expected.num_rows:
        yield f"{part.pyramid}: found other metrics or buckets than the rows give"
        return
    for name in found.column_names:
        one, other = (_plain(table[name]) for table in (found, expected))
        numbers = one.dtype.kind == "f"
        if not np.array_equal(one, other, equal_nan=numbers):
            yield f"{part.pyramid}: {name.removeprefix(METRIC_PREFIX)}: found other buckets than the rows give"


def _plain(column: Any) -> Any:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column.to_numpy()
