"""Step extract: raw text to plain text."""

import ftfy
from resiliparse.extract.html2text import extract_plain_text

from treering.config.corpora import Kind


def extract(text: str, kind: Kind) -> str:
    """Plain text of a raw document, line ends normalised, without white space at its ends.

    HTML is read by resiliparse; ftfy corrects prose and HTML (mojibake, entities, control characters). Code stays as
    it is: ftfy would change its quotation marks.
    """
    if kind == "html":
        text = extract_plain_text(_encodable(text), main_content=False)
    if kind != "code":
        text = ftfy.fix_text(text)
    return _encodable(text).replace("\r\n", "\n").replace("\r", "\n").strip()


def _encodable(text: str) -> str:
    """The text without lone surrogates, which JSON can spell and UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode()
