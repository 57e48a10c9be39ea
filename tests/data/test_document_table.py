"""The document table, read in parts: every row and column as written, few rows kept, damage named."""

import random

import numpy as np
import pyarrow as pa
import pytest

from treering.data.corpus import document_table
from treering.data.corpus.corpus import BIN, DOCUMENTS, IDX, MANIFEST, Corpus, token_digest
from treering.data.corpus.document_table import DOCUMENT_SCHEMA, DocumentTable
from treering.data.corpus.indexed import index_bytes
from treering.data.corpus.manifest import SCHEMA_VERSION, describe_file, write_manifest
from treering.data.corpus.table import write_rows, write_tables
from treering.errors import EvidenceError

LENGTHS = [1 + number * 7 % 11 for number in range(100)]


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """A corpus of 100 documents in row groups of 7."""
    monkeypatch.setattr("treering.data.corpus.table.TABLE_ROWS", 7)
    tokens = np.arange(sum(LENGTHS), dtype="<u2")
    parts = np.split(tokens, np.cumsum(LENGTHS)[:-1])
    rows = [
        {
            "id": f"d{number}", "source": "é" * number, "offset": number, "licence": "MIT",
            "tokens": len(part), "digest": token_digest(part),
        }
        for number, part in enumerate(parts)
    ]  # fmt: skip
    write_rows(tmp_path / DOCUMENTS, rows, DOCUMENT_SCHEMA)
    tokens.tofile(tmp_path / BIN)
    (tmp_path / IDX).write_bytes(index_bytes(np.array(LENGTHS, dtype=np.int32)))
    content = {
        "name": "parts", "schema_version": SCHEMA_VERSION, "num_documents": 100, "num_tokens": sum(LENGTHS),
        "token_width_bytes": 2, "files": {name: describe_file(tmp_path / name) for name in (BIN, IDX, DOCUMENTS)},
    }  # fmt: skip
    write_manifest(tmp_path / MANIFEST, content)
    return Corpus.open(tmp_path), rows


def test_row_groups_do_not_depend_on_how_rows_come(corpus, tmp_path):
    opened, rows = corpus
    whole = pa.Table.from_pylist(rows, schema=DOCUMENT_SCHEMA)
    for parts in ([100], [1] * 100, [0, 13, 14, 0, 15, 58]):
        ends = np.cumsum(parts)
        tables = (whole.slice(end - size, size) for end, size in zip(ends.tolist(), parts, strict=True))
        assert write_tables(tmp_path / "again.parquet", tables, DOCUMENT_SCHEMA) == 100
        assert (tmp_path / "again.parquet").read_bytes() == (opened.directory / DOCUMENTS).read_bytes()


def test_rows_and_columns_are_those_that_were_written(corpus, monkeypatch):
    opened, rows = corpus
    monkeypatch.setattr(document_table, "_KEPT_ROWS", 20)
    chance = random.Random(2)
    for number in [*range(100), *(chance.randrange(100) for _ in range(100))]:
        assert opened.document(number) == rows[number]
        assert opened.document_tokens(number).tolist() == opened.tokens(*opened.document_offsets[number:][:2]).tolist()
    assert len(opened._table._groups) == 2
    for name in DOCUMENT_SCHEMA.names:
        column = [value for _, batch in opened.batches(name) for value in batch[name].to_pylist()]
        assert column == [row[name] for row in rows]
    for outside in (-1, 100):
        with pytest.raises(IndexError, match=f"document {outside} of 100"):
            opened.document(outside)
        with pytest.raises(IndexError, match=f"document {outside} of 100"):
            opened.document_tokens(outside)


def test_a_document_is_read_from_its_row_group_alone(corpus, monkeypatch):
    opened, rows = corpus
    read = []
    whole = DocumentTable._read
    monkeypatch.setattr(DocumentTable, "_read", lambda self, *part: read.append(part[0]) or whole(self, *part))
    assert opened.document(50) == rows[50]
    assert opened.document(51) == rows[51]
    assert read == [50 // 7]


def test_a_damaged_part_is_named_and_the_others_answer(corpus):
    opened, rows = corpus
    path = opened.directory / DOCUMENTS
    content = bytearray(path.read_bytes())
    start = content.index(b"d50") - 40
    content[start : start + 80] = bytes(80)
    path.write_bytes(content)
    again = Corpus.open(opened.directory)
    with pytest.raises(EvidenceError, match=r"(?s)documents.parquet: unreadable \(.*`dvc checkout` restores it"):
        again.document(50)
    assert again.document(0) == rows[0]


def test_a_table_of_other_rows_is_refused(corpus):
    opened, _rows = corpus
    with pytest.raises(EvidenceError, match=r"found 100 rows of id, source, .*, expected 99 of id"):
        DocumentTable(opened.directory / DOCUMENTS, 99)


def test_an_index_entry_that_leads_nowhere_is_named(corpus):
    opened, _rows = corpus
    path = opened.directory / IDX
    content = bytearray(path.read_bytes())
    content[34 + 4 * 100 + 8 * 10 + 6] ^= 0xFF  # where document 10 begins
    path.write_bytes(content)
    with pytest.raises(EvidenceError, match=r"corpus\.idx: document 10 begins at token \d+ and has"):
        Corpus.open(opened.directory).document_tokens(10)
