"""Step extract: raw text to plain text."""

import ftfy
from resiliparse.extract.html2text import extract_plain_text

from treering.config.corpora import Kind


def extract(text: str, kind: Kind) -> str:
    """Plain text of a raw document, line ends normalised, without white space at its ends.

    HTML is read by resiliparse; prose and HTML are mended by ftfy (mojibake, entities, control characters). Code is
    left alone: ftfy would change its quotation marks.
    """
    if kind == "html":
        text = extract_plain_text(_encodable(text), main_content=False)
    if kind != "code":
        text = ftfy.fix_text(text)
    return _encodable(text).replace("\r\n", "\n").replace("\r", "\n").strip()


def _encodable(text: str) -> str:
    """A lone surrogate, which JSON can spell, is no text."""
    return text.encode("utf-8", "replace").decode()
