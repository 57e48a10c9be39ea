"""Document tables of many small row groups, some of them spoiled: what is not read cannot hurt."""

from pathlib import Path

import pyarrow.parquet as pq

ROWS = 8


def split(path: Path) -> None:
    """Writes a table again in row groups of eight rows."""
    pq.write_table(pq.read_table(path), path, row_group_size=ROWS)


def spoil(path: Path, keep: set[int] = frozenset(), columns: set[str] | None = None) -> None:
    """Overwrites every row group that holds none of the rows `keep`; of all columns, or of some."""
    metadata = pq.read_metadata(path)
    data = bytearray(path.read_bytes())
    for group in set(range(metadata.num_row_groups)) - {row // ROWS for row in keep}:
        for place in range(metadata.num_columns):
            column = metadata.row_group(group).column(place)
            if columns is None or column.path_in_schema in columns:
                start = column.dictionary_page_offset or column.data_page_offset
                data[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    path.write_bytes(data)
