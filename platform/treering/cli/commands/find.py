"""`treering find`: where the file of a digest is."""

from typing import Annotated

import typer

from treering.cli.options import JsonOption, project
from treering.cli.output import console, print_json
from treering.foreign import say


def find(
    digest: Annotated[str, typer.Argument(help="A digest, or its first 4 or more characters.")],
    json: JsonOption = False,
) -> None:
    """Find what a digest names: corpora in the project, DVC's cache and remotes; runs, rings and checkpoints.

    Of what is not in its place it prints the command that brings it back. Remotes that are no folders (S3, HTTP, …) are
    asked through DVC, and only for what lies nowhere else.

    Example: `treering find sha256:0123abcd`
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
