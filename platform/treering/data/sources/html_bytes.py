"""The text of an HTML page, from the bytes that a server sent, as a browser reads them."""

import codecs
import re
import zlib
from typing import Final

import brotli
import pyzstd
from resiliparse.parse.encoding import detect_encoding, map_encoding_to_html5

MAX_BYTES: Final = 16 << 20
"""Largest page, with its content encoding and without: some pages are made to inflate without end."""

GZIP: Final = b"\x1f\x8b\x08"
"""How a gzip member begins, and no page."""

_BLOCK: Final = 1 << 14
_CHUNK_SIZE: Final = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\n]*)?\r?\n")
_LAST_CHUNK: Final = b"\r\n0\r\n\r\n"
_MARKS: Final = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_CHARSET: Final = re.compile(r"charset\s*=\s*[\"']?([^\s\"';,]+)", re.IGNORECASE)
_WIDER: Final = {"gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949", "big5": "big5hkscs"}
"""What the names mean on the web, where Python's codecs hold fewer characters (https://encoding.spec.whatwg.org)."""


def decoded(body: bytes, encoding: str) -> bytes | None:
    """A body without its content encoding, up to `MAX_BYTES` and one more; None if it cannot be taken off.

    A body that is cut off gives what is there of it. A body that is HTML already stays as it is: some crawlers take the
    encoding off and leave its name, and some servers name encodings that are none.
    """
    most = MAX_BYTES + 1
    try:
        if encoding in ("gzip", "x-gzip"):
            return _members(body, most)
        if encoding == "deflate":
            return zlib.decompressobj(-15 if body[:1] and body[0] & 15 != 8 else 15).decompress(body, most)
        if encoding == "br":
            return bytes(brotli.Decompressor().process(body, output_buffer_limit=most))
        if encoding == "zstd":
            return _frames(body, most)
    except (zlib.error, brotli.error, pyzstd.ZstdError):
        pass
    return body if encoding in ("", "identity") or _looks_like_html(body) else None


def _members(body: bytes, most: int) -> bytes:
    """The content of gzip members that follow each other (RFC 1952, 2.2), up to a size."""
    parts, position = [], 0
    while most and (not position or body.startswith(GZIP, position)):
        inflate = zlib.decompressobj(31)
        while most and not inflate.eof and (block := body[position : position + _BLOCK]):
            parts.append(inflate.decompress(block, most))
            most -= len(parts[-1])
            position += len(block)
        position -= len(inflate.unused_data)
        if not inflate.eof:
            break
    return b"".join(parts)


def _frames(body: bytes, most: int) -> bytes:
    """The content of zstd frames that follow each other, up to a size; of the first one if other bytes follow it."""
    try:
        return pyzstd.EndlessZstdDecompressor().decompress(body, most)
    except pyzstd.ZstdError:
        return pyzstd.ZstdDecompressor().decompress(body, most)


def dechunked(body: bytes) -> bytes:
    """A body without its chunks (RFC 9112, 7.1), and without those inside them where it was cut in chunks twice.

    What follows the last chunk is left out, and a body that is cut off, or goes on with other bytes than a chunk, ends
    there. A body that does not begin with a chunk stays as it is: some crawlers take the chunks off and leave the name.
    """
    plain = _without_chunks(body)
    return _without_chunks(plain) if plain.endswith(_LAST_CHUNK) else plain


def _without_chunks(body: bytes) -> bytes:
    parts, position = [], 0
    while size := _CHUNK_SIZE.match(body, position):
        position = size.end() + int(size[1], 16)
        parts.append(body[size.end() : position])
        if position == size.end():
            break
        position += 2 if body.startswith(b"\r\n", position) else body.startswith(b"\n", position)
    return b"".join(parts) if parts else body


def _looks_like_html(body: bytes) -> bool:
    return body.removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"<"


def html_text(body: bytes, content_type: str) -> str:
    """The text of a page: encoding by byte order mark, HTTP's header, `meta`, and only then by its bytes.

    Source: HTML Standard, 13.2.3.2 (determining the character encoding).
    """
    for mark, encoding in _MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(encoding, "replace")
    named = _CHARSET.search(content_type)
    found: str | None = map_encoding_to_html5(named[1], fallback_utf8=False) if named else None
    if found is None:
        found = str(detect_encoding(body, from_html_meta=True))
        if found.startswith("utf-16") and b"\0" not in body:  # `meta` was read, so it is not UTF-16
            found = "utf-8"
    return body.decode(_WIDER.get(found, found), "replace")
