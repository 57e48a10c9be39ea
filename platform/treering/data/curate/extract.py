"""Step extract: raw text to plain text."""

import re
import unicodedata
from collections import Counter
from functools import cache
from typing import Literal

import ftfy
import justext
from ftfy.badness import is_bad
from ftfy.chardata import CONTROL_CHARS, LIGATURES, WIDTH_MAP
from ftfy.fixes import uncurl_quotes
from justext.core import ParagraphMaker, classify_paragraphs, preprocessor, revise_paragraph_classification
from lxml.etree import ErrorTypes, ParserError
from lxml.html import HTMLParser, document_fromstring
from resiliparse.extract.html2text import extract_plain_text

from treering.config.corpora import Extraction, Kind
from treering.data.curate.html_limits import opens_again, too_deep, without_formatting

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
_MAX_LINE = ftfy.TextFixerConfig().max_decode_length


def extract(text: str, kind: Kind, html: Extraction = "plain", noted: Counter[str] | None = None) -> str:
    """Plain text of a raw document, line ends normalised, without white space at its ends.

    HTML is read by resiliparse or jusText; ftfy corrects prose and HTML (mojibake, entities, control characters). Code
    stays as it is: ftfy would change its quotation marks.

    Args:
        text: raw text.
        kind: of its corpus.
        html: which text of HTML is taken.
        noted: counts the pages that could not be read like that, by what was done instead.
    """
    if kind == "html":
        text, noted = _encodable(text), Counter() if noted is None else noted
        text = _good_paragraphs(text, noted) if html == "justext" else _visible(text, html, noted)
    if kind != "code":
        text = _fix(text)
    return _encodable(text).replace("\r\n", "\n").replace("\r", "\n").strip()


def _visible(html: str, extraction: Extraction, noted: Counter[str]) -> str:
    """The main content, or all visible text; all of it too where elements are nested very deeply."""
    if opens_again(html):
        html = without_formatting(html)
        noted["without formatting tags"] += 1
    main = extraction == "main"
    if main and too_deep(html):
        main = False
        noted["all text, nested too deeply"] += 1
    text: str = extract_plain_text(html, main_content=main)
    return text


def _good_paragraphs(html: str, noted: Counter[str]) -> str:
    """The paragraphs that jusText keeps with its English stop words, a line each; all text beyond lxml's limits.

    With a document type in front, lxml makes a document of every text, and skips a declaration of XML. jusText fails at
    a fragment whose outermost element it removes. Its own parser ends at 256 nested elements and 10 MB of text.
    """
    parser = HTMLParser(huge_tree=True)
    try:
        page = preprocessor(document_fromstring("<!DOCTYPE html>" + html, parser=parser))
    except ParserError:  # no element at all
        return ""
    if parser.error_log.filter_types(ErrorTypes.ERR_RESOURCE_LIMIT):
        noted["all text, beyond the limits of jusText's parser"] += 1
        return _visible(html, "plain", noted)
    paragraphs = ParagraphMaker.make_paragraphs(page)
    classify_paragraphs(paragraphs, _english())
    revise_paragraph_classification(paragraphs)
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
