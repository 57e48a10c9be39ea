"""`treering trace`: which steps read a document or a text."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treering.cli.exposures import print_checkpoints, print_document, print_documents, print_unanswered
from treering.cli.gaps import exit_if_incomplete
from treering.cli.options import (
    JsonOption,
    LimitOption,
    project,
)
from treering.cli.output import console, print_json
from treering.files import read_text, reason
from treering.progress import progress_bars

if TYPE_CHECKING:
    from treering.project import Project


DocumentOption = Annotated[
    list[str] | None,
    typer.Option(
        "--document",
        metavar="CORPUS:ID",
        help="The document with this id, or with this number as CORPUS:#123; repeatable.",
    ),
]
SourceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--source", metavar="PATTERN", help="Documents whose source URI matches this shell pattern; repeatable."
    ),
]
LicenceOption = Annotated[
    list[str] | None, typer.Option("--licence", metavar="NAME", help="Documents with this licence; repeatable.")
]
TextOption = Annotated[
    Path | None,
    typer.Option(
        "--text", metavar="FILE", help="Documents that contain the text of this file, or 13 consecutive words of it."
    ),
]


def trace(
    *,
    document: DocumentOption = None,
    source: SourceOption = None,
    licence: LicenceOption = None,
    text: TextOption = None,
    limit: LimitOption = 20,
    json: JsonOption = False,
) -> None:
    """Show every step of every run that read a document or a text, and which checkpoints saw it.

    `--text` needs `treering index`.

    Exit codes:
        3: evidence is missing for a part of the answer

    Examples:
        treering trace --document code:django/urls/base.py
        treering trace --licence MIT --limit 0
        treering trace --text quote.txt

    Raises:
        UserError: nothing to search for was given, or both documents and a text.
    """
    from treering.audit.documents.selection import Selector
    from treering.audit.documents.trace import trace_documents
    from treering.errors import UserError

    selectors = [
        *(Selector.parse(text) for text in document or ()),
        *(Selector("source", text) for text in source or ()),
        *(Selector("licence", text) for text in licence or ()),
    ]
    if bool(selectors) == (text is not None):
        given = "both documents and a text" if selectors else "nothing to look for"
        raise UserError(f"trace: found {given}, expected --document, --source and --licence, or --text")
    here = project()
    if text is not None:
        _trace_text(here, text, limit, json=json)
        return
    with progress_bars() as progress:
        found = trace_documents(here, selectors, limit=limit, progress=progress)
    if json:
        print_json(found.to_json())
        exit_if_incomplete(found.gaps)
        return
    print_documents(found.documents, found.num_documents)
    print_checkpoints(found.checkpoints)
    print_unanswered(found.unanswered)
    exit_if_incomplete(found.gaps)


def _trace_text(here: "Project", file: Path, limit: int, *, json: bool) -> None:
    """Shows the documents that contain the text of a file, and the steps that read them.

    Raises:
        UserError: the file is not UTF-8 text.
    """
    from treering.audit.documents.text import trace_text
    from treering.errors import UserError

    try:
        content = read_text(file, encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: found an unreadable file ({reason(error)}), expected UTF-8 text") from None
    with progress_bars() as progress:
        found = trace_text(here, content, progress)
    if json:
        print_json(found.to_json())
        exit_if_incomplete(found.gaps)
        return
    if not found.matches:
        console.print(f"no document contains one of its {found.num_ngrams:,} n-grams of 13 words", "")
    for each in found.matches[:limit]:
        part = f"{each.match.ngrams:,} of {found.num_ngrams:,} n-grams of 13 words"
        spans = ", ".join(f"{start:,} to {end:,}" for start, end in each.match.spans)
        console.print(f"{'the whole text' if each.match.exact else part} in tokens {spans} of")
        print_document(each.document)
    if len(found.matches) > limit:
        console.print(f"{len(found.matches) - limit:,} more documents; --limit shows more of them")
    print_checkpoints(found.checkpoints)
    print_unanswered(found.unanswered)
    exit_if_incomplete(found.gaps)
