"""Reads your own data: JSON Lines, Parquet, data sets on disk and web archives become documents, piece by piece.

An id that is missing is made of the file's name and the line or row, counted from 1, as in `texts.jsonl:17`.
"""

import gzip
import io
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq

from treering.config.canonical import digest_file, parse_json
from treering.config.corpora import CorpusConfig
from treering.data.sources.documents import RECORD, Intake, RawDocument
from treering.data.sources.own_files import DATASET_STATE, checked_name, dataset_shards
from treering.data.sources.pieces import Piece
from treering.data.sources.stored import StoredFiles
from treering.data.sources.web_pages import pages, texts
from treering.errors import UserError
from treering.files import check_regular, open_regular

_BUFFER: Final = 1 << 20
_ROWS: Final = 1024
_DAMAGED: Final = (OSError, EOFError, zlib.error, pa.ArrowException)
_OPTIONAL: Final = ("id", "source", "licence")
_SHOWN: Final = 12

Row = dict[str, Any]


def own_names(corpus: CorpusConfig, directory: Path) -> list[str]:
    """The files of a corpus of your own data below its folder, in the order in which they are read.

    Raises:
        UserError: there is none, or a name is not UTF-8.
    """
    form, given = corpus.own or ("jsonl", "")
    names = [checked_name(corpus, name) for name in _names(form, given, directory)]
    if not names:
        raise UserError(f"corpus {corpus.name}: {directory} does not hold {given}; run `treering fetch` first")
    return names


def read_own(corpus: CorpusConfig, directory: Path, pieces: Iterable[Piece], intake: Intake) -> Iterator[RawDocument]:
    """Yields the documents of pieces of your own data, in their order.

    Args:
        corpus: the corpus's config.
        directory: the folder that the pieces are named in.
        pieces: what is read. The digest of a piece is the source of a document that names none.
        intake: counts the files.

    Raises:
        UserError: a file is damaged, or a document is not what was expected; with file, line and field.
    """
    form, _ = corpus.own or ("jsonl", "")
    rows = {"jsonl": _jsonl_rows, "parquet": _parquet_rows, "dataset": _arrow_rows, "warc": pages, "wet": texts}[form]
    unit = {"jsonl": "line", "warc": RECORD, "wet": RECORD}.get(form, "row")
    stored = StoredFiles(corpus) if corpus.stored else None
    for piece in pieces:
        intake.num_files_read += piece.begin == 0
        intake.file, intake.unit = f"corpus {corpus.name}: {piece.name}", unit
        try:
            with _file(directory, piece) if stored is None else stored.file(piece, intake) as (path, content):
                for offset, row in rows(path, piece, intake, corpus.text_field):
                    key = row["id"] or f"{piece.name}:{offset + 1}"
                    source, licence = row.get("source") or content, row.get("licence") or corpus.licence
                    yield RawDocument(key, row[corpus.text_field], source, offset, licence)
        except _DAMAGED as error:
            raise UserError(
                f"{intake.file}: damaged or cut off ({' '.join(str(error).split())}), expected a whole file; copy it "
                "again and run `treering fetch`"
            ) from None


@contextmanager
def _file(directory: Path, piece: Piece) -> Iterator[tuple[Path, str]]:
    """The file of a piece, and its digest."""
    path = directory / piece.name
    check_regular(path)
    yield path, digest_file(path) if piece.digest is None else piece.digest


def _names(form: str, given: str, directory: Path) -> list[str]:
    if form == "dataset":
        return dataset_shards(directory) if (directory / DATASET_STATE).is_file() else []
    last = Path(given).name
    if (directory / last).is_file():
        return [last]
    if Path(given).suffix[1:2].isalpha() and not any(sign in given for sign in "*?["):
        return []  # another file than the one that was fetched
    files = (path for path in directory.rglob("*") if path.is_file())
    return sorted(path.relative_to(directory).as_posix() for path in files)


def _jsonl_rows(path: Path, piece: Piece, intake: Intake, text_field: str) -> Iterator[tuple[int, Row]]:
    with open_regular(path) as file:
        file.seek(piece.begin)
        position = piece.begin
        for number, line in enumerate(_plain(path, file), piece.first):
            if piece.end is not None and position >= piece.end:
                return
            position += len(line)
            if line.strip():
                yield number, _checked(_parsed(line, intake.at(number)), intake.at(number), text_field)


