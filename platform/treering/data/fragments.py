"""Fragments: what decontamination by cutting leaves of a document, and how their ids name the document.

A fragment's id is the id of its document and the characters that it holds, as in `letters-7#char=0,1530`: the fragment
identifier of RFC 5147, section 3. Characters are counted in the extracted text, like the column `characters` of
curation's decisions. The curated text, the document table and the audit have the id as it is.
"""

import re
from typing import Final

FRAGMENT: Final = r"#char=\d+,\d+$"
"""The end of a fragment's id: a regular expression that Python's `re` and Arrow read alike."""


def fragment_id(document: str, start: int, end: int) -> str:
    """The id of the characters [start, end) of a document."""
    return f"{document}#char={start},{end}"


def document_id(name: str) -> str:
    """The id of the document that a fragment is of; the id itself where it names no fragment."""
    return re.sub(FRAGMENT, "", name)
