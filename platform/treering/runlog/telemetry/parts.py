"""Parts: readings of all nodes as a Parquet file, sorted by series, compressed by zstd, with a checksum a page.

A part's name holds its numbers (a merged part has those of the parts in it), first and last time in Unix milliseconds,
and rows, so that a reader opens only the parts that it needs.
"""

import json
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from treering.files import read_bytes
from treering.runlog.telemetry.live import Segment
from treering.runlog.telemetry.readings import Floats, Readings
from treering.runlog.telemetry.schema import FLOAT32, PER_UNIT

PARTS: Final = "parts"
PART_ROWS: Final = 1 << 19
"""Most rows of a merged part."""
_SOURCES: Final = b"treering.sources"
_KEYS: Final = ("time", "node", "rank", "device")
_NAME = re.compile(r"^(\d{8,})-(\d{8,})\.(-?\d+)_(-?\d+)\.(\d+)\.parquet$")


class DamagedPartError(Exception):
    """A part cannot be read; readers count it."""


class PartName(NamedTuple):
    """What a part's name says.

    Attributes:
        first: number of the first part in it.
        last: number of the last part in it.
        since: Unix milliseconds of the earliest row.
        until: of the latest row.
        rows: how many rows.
    """

    first: int
    last: int
    since: int
    until: int
    rows: int

    def __str__(self) -> str:
        return f"{self.first:08d}-{self.last:08d}.{self.since}_{self.until}.{self.rows}.parquet"

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Reads a file's name; None for any other file."""
        match = _NAME.match(name)
        return cls(*map(int, match.groups())) if match else None

    @classmethod
    def of(cls, first: int, last: int, readings: Readings) -> Self:
        """The name of readings."""
        times = np.rint(readings.times * 1000)
        return cls(first, last, int(times.min()), int(times.max()), len(readings))


def part_names(folder: Path) -> list[PartName]:
    """The parts of an attempt's `telemetry/` that count, in order: what is in a merged part does not."""
    return _valid(_named(folder))


def superseded(folder: Path) -> list[PartName]:
    """The parts whose rows are in a merged part: their writer was killed before it removed them."""
    every = _named(folder)
    return sorted(set(every) - set(_valid(every)))


def encode(readings: Readings, sources: Iterable[Segment] = ()) -> bytes:
    """The file of sorted readings.

    Args:
        readings: at least one row.
        sources: the live files that the newest of its parts was made from.
    """
    keys = (np.rint(readings.times * 1000).astype(np.int64), readings.nodes, readings.ranks, readings.devices)
    columns: dict[str, Any] = {name: pa.array(key) for name, key in zip(_KEYS, keys, strict=True)}
    columns |= {name: _stored(name, column) for name, column in readings.values.items()}
    metadata = {_SOURCES: json.dumps([each.name for each in sources]).encode()}
    return parquet(pa.table(columns).replace_schema_metadata(metadata))


def parquet(table: Any) -> bytes:
    """A table as a Parquet file: numbers split into streams of bytes, of which the high ones compress to nothing."""
    encoding = {field.name: "BYTE_STREAM_SPLIT" for field in table.schema if not pa.types.is_dictionary(field.type)}
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        table.schema,
        compression="zstd",
        use_dictionary=[field.name for field in table.schema if field.name not in encoding],
        column_encoding=encoding,
        write_statistics=False,
        write_page_checksum=True,
    ) as writer:
        writer.write_table(table, row_group_size=max(1, table.num_rows))
    return bytes(sink.getvalue().to_pybytes())


def read_part(folder: Path, name: PartName, columns: Collection[str] | None = None) -> Readings:
    """The rows of a part.

    Args:
        folder: the attempt's `telemetry/`.
        name: of the part.
        columns: metrics to read; None: all.

    Raises:
        DamagedPartError: the file is not whole.
        FileNotFoundError: it has gone into another part.
    """
    table = read_table(folder / PARTS / str(name), None if columns is None else (*_KEYS, *columns))
    times, nodes, ranks, devices = (table[key].to_numpy() for key in _KEYS)
    names = [each for each in table.column_names if each not in _KEYS]
    return Readings(times / 1000, nodes, ranks, devices, {each: _floats(each, table[each]) for each in names})


def sources(folder: Path, name: PartName) -> set[Segment]:
    """The live files that the newest rows of a part came from.

    Raises:
        DamagedPartError: the file is not whole.
        FileNotFoundError: it has gone into another part.
    """
    path = folder / PARTS / str(name)
    try:
        metadata = pq.read_schema(path).metadata or {}
        found = json.loads(metadata.get(_SOURCES, b"[]"))
        return {segment for each in found if (segment := Segment.parse(str(each)))}
    except FileNotFoundError:
        raise
    except (OSError, ValueError, TypeError, pa.ArrowException) as error:
        raise DamagedPartError(f"{path}: {error}") from error


def read_table(path: Path, columns: Sequence[str] | None = None) -> Any:
    """A Parquet file as a table; columns that it does not have are left out.

    Raises:
        DamagedPartError: the file is not whole.
        FileNotFoundError: there is no such file.
    """
    try:
        with pq.ParquetFile(pa.BufferReader(read_bytes(path)), page_checksum_verification=True) as file:
            there = set(file.schema_arrow.names)
            wanted = None if columns is None else [name for name in columns if name in there]
            return file.read(columns=wanted, use_threads=False)
    except FileNotFoundError:
        raise
    except (OSError, KeyError, pa.ArrowException) as error:
        raise DamagedPartError(f"{path}: {error}") from error


def _named(folder: Path) -> list[PartName]:
    try:
        names = [path.name for path in (folder / PARTS).iterdir()]
    except OSError:
        return []
    return [found for name in names if (found := PartName.parse(name))]


def _valid(every: Iterable[PartName]) -> list[PartName]:
    """Drops parts within another one's numbers: the widest first among those that begin together."""
    kept: list[PartName] = []
    for name in sorted(every, key=lambda each: (each.first, -each.last)):
        if not kept or name.last > kept[-1].last:
            kept.append(name)
    return kept


def _stored(name: str, column: Floats) -> Any:
    per_unit = PER_UNIT.get(name)
    if per_unit is None:
        kind = pa.float32() if name.startswith(FLOAT32) else pa.float64()
        return pa.array(column, kind, mask=np.isnan(column))
    missing = ~np.isfinite(column)
    return pa.array(np.rint(np.where(missing, 0.0, column) * per_unit).astype(np.int64), mask=missing)


def _floats(name: str, column: Any) -> Floats:
    values: Floats = column.to_numpy().astype(np.float64)
    per_unit = PER_UNIT.get(name, 1)
    return values if per_unit == 1 else values / per_unit
