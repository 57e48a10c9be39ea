"""`treering note`: notes and tags of a run."""

import socket
import time
from glob import escape
from typing import TYPE_CHECKING, Annotated

import typer

from treering.cli.options import RunArgument, project
from treering.cli.output import console

if TYPE_CHECKING:
    from treering.errors import UserError

TagOption = Annotated[list[str] | None, typer.Option("--tag", metavar="TAG", help="Add a tag; repeatable.")]
UntagOption = Annotated[list[str] | None, typer.Option("--untag", metavar="TAG", help="Take a tag away; repeatable.")]


def note(
    run: RunArgument,
    text: Annotated[str, typer.Argument(help="The note; may be left out where tags change.")] = "",
    tag: TagOption = None,
    untag: UntagOption = None,
) -> None:
    """Add a note to a run, or change its tags; nothing that was written is changed.

    Notes and tags are entries of the run's journal, with the time and the login name. `treering show` prints them. If
    the run's folder is not here or is a mirror, they go to the ledger.

    Examples:
        treering note 0123 "the spike at 1187 came from corpus code" --tag keep

    Raises:
        UserError: neither a text nor a tag was given.
    """
    from treering.errors import NotFoundError, UserError
    from treering.redact import redact
    from treering.runlog.find import named_run
    from treering.runlog.journal import Noted, Tagged, login_name
    from treering.runlog.mirror import refuse_mirror

    if not (text or tag or untag):
        raise UserError('note: found neither text nor tags, expected one: treering note RUN "TEXT" --tag TAG')
    runs = project().runs
    text, added, removed = redact(text), tuple(map(redact, tag or ())), tuple(untag or ())
    try:
        folder = named_run(runs, run)
    except NotFoundError as error:
        if next(runs.glob(f"{escape(run)}*"), None) is not None:  # several fit
            raise
        _note_in_ledger(run, error, text, added, removed)
        return
    try:
        refuse_mirror(folder.path)
    except UserError as error:
        _note_in_ledger(folder.id, error, text, added, removed)
        return
    journal = folder.journal
    at, by = time.time(), login_name()
    if text:
        journal.append(Noted(at=at, by=by, text=text))
    if added or removed:
        journal.append(Tagged(at=at, by=by, added=added, removed=removed))
    console.print(f"{journal.path}: added")


def _note_in_ledger(
    run: str, not_here: "UserError", text: str, added: tuple[str, ...], removed: tuple[str, ...]
) -> None:
    """Adds them to the ledger, for a person who cannot write to the run's folder.

    Args:
        run: prefix of the run's id.
        not_here: why they cannot go to the folder.
        text: the note.
        added: tags to add.
        removed: tags to take away.

    Raises:
        UserError: the ledger does not have the run, or there is no ledger.
    """
    from importlib.util import find_spec

    from treering.errors import NotFoundError
    from treering.runlog.journal import login_name

    if find_spec("sqlalchemy") is None:
        raise not_here
    from treering.store.ledger.database import Database, default_url
    from treering.store.ledger.ledger import Ledger

    ledger = Ledger(Database(default_url(project())))
    if not ledger.database.exists:
        raise not_here
    try:
        found = ledger.find_run(run)
    except NotFoundError as error:
        raise NotFoundError(f"{not_here}; {error}") from None
    ledger.annotate(found.key, by=login_name(), host=socket.gethostname(), text=text, added=added, removed=removed)
    console.print(
        f"{ledger.database.place}: added to run {found.id} of project {found.project}; its folder {found.folder} on "
        f"{found.host} does not get it"
    )