def _plain(path: Path, file: io.BufferedReader) -> Iterable[bytes]:
    """The lines of a file that may be compressed."""
    if path.suffix == ".gz":
        return gzip.GzipFile(fileobj=file)
    if path.suffix == ".zst":
        return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd"), _BUFFER)
    return file


def _parsed(line: bytes, where: str) -> Row:
    """The object of a line.

    Raises:
        UserError: it is no JSON object.
    """
    try:
        row = parse_json(line.decode("utf-8-sig"))  # some editors begin a file with a byte order mark
    except ValueError as error:
        raise UserError(f"{where}: not valid JSON ({error}), expected one object a line, in UTF-8") from None
    if not isinstance(row, dict):
        raise UserError(f"{where}: found {type(row).__name__}, expected one object a line")
    return row


def _parquet_rows(path: Path, piece: Piece, intake: Intake, text_field: str) -> Iterator[tuple[int, Row]]:
    with pq.ParquetFile(path) as file:
        columns = _columns(file.schema_arrow, intake.file, text_field)
        groups = range(piece.begin, file.num_row_groups if piece.end is None else piece.end)
        batches = file.iter_batches(_ROWS, columns=columns, row_groups=groups)
        yield from _table_rows(batches, piece.first, intake, text_field)


def _arrow_rows(path: Path, piece: Piece, intake: Intake, text_field: str) -> Iterator[tuple[int, Row]]:
    with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as stream:
        columns = _columns(stream.schema, intake.file, text_field)
        yield from _table_rows((batch.select(columns) for batch in stream), piece.first, intake, text_field)


def _columns(schema: pa.Schema, where: str, text_field: str) -> list[str]:
    """The columns that a document is made of.

    Raises:
        UserError: the column of the text is missing.
    """
    if text_field not in schema.names:
        _refuse_without_text(where, text_field, schema.names)
    return [name for name in schema.names if name == text_field or name in _OPTIONAL]


def _table_rows(
    batches: Iterable[pa.RecordBatch], number: int, intake: Intake, text_field: str
) -> Iterator[tuple[int, Row]]:
    for batch in batches:
        for row in _python_rows(batch, number, intake):
            yield number, _checked(row, intake.at(number), text_field)
            number += 1


def _python_rows(batch: pa.RecordBatch, number: int, intake: Intake) -> list[Row]:
    """The rows of a batch.

    Args:
        batch: some rows of a file.
        number: rows before it.
        intake: names the file.

    Raises:
        UserError: a string is not UTF-8; Arrow does not look.
    """
    rows: list[Row] = []
    try:
        rows = batch.to_pylist()
    except UnicodeDecodeError:
        for place in range(len(batch)):
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                try:
                    column[place].as_py()
                except UnicodeDecodeError as error:
                    raise UserError(
                        f"{intake.at(number + place)}: {name} is not UTF-8 ({error}), expected text; write the column "
                        "again, as UTF-8"
                    ) from None
    return rows


def _checked(row: Row, where: str, text_field: str) -> Row:
    """A row whose fields have the right types; an id that is a number becomes its digits, a missing one None.

    Raises:
        UserError: a field is missing or of a wrong type.
    """
    if text_field not in row:
        _refuse_without_text(where, text_field, list(row))
    key = row.get("id")
    row["id"] = str(key) if isinstance(key, int) and not isinstance(key, bool) else key
    if row["id"] is not None and (not isinstance(row["id"], str) or not row["id"]):
        raise UserError(f"{where}: id is {_short(key)}, expected a non-empty string, an integer, or none")
    for field, kinds in ((text_field, str), ("source", str | None), ("licence", str | None)):
        if not isinstance(row.get(field), kinds):
            raise UserError(f"{where}: {field} is {_short(row.get(field))}, expected a string")
    for field in _OPTIONAL:
        if any("\ud800" <= character <= "\udfff" for character in row.get(field) or ""):
            raise UserError(f"{where}: {field} is {row[field]!r}, expected characters, not half of a surrogate pair")
    return row


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _refuse_without_text(where: str, text_field: str, found: list[str]) -> NoReturn:
    names = ", ".join(map(repr, found[:_SHOWN])) or "none"
    raise UserError(
        f"{where}: field {text_field!r} is missing (found {names}), expected the text of the document; name its "
        "field: text_field of the corpus, or `treering init --text-field`"
    )
