"""`treering note`: notes and tags of a run."""

import time
from typing import Annotated

import typer

from treering.cli.options import RunArgument, project
from treering.cli.output import console

TagOption = Annotated[list[str] | None, typer.Option("--tag", metavar="TAG", help="Add a tag; repeatable.")]
UntagOption = Annotated[list[str] | None, typer.Option("--untag", metavar="TAG", help="Take a tag away; repeatable.")]


def note(
    run: RunArgument,
    text: Annotated[str, typer.Argument(help="The note; may be left out where tags change.")] = "",
    tag: TagOption = None,
    untag: UntagOption = None,
) -> None:
    """Add a note to a run, or change its tags; nothing that was written is changed.

    Notes and tags are entries of the run's journal, with the time and the login name. `treering show` prints them.

    Examples:
        treering note 0123 "the spike at 1187 came from corpus code" --tag keep

    Raises:
        UserError: neither a text nor a tag was given.
    """
    from treering.errors import UserError
    from treering.runlog.find import find_recorded, find_run
    from treering.runlog.journal import Noted, Tagged, login_name

    if not (text or tag or untag):
        raise UserError('note: found neither text nor tags, expected one: treering note RUN "TEXT" --tag TAG')
    runs = project().runs
    recorded = find_recorded(runs, run)
    journal = recorded[0].journal if recorded is not None else find_run(runs, run).journal
    at, by = time.time(), login_name()
    if text:
        journal.append(Noted(at=at, by=by, text=text))
    if tag or untag:
        journal.append(Tagged(at=at, by=by, added=tuple(tag or ()), removed=tuple(untag or ())))
    console.print(f"{journal.path}: added")
