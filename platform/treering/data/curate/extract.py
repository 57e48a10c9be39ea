"""Step extract: raw text to plain text."""

import re
from typing import Literal

import ftfy
from resiliparse.extract.html2text import extract_plain_text

from treering.config.corpora import Kind

_CHANGEABLE = re.compile(r"[\x00-\x08\x0b\x0d-\x1f\x7f]|&#?[0-9A-Za-z]{1,24};")
"""What ftfy may change in ASCII: control characters (with them escapes of terminals), CR and entities of HTML.

Source: `remove_control_chars`, `fix_line_breaks`, `remove_terminal_escapes` and `unescape_html` in
https://ftfy.readthedocs.io/en/latest/fixes.html; its other corrections read only what is not ASCII.
"""
_MAX_LINE = ftfy.TextFixerConfig().max_decode_length


def extract(text: str, kind: Kind) -> str:
    """Plain text of a raw document, line ends normalised, without white space at its ends.

    HTML is read by resiliparse; ftfy corrects prose and HTML (mojibake, entities, control characters). Code stays as
    it is: ftfy would change its quotation marks.
    """
    if kind == "html":
        text = extract_plain_text(_encodable(text), main_content=False)
    if kind != "code":
        text = _fix(text)
    return _encodable(text).replace("\r\n", "\n").replace("\r", "\n").strip()


def _fix(text: str) -> str:
    """`ftfy.fix_text`, which is asked only about the lines that it may change.

    ftfy treats every line alone, but for entities: from the first line with `<` on it leaves them. A line longer than
    its limit is cut there, so a text with such a line is left to ftfy as a whole.
    """
    if text.isascii() and _CHANGEABLE.search(text) is None:
        return text
    lines = text.split("\n")
    if max(map(len, lines)) >= _MAX_LINE:
        return ftfy.fix_text(text)
    unescape: Literal["auto", False] = "auto"
    fixed = []
    for number, line in enumerate(lines):
        whole = line if number + 1 == len(lines) else line + "\n"
        if unescape and "<" in line:
            unescape = False
        plain = line.isascii() and _CHANGEABLE.search(line) is None
        fixed.append(whole if plain else ftfy.fix_text(whole, unescape_html=unescape))
    return "".join(fixed)


def _encodable(text: str) -> str:
    """The text without lone surrogates, which JSON can spell and UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode()
