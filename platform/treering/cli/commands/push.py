"""`treering push`: sends curated documents and corpora to a store."""

from typing import Annotated

import typer

from treering.cli.options import JsonOption, project
from treering.cli.output import console, print_json, print_table
from treering.progress import progress_bars

DataArgument = Annotated[
    str | None,
    typer.Argument(metavar="URL", help="A folder or s3://BUCKET/PREFIX; default: `TREERING_DATA_URL`."),
]


def push(url: DataArgument = None, json: JsonOption = False) -> None:
    """Send the corpora and the curated documents of this project to a store, for machines without a clone.

    Each thing is named by its digest, and every byte of a corpus is compared with its manifest. The command sends only
    what the store lacks; one that was killed goes on with the parts that it had not sent.

    Exit codes:
        0: everything is in the store
        2: the project has no corpora, or no store is named
        3: a file is not what its manifest says
        4: the store does not answer; run the command again

    Examples:
        treering push s3://team/data
    """
    from dataclasses import asdict

    from treering.data.stored.layout import data_store
    from treering.data.stored.push import push as run

    store = data_store(url, "treering push")
    with progress_bars(in_bytes=True) as progress:
        done = run(project(), store, progress)
    if json:
        print_json([asdict(each) for each in done])
        return
    rows = [[each.what, f"{each.num_bytes:,}", f"{each.moved:,}", each.digest] for each in done]
    print_table(("what", "bytes", "sent", "digest"), rows, numbers=("bytes", "sent"))
    console.print("", f"treering pull {store.place}    brings the corpora to another machine")
