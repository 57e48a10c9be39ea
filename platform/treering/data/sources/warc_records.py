"""The records of WARC files: read one after another from any border between two, and where those borders are.

Standard: WARC 1.1 (ISO 28500:2017); a compressed file has one gzip member for each record (annex D). warcio parses the
headers. The members are read here, since warcio ends without an error where a file is damaged or cut off
(https://github.com/webrecorder/warcio/issues/138).
"""

import io
import logging
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

from warcio.exceptions import ArchiveLoadFailed
from warcio.recordloader import ArcWarcRecord, ArcWarcRecordLoader

from treering.config.canonical import READ_BYTES
from treering.errors import UserError
from treering.files import open_regular

Row = TypeVar("Row")

_MEMBER: Final = b"\x1f\x8b\x08"
_RECORD: Final = b"WARC/"
_BUFFER: Final = 1 << 16
_NEWLINES: Final = b"\r\n"
HEADER_BYTES: Final = 1 << 20
"""Largest header of a record: some files inflate to one without end."""

_SHOWN: Final = 60
_STORED_BYTES: Final = 0xFFFF
"""Most bytes that DEFLATE holds as they are, in a row (RFC 1951, 3.2.4)."""

logging.getLogger("warcio").setLevel(logging.ERROR)  # it warns of every address with a space, and then repairs it
_LOADER: Final = ArcWarcRecordLoader(verify_http=False, arc2warc=False)


class _Member(io.RawIOBase):
    """The content of one gzip member of a file.

    Args:
        file: whose position nobody else changes meanwhile.
        begin: where the member begins.
        where: the place, for errors.
    """

    def __init__(self, file: BinaryIO, begin: int, where: str) -> None:
        self._file, self._where, self._read = file, where, begin
        self._inflate = zlib.decompressobj(31)
        file.seek(begin)

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fills a buffer; 0 at the end of the member, whose checksum is right then.

        Raises:
            UserError: the member is damaged or cut off.
        """
        while not self._inflate.eof:
            data = self._inflate.unconsumed_tail
            if not data:
                data = self._file.read(_BUFFER // 4)
                self._read += len(data)
            if not data:
                raise UserError(_damaged(self._where, "the file ends inside the record"))
            try:
                found = self._inflate.decompress(data, len(buffer))
            except zlib.error as error:
                raise UserError(_damaged(self._where, str(error))) from None
            if found:
                buffer[: len(found)] = found
                return len(found)
        return 0

    @property
    def end(self) -> int:
        """Where the next member begins, when this one was read."""
        return self._read - len(self._inflate.unused_data)


def _damaged(where: str, reason: str) -> str:
    """The text about a record that cannot be read."""
    return (
        f"{where}: damaged or cut off ({reason}), expected a whole WARC record; copy the file again, or leave it out, "
        "and run `treering fetch`"
    )


def read_records(
    path: Path, begin: int, end: int | None, at: Callable[[int], str], take: Callable[[ArcWarcRecord], Row]
) -> Iterator[tuple[int, Row]]:
    """Yields what a function makes of each record, after all of the record was read and checked.

    Args:
        path: the file.
        begin: where the first record begins.
        end: where the first record begins that is not read; None for the end of the file.
        at: the text about the place of a record that begins at a byte.
        take: gets a record, its headers of HTTP not parsed yet, and may read `raw_stream`.

    Yields:
        Where the record begins, and the function's result.

    Raises:
        UserError: a record is damaged or cut off, is no record, or shares its gzip member with others.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        stop = size if end is None else end
        read = _read_member if file.read(2) == _MEMBER[:2] else _read_plain
        position = begin
        while position < stop:
            found, following = read(file, position, size, at(position), take)
            if following > stop:
                raise UserError(
                    f"{at(position)}: the record ends at byte {following}, and another one seemed to begin at byte "
                    f"{stop}, inside it; run `warcio recompress OLD NEW` and use the new file"
                )
            if found is not None:
                yield position, found[0]
            position = following


