"""Step extract: raw text to plain text."""

import re
import unicodedata
from functools import cache
from typing import Literal

import ftfy
import justext
from ftfy.badness import is_bad
from ftfy.chardata import CONTROL_CHARS, LIGATURES, WIDTH_MAP
from ftfy.fixes import uncurl_quotes
from lxml.etree import ParserError
from resiliparse.extract.html2text import extract_plain_text

from treering.config.corpora import Extraction, Kind

_MAPPED = "".join(re.escape(chr(point)) for table in (CONTROL_CHARS, LIGATURES, WIDTH_MAP) for point in table)
_CHANGEABLE = re.compile(
    rf"[\x00-\x08\x0b\x0d-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff{_MAPPED}]|&#?[0-9A-Za-z]{{1,24}};"
)
"""What ftfy may change in a line without mojibake, beside quotation marks and what is not in normal form NFC.

Control characters (with them escapes of terminals), line ends, lone surrogates, entities of HTML, ligatures, and
letters of another width. Source: https://ftfy.readthedocs.io/en/latest/fixes.html.
"""
_MAYBE_BAD = re.compile(r"[^\x00-\x7f]{2}|[\u0152\u0153\xc2\xc3]")
"""In every line that ftfy takes for mojibake: two characters that are not ASCII, or one of four letters.

Each pattern of `ftfy.badness` has the one or the other; C1 control characters are in `_CHANGEABLE`.
"""
_TAG = re.compile(
    r"<(/?)(?!(?:area|base|br|col|dd|dt|embed|hr|img|input|li|link|meta|option|p|param|source|tbody|td|tfoot|th|thead|tr|"
    r"track|wbr)\b)[a-z]",
    re.IGNORECASE,
)
_MAX_DEPTH = 5_000
_MAX_LINE = ftfy.TextFixerConfig().max_decode_length


def extract(text: str, kind: Kind, html: Extraction = "plain") -> str:
    """Plain text of a raw document, line ends normalised, without white space at its ends.

    HTML is read by resiliparse or jusText; ftfy corrects prose and HTML (mojibake, entities, control characters). Code
    stays as it is: ftfy would change its quotation marks.

    Args:
        text: raw text.
        kind: of its corpus.
        html: which text of HTML is taken.
    """
    if kind == "html":
        text = _good_paragraphs(_encodable(text)) if html == "justext" else _visible(_encodable(text), html)
    if kind != "code":
        text = _fix(text)
    return _encodable(text).replace("\r\n", "\n").replace("\r", "\n").strip()


def _visible(html: str, extraction: Extraction) -> str:
    """The main content, or all visible text; all of it too where elements are nested very deeply.

    resiliparse's time for the main content grows with the square of the depth: 2 s at 10,000 elements.
    """
    main = extraction == "main" and not _too_deep(html)
    text: str = extract_plain_text(html, main_content=main)
    return text


def _too_deep(html: str) -> bool:
    """Whether elements that only an end tag closes are nested deeper than the limit; no page that people made is."""
    if html.count("<") <= _MAX_DEPTH:
        return False
    depth = 0
    for tag in _TAG.finditer(html):
        depth = max(depth - 1, 0) if tag[1] else depth + 1
        if depth > _MAX_DEPTH:
            return True
    return False


def _good_paragraphs(html: str) -> str:
    """The paragraphs that jusText keeps with its English stop words, a line each.

    With a document type in front, lxml makes a document of every text, and skips a declaration of XML. jusText fails at
    a fragment whose outermost element it removes, and lxml at a declared encoding in text that is decoded already.
    """
    try:
        paragraphs = justext.justext("<!DOCTYPE html>" + html, _english())
    except ParserError:  # no element at all
        return ""
    return "\n".join(paragraph.text for paragraph in paragraphs if not paragraph.is_boilerplate)


@cache
def _english() -> frozenset[str]:
    words: frozenset[str] = justext.get_stoplist("English")
    return words


def _fix(text: str) -> str:
    """`ftfy.fix_text`, which is asked only about the lines that it may change.

    ftfy treats every line alone, but for entities: from the first line with `<` on it leaves them. A line longer than
    its limit is cut there, so a text with such a line is left to ftfy as a whole.
    """
    if _is_plain(text) and _MAYBE_BAD.search(text) is None:
        return text if text.isascii() else uncurl_quotes(text)
    lines = text.split("\n")
    if max(map(len, lines)) >= _MAX_LINE:
        return ftfy.fix_text(text)
    unescape: Literal["auto", False] = "auto"
    fixed = []
    for number, line in enumerate(lines):
        whole = line if number + 1 == len(lines) else line + "\n"
        if unescape and "<" in line:
            unescape = False
        if line.isascii() and _CHANGEABLE.search(line) is None:
            fixed.append(whole)
        elif _is_plain(line) and (_MAYBE_BAD.search(line) is None or not is_bad(whole)):
            fixed.append(uncurl_quotes(whole))
        else:
            fixed.append(ftfy.fix_text(whole, unescape_html=unescape))
    return "".join(fixed)


def _is_plain(text: str) -> bool:
    """Whether ftfy, unless it finds mojibake, leaves all but quotation marks."""
    return _CHANGEABLE.search(text) is None and unicodedata.is_normalized("NFC", text)


def _encodable(text: str) -> str:
    """The text without lone surrogates, which JSON can spell and UTF-8 cannot hold."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
