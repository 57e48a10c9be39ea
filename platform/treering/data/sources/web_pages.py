"""The documents of web archives: HTML pages of WARC files, texts of WET files.

A page is a record of type `response` whose server answered with status 200 and HTML. Its id is the record's id with the
date of the crawl, its source the page's address, its offset the byte at which the record begins: with date and address
an index of the crawl finds the record again. All other records are counted by the reason why they are no document;
a page that the crawler cut off, or put into several records, is counted and taken as far as its first record goes.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from warcio.limitreader import LimitReader
from warcio.recordloader import ArcWarcRecord
from warcio.statusandheaders import StatusAndHeaders, StatusAndHeadersParser

from treering.data.sources.documents import Intake
from treering.data.sources.html_bytes import GZIP, MAX_BYTES, dechunked, decoded, html_text
from treering.data.sources.pieces import Piece
from treering.data.sources.warc_records import HEADER_BYTES, read_records

Row = dict[str, Any]

_HTTP: Final = StatusAndHeadersParser([], verify=False)
_HTML: Final = ("text/html", "application/xhtml+xml")
_TYPES: Final = ("warcinfo", "response", "resource", "request", "metadata", "revisit", "conversion", "continuation")
_STATUS: Final = re.compile(r"[1-5][0-9]{2}")
_CUT_OFF: Final = "cut off by the crawler"
_TOO_LARGE: Final = f"larger than {MAX_BYTES >> 20} MiB"


def pages(path: Path, piece: Piece, intake: Intake, text_field: str) -> Iterator[tuple[int, Row]]:
    """Yields the HTML pages of a piece of a WARC file: where the record begins, and the row of the document.

    Raises:
        UserError: a record is damaged or cut off, or is no record.
    """
    return _rows(path, piece, intake, text_field, _page)


def texts(path: Path, piece: Piece, intake: Intake, text_field: str) -> Iterator[tuple[int, Row]]:
    """Yields the texts of a piece of a WET file, alike.

    Raises:
        UserError: as `pages`.
    """
    return _rows(path, piece, intake, text_field, _text)


class _NoDocument(Exception):  # noqa: N818 - no error: most records are none
    """Why a record is no document."""


def _rows(
    path: Path, piece: Piece, intake: Intake, text_field: str, text_of: Callable[[ArcWarcRecord], str]
) -> Iterator[tuple[int, Row]]:
    def take(record: ArcWarcRecord) -> Row | str:
        try:
            text = text_of(record)
        except _NoDocument as why:
            return str(why)
        name, date = (record.rec_headers.get_header(field) for field in ("WARC-Record-ID", "WARC-Date"))
        name = name and name.strip("<> ")
        key = "@".join(part for part in (name, date) if part) if name else None
        if record.rec_headers.get_header("WARC-Truncated") or record.rec_headers.get_header("WARC-Segment-Number"):
            intake.noted[_CUT_OFF] += 1
        return {"id": key, text_field: text, "source": record.rec_headers.get_header("WARC-Target-URI")}

    for position, row in read_records(path, piece.begin, piece.end, intake.at, take):
        if isinstance(row, str):
            intake.skipped[row] += 1
        else:
            yield position, row


def _page(record: ArcWarcRecord) -> str:
    _check_type(record, "response")
    if not _media_type(record.content_type).startswith("application/http"):
        raise _NoDocument("not HTTP")
    try:
        http: StatusAndHeaders = _HTTP.parse(LimitReader(record.raw_stream, HEADER_BYTES))
    except EOFError:
        raise _NoDocument("without HTTP status") from None
    status = http.get_statuscode()
    if status != "200":
        raise _NoDocument(f"status {status}" if _STATUS.fullmatch(status) else "without HTTP status")
    content_type = http.get_header("Content-Type") or record.rec_headers.get_header("WARC-Identified-Payload-Type")
    if _media_type(content_type) not in _HTML:
        raise _NoDocument("not HTML")
    body = _body(record.raw_stream)
    for encoding in reversed([*_listed(http, "Content-Encoding"), *_listed(http, "Transfer-Encoding")]):
        body = dechunked(body) if encoding == "chunked" else _decoded(body, encoding)
    if body.startswith(GZIP):  # without its name, or compressed twice
        body = _decoded(body, "gzip")
    return html_text(body, content_type or "")


def _listed(http: StatusAndHeaders, field: str) -> list[str]:
    return [each.strip() for each in (http.get_header(field) or "").lower().split(",")]


def _decoded(body: bytes, encoding: str) -> bytes:
    plain = decoded(body, encoding)
    if plain is None:
        raise _NoDocument("content encoding")
    if len(plain) > MAX_BYTES:
        raise _NoDocument(_TOO_LARGE)
    return plain


def _text(record: ArcWarcRecord) -> str:
    _check_type(record, "conversion")
    if _media_type(record.content_type) != "text/plain":
        raise _NoDocument("not plain text")
    return _body(record.raw_stream).decode("utf-8-sig", "replace")


def _check_type(record: ArcWarcRecord, expected: str) -> None:
    if record.rec_type != expected:
        raise _NoDocument(f"type {record.rec_type if record.rec_type in _TYPES else 'unknown'}")


def _media_type(value: str | None) -> str:
    return (value or "").partition(";")[0].strip().lower()


def _body(stream: Any) -> bytes:
    body: bytes = stream.read(MAX_BYTES + 1)
    if len(body) > MAX_BYTES:
        raise _NoDocument(_TOO_LARGE)
    return body
