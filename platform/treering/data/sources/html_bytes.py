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
            return zlib.decompressobj(31).decompress(body, most)
        if encoding == "deflate":
            return zlib.decompressobj(-15 if body[:1] and body[0] & 15 != 8 else 15).decompress(body, most)
        if encoding == "br":
            return bytes(brotli.Decompressor().process(body, output_buffer_limit=most))
        if encoding == "zstd":
            return pyzstd.ZstdDecompressor().decompress(body, most)
    except (zlib.error, brotli.error, pyzstd.ZstdError):
        pass
    return body if encoding in ("", "identity") or _looks_like_html(body) else None


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
