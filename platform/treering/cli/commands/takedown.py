"""`treering takedown`: which checkpoints saw a document of a list."""

from pathlib import Path
from typing import Annotated

import typer

from treering.cli.exposures import print_checkpoints, print_decisions, print_documents, print_unanswered
from treering.cli.gaps import exit_if_incomplete
from treering.cli.options import (
    JsonOption,
    LimitOption,
    project,
)
from treering.cli.output import console, print_json, print_table
from treering.progress import progress_bars


def takedown(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="LIST",
            help="A file with an entry on each line: CORPUS:ID, CORPUS:#NUMBER, source=PATTERN or licence=NAME.",
        ),
    ],
    limit: LimitOption = 20,
    json: JsonOption = False,
) -> None:
    """Show which checkpoints saw a document of a list, or a near-duplicate, and which are clean.

    Near-duplicates are those that curation recorded; each is named, with what was kept instead and what read it.

    Exit codes:
        3: evidence is missing for a part of the answer

    Examples:
        treering takedown removals.txt
        treering takedown removals.txt --json
    """
    from treering.audit.documents.takedown import read_list
    from treering.audit.documents.takedown import takedown as find

    with progress_bars() as progress:
        found = find(project(), read_list(file), limit=limit, progress=progress)
    if json:
        print_json(found.to_json())
        exit_if_incomplete(found.gaps)
        return
    print_table(
        ("entry", "documents", "near-duplicates", "curation"),
        [
            [
                entry.asked,
                f"{entry.documents:,}",
                f"{entry.near_duplicates:,}",
                "; ".join(f"{count:,} {words}" for words, count in entry.fate.items())
                or ("no record" if entry.known else "in no available corpus, and unknown to curation"),
            ]
            for entry in found.entries
        ],
        numbers=("documents", "near-duplicates"),
    )
    console.print()
    if found.decisions:
        print_decisions(found.decisions, found.num_decisions)
        console.print()
    print_documents([taken.document for taken in found.documents], found.num_documents)
    print_checkpoints(found.checkpoints)
    print_unanswered(found.unanswered)
    exit_if_incomplete(found.gaps)