def _read_member(
    file: BinaryIO, begin: int, _size: int, where: str, take: Callable[[ArcWarcRecord], Row]
) -> tuple[tuple[Row] | None, int]:
    """What a function makes of the record in a member, None where the member is empty; and the member's end.

    Raises:
        UserError: it is not one whole record.
    """
    member = _Member(file, begin, where)
    stream = io.BufferedReader(member, _BUFFER)
    record = _parsed(stream, where)
    if record is None:
        return None, member.end
    row = take(record)
    while record.raw_stream.read(_BUFFER):
        pass
    if record.raw_stream.limit:
        raise UserError(_damaged(where, f"{record.raw_stream.limit:,} bytes fewer than its Content-Length says"))
    while rest := stream.read(_BUFFER):
        rest = rest.lstrip(_NEWLINES)
        if rest.startswith(_RECORD):
            raise UserError(
                f"{where}: its gzip member holds several records, expected one member for each record; run `warcio "
                "recompress OLD NEW` and use the new file"
            )
        if rest:
            raise UserError(_damaged(where, f"more bytes than its Content-Length says: {rest[:20]!r}"))
    return (row,), member.end


def _read_plain(
    file: BinaryIO, begin: int, size: int, where: str, take: Callable[[ArcWarcRecord], Row]
) -> tuple[tuple[Row] | None, int]:
    """What a function makes of a record that is not compressed; and where the next record begins.

    Raises:
        UserError: it is no whole record.
    """
    file.seek(begin)
    record = _parsed(file, where)
    if record is None:
        return None, size
    end = file.tell() + record.raw_stream.limit
    if end > size:
        raise UserError(_damaged(where, "the file ends inside the record"))
    row = take(record)
    return (row,), _behind_newlines(file, end)


def _behind_newlines(file: BinaryIO, position: int) -> int:
    file.seek(position)
    while (byte := file.read(1)) and byte in _NEWLINES:
        position += 1
    return position


class _Head:
    """A stream from which lines of `HEADER_BYTES` in all can be read."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._left = stream, HEADER_BYTES

    def readline(self) -> bytes:
        """The next line.

        Raises:
            ArchiveLoadFailed: the lines are too long.
        """
        line: bytes = self._stream.readline(self._left)
        self._left -= len(line)
        if not self._left:
            raise ArchiveLoadFailed(f"its header is longer than {HEADER_BYTES >> 20} MiB")
        return line


def _parsed(stream: Any, where: str) -> ArcWarcRecord | None:
    """The record at the position of a stream; None at its end.

    Raises:
        UserError: it is no WARC record.
    """
    try:
        record = _LOADER.parse_record_stream(_Head(stream), known_format="warc", no_record_parse=True)
    except EOFError:
        return None
    except ArchiveLoadFailed as error:
        reason, colon, line = str(error).partition("first line: ")
        shown = repr(line.strip()[:_SHOWN]) if colon else ""
        raise UserError(_damaged(where, reason + colon + shown)) from None
    if record.length is None:
        raise UserError(_damaged(where, "it has no Content-Length"))
    record.raw_stream.stream = stream
    return record


def record_borders(path: Path, most_bytes: int) -> list[int]:
    """Where the pieces of a file begin: at records, each at least so many bytes behind the one before.

    Nothing is checked here: a reader finds every fault of the file, and names its place.
    """
    starts = [0]
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        find = _next_member if file.read(2) == _MEMBER[:2] else _next_plain
        try:
            while (found := find(file, starts[-1], most_bytes, size)) is not None:
                starts.append(found)
        except UserError:
            pass
    return starts


def _next_plain(file: BinaryIO, last: int, most_bytes: int, size: int) -> int | None:
    """The first record that begins at least some bytes behind another one."""
    position = last
    while position < size:
        _, position = _read_plain(file, position, size, "", lambda _: None)
        if last + most_bytes <= position < size:
            return position
    return None


def _next_member(file: BinaryIO, last: int, most_bytes: int, size: int) -> int | None:
    """The first member that begins at least some bytes behind another one."""
    position, tail = last + most_bytes, b""
    while position < size:
        file.seek(position)
        block = tail + file.read(READ_BYTES)
        begin = position - len(tail)
        place = block.find(_MEMBER)
        while place >= 0:
            if _is_member(file, begin + place, size):
                return begin + place
            place = block.find(_MEMBER, place + 1)
        position, tail = begin + len(block), block[-2:]
    return None


def _is_member(file: BinaryIO, begin: int, size: int) -> bool:
    """Whether a member of the file begins at a byte, and not one of an archive that a record holds.

    The bytes of such an archive are in the file as they are only inside a stored block of DEFLATE. So members that
    follow each other without a gap for more bytes than such a block can have are members of the file.
    """
    position = begin
    while position < size and position - begin <= _STORED_BYTES:
        member = _Member(file, position, "")
        stream = io.BufferedReader(member, _BUFFER)
        try:
            if stream.read(len(_RECORD)) != _RECORD:
                return False
            while stream.read(_BUFFER):
                pass
        except UserError:
            return False
        position = member.end
    return True
