"""`treering find`: finds what a digest names."""

from typing import Annotated

import typer

from treering.cli.options import JsonOption, project
from treering.cli.output import console, print_json
from treering.foreign import say


def find(
    digest: Annotated[str, typer.Argument(metavar="DIGEST", help="A digest, or at least its first 4 characters.")],
    json: JsonOption = False,
) -> None:
    """Find what a digest names, in the project, in DVC's cache and in DVC's remotes.

    A digest names a corpus, a run, a ring or a checkpoint. For a file that is not in its place, the command prints what
    brings it back. Remotes that are not folders (S3, HTTP, …) are asked through DVC, and only for files that no folder
    has.

    Exit codes:
        2: the digest is not a digest, or nothing has it

    Examples:
        treering find sha256:0123abcd
    """
    from dataclasses import asdict

    from treering.audit.dvc.find import find_digest

    found = find_digest(project(), digest, say)
    if json:
        print_json([asdict(each) for each in found])
        return
    for each in found:
        console.print(each.what, f"  digest  {each.digest}", f"  where   {each.place}, {each.path}")
        if each.command:
            console.print(f"  bring   {each.command}")
