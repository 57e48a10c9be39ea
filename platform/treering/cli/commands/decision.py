"""`treering decision`: what curation decided about documents."""

from typing import Annotated

import typer

from treering.cli.exposures import print_decisions, print_unanswered
from treering.cli.options import JsonOption, LimitOption, project
from treering.cli.output import console, print_json


def decision(
    documents: Annotated[
        list[str],
        typer.Argument(metavar="DOCUMENT...", help="CORPUS:ID, CORPUS:#NUMBER, source=PATTERN or licence=NAME."),
    ],
    limit: LimitOption = 20,
    json: JsonOption = False,
) -> None:
    """Show what curation decided about documents: kept, cut or dropped, and which document was kept instead.

    Near-duplicates follow: those that a kept document stands for, and the rest of the cluster.

    Exit codes:
        2: curation knows none of the documents
        3: curation's decisions are missing

    Examples:
        treering decision code:django/urls/base.py
        treering decision web:#123 --json

    Raises:
        NotFoundError: curation knows none of the documents.
        EvidenceError: curation's decisions are missing.
    """
    from treering.audit.documents.curated import find_decisions
    from treering.audit.documents.selection import Selector
    from treering.errors import EvidenceError, NotFoundError

    found = find_decisions(project(), [Selector.parse(text) for text in documents], limit=limit)
    if not found.num_documents:
        folder = project().curated / "decisions"
        text = f"{folder}: curation decided about no document {', '.join(found.unknown)}"
        if found.unanswered:
            raise EvidenceError("; ".join((text, *found.unanswered)), file=folder)
        raise NotFoundError(text)
    if json:
        print_json(found.to_json())
        return
    print_decisions(found.documents, found.num_documents)
    for name in found.unknown:
        console.print(f"no decision about {name}")
    print_unanswered(found.unanswered)
