"""`treering archive`: runs that lists leave out."""

import time
from typing import Annotated

import typer

from treering.cli.options import JsonOption, RunArgument, project
from treering.cli.output import console, print_json

UndoOption = Annotated[bool, typer.Option("--undo", help="List the run again; its rings stay compressed.")]


def archive(run: RunArgument, undo: UndoOption = False, json: JsonOption = False) -> None:
    """Leave a run out of lists and compress its rings; `--undo` lists it again.

    Nothing is deleted: every command that is given the run still works. `treering runs --all` lists archived runs.

    Examples:
        treering archive 0123
        treering archive 0123 --undo

    Raises:
        UserError: the run is running, or it is a published copy.
    """
    from treering.errors import UserError
    from treering.runlog.find import is_archived, named_original
    from treering.runlog.journal import Archived, login_name
    from treering.runlog.mirror import refuse_mirror
    from treering.runlog.ring_file import COMPRESSED, compress

    folder = named_original(project().runs, run, "archive")
    refuse_mirror(folder.path)
    if folder.state() == "running":
        raise UserError(f"{folder.path}: the run is running; archive it after its end")
    if is_archived(folder.journal) == undo:
        folder.journal.append(Archived(at=time.time(), by=login_name(), archived=not undo))
    compressed = []
    if not undo:
        for file in folder.plain_ring_files():
            before = file.stat().st_size
            if compress(file):
                packed = file.with_name(f"{file.name}{COMPRESSED}")
                compressed.append({"file": str(packed), "bytes_before": before, "bytes": packed.stat().st_size})
    left = [str(file) for file in folder.plain_ring_files() if not undo and file.stat().st_size]
    if json:
        print_json({"run": folder.id, "archived": not undo, "compressed": compressed, "left": left})
        return
    console.print(f"{folder.path}: {'listed again' if undo else 'archived; `treering runs --all` lists it'}")
    for each in compressed:
        console.print(f"{each['file']}: {each['bytes']:,} bytes, {each['bytes_before']:,} before")
    for name in left:
        console.print(f"{name}: not compressed; a process writes it, or the file system has no locks")
