"""`treering pull`: brings corpora from a store."""

from typing import Annotated

import typer

from treering.cli.commands.push import DataArgument
from treering.cli.options import JsonOption, project
from treering.cli.output import print_json, print_table
from treering.progress import progress_bars

CuratedOption = Annotated[bool, typer.Option("--curated", help="Also bring the curated documents.")]


def pull(url: DataArgument = None, curated: CuratedOption = False, json: JsonOption = False) -> None:
    """Bring the corpora of this project from a store, every byte compared with its digest.

    The project is that of `TREERING_PROJECT`, or of the name of this folder, as it was last pushed. Corpora that are
    here are kept. The command goes on where it was interrupted.

    Exit codes:
        0: everything is here
        2: the store has no such project, or other data is in a place
        3: the store has lost or changed something
        4: the store does not answer; run the command again

    Examples:
        treering pull s3://team/data
        treering pull s3://team/data --curated
    """
    from dataclasses import asdict

    from treering.data.stored.layout import data_store
    from treering.data.stored.pull import pull as run

    with progress_bars(in_bytes=True) as progress:
        done = run(project(), data_store(url, "treering pull"), curated=curated, progress=progress)
    if json:
        print_json([asdict(each) for each in done])
        return
    rows = [[each.what, f"{each.num_bytes:,}", f"{each.moved:,}", each.digest] for each in done]
    print_table(("what", "bytes", "brought", "digest"), rows, numbers=("bytes", "brought"))
