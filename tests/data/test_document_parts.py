from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import row_groups

from treering.data.corpus.document_table import DOCUMENT_SCHEMA, DocumentTable
from treering.errors import EvidenceError

ROWS = [
    {
        "id": f"doc-{n}",
        "source": f"s{n % 3}",
        "offset": n,
        "licence": "MIT",
        "tokens": n * n,
        "digest": f"sha256:{n:064x}",
    }
    for n in range(30)
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Thirty rows in four row groups."""
    pq.write_table(pa.Table.from_pylist(ROWS, schema=DOCUMENT_SCHEMA), tmp_path / "a.parquet")
    row_groups.split(tmp_path / "a.parquet")
    return tmp_path / "a.parquet"


def test_rows_come_in_the_order_of_their_numbers(path: Path) -> None:
    table = DocumentTable(path, 30)
    asked = [29, 0, 7, 8, 8, 24, 3]
    assert table.rows(asked, DOCUMENT_SCHEMA.names) == [ROWS[number] for number in asked]
    assert table.rows(np.array(asked), ["tokens"]) == [{"tokens": number * number} for number in asked]
    assert table.rows([], DOCUMENT_SCHEMA.names) == []


def test_batches_hold_every_row_once(path: Path) -> None:
    found = list(DocumentTable(path, 30).batches(["id"]))
    assert [first for first, _ in found] == [0, 8, 16, 24]
    assert [name for _, batch in found for name in batch["id"].to_pylist()] == [row["id"] for row in ROWS]
    assert {tuple(batch.schema.names) for _, batch in found} == {("id",)}


def test_only_the_row_groups_that_are_asked_for_are_read(path: Path) -> None:
    row_groups.spoil(path, keep={9, 29})
    table = DocumentTable(path, 30)
    assert table.rows([29, 8, 15], DOCUMENT_SCHEMA.names) == [ROWS[29], ROWS[8], ROWS[15]]
    with pytest.raises(EvidenceError, match=r"a\.parquet: unreadable \(rows 16 to 24: "):
        table.rows([29, 16], ["id"])
    with pytest.raises(EvidenceError, match=r"unreadable \(rows 0 to 8: "):
        list(table.batches(["id"]))


def test_only_the_columns_that_are_asked_for_are_read(path: Path) -> None:
    row_groups.spoil(path, columns={"id"})
    table = DocumentTable(path, 30)
    assert [value for _, batch in table.batches(["tokens"]) for value in batch["tokens"].to_pylist()] == [
        row["tokens"] for row in ROWS
    ]
    with pytest.raises(EvidenceError, match="unreadable"):
        table.rows([0], ["id"])


def test_what_is_no_utf_8_is_found_where_it_is_read(path: Path) -> None:
    pq.write_table(pq.read_table(path), path, row_group_size=8, compression="none", use_dictionary=False)
    data = bytearray(path.read_bytes())
    data[data.index(b"doc-17") + 1] = 0xFF
    path.write_bytes(data)
    table = DocumentTable(path, 30)
    assert table.rows([3], ["id"]) == [{"id": "doc-3"}]
    with pytest.raises(EvidenceError, match=r"unreadable \(rows 16 to 24: .*UTF8"):
        table.rows([16], ["id"])


def test_another_table_is_refused(path: Path) -> None:
    with pytest.raises(EvidenceError, match=r"found 30 rows of id, source, .*, expected 31 of id"):
        DocumentTable(path, 31)
    pq.write_table(pq.read_table(path).drop_columns(["tokens"]), path)
    with pytest.raises(EvidenceError, match="found 30 rows of id, source, offset, licence, digest, expected 30 of id"):
        DocumentTable(path, 30)


def test_what_is_no_table_is_refused(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(EvidenceError, match=r"a\.parquet: unreadable"):
        DocumentTable(path, 30)
