"""`treering mirror`: brings copies of run folders here from a store."""

import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from treering.cli.numbers import counted
from treering.cli.options import JsonOption, project
from treering.cli.output import console, print_json

if TYPE_CHECKING:
    from treering.errors import TreeringError
    from treering.project import Project
    from treering.ship.mirror import MirrorOf, MirrorReport

StoreArgument = Annotated[
    str | None,
    typer.Argument(metavar="URL", help="A folder or s3://BUCKET/PREFIX; default: `TREERING_STORE_URL`."),
]
ProjectOption = Annotated[
    str | None,
    typer.Option("--project", metavar="NAME", help="The project's name in the store; default: its only project."),
]
FollowOption = Annotated[bool, typer.Option("--follow", help="Bring what is new every few seconds, until Ctrl-C.")]

INTERVAL_S = 5.0


def mirror(
    url: StoreArgument = None,
    name: ProjectOption = None,
    follow: FollowOption = False,
    json: JsonOption = False,
) -> None:
    """Bring the runs of a project here from a store, to look at and to audit; fetch only what is new.

    `treering ship` copies the folders of runs to the store of `TREERING_STORE_URL`, without weights and logs. The
    command writes each run to `runs/` of this folder, byte by byte as it was copied, and marks it as a mirror: every
    command that reads works there, and no command writes. Use a folder that trains nothing itself.

    Exit codes:
        0: everything that the store has is here
        2: the store has no such project, or a run here is no mirror
        3: the store has lost or damaged a part of a file; everything else is here
        4: the store does not answer; run the command again

    Examples:
        treering mirror s3://team/treering
        treering mirror /mnt/store --project demo --follow

    Raises:
        UserError: no store is named.
    """
    from treering.errors import NotFoundError, StoreError, TreeringError, UserError
    from treering.objects import ObjectStore
    from treering.ship.copy_target import STORE_VARIABLE
    from treering.ship.mirror import MirrorOf

    place = url or os.environ.get(STORE_VARIABLE)
    if not place:
        raise UserError(f"mirror: found no store, expected URL or {STORE_VARIABLE}: treering mirror s3://BUCKET/PREFIX")
    here, store = project(), ObjectStore(place)
    chosen = name or os.environ.get("TREERING_PROJECT")
    said: set[str] = set()
    while follow:
        try:
            for done in _brought(MirrorOf(store, chosen), here):
                _print_news(done, said)
        except (NotFoundError, StoreError) as error:  # nothing was copied yet, or the store is down
            _print_news(error, said)
        time.sleep(INTERVAL_S)
    reports: list[MirrorReport] = []
    errors: list[TreeringError] = []
    for done in _brought(MirrorOf(store, chosen), here):
        if isinstance(done, TreeringError):
            errors.append(done)
            continue
        reports.append(done)
        if not json:
            _print_news(done, said, quiet=False)
    if json:
        print_json([_document(each) for each in reports])
    _end(reports, errors)


def _brought(source: "MirrorOf", here: "Project") -> "Iterator[MirrorReport | TreeringError]":
    """Brings every run; a run that cannot be brought does not hold up the others."""
    from treering.errors import EvidenceError, UserError

    for run in source.runs():
        try:
            yield source.bring(here, run)
        except (EvidenceError, UserError) as error:
            yield error


def _print_news(done: "MirrorReport | TreeringError", said: set[str], *, quiet: bool = True) -> None:
    """Prints what a pass did; an error, and what is missing, once."""
    from treering.errors import TreeringError

    lines: list[str] = []
    if isinstance(done, TreeringError):
        lines.append(str(done))
    else:
        if done.files or not quiet:
            new = f"{counted(done.files, 'file')}, {done.num_bytes:,} bytes" if done.files else "nothing new"
            console.print(f"{done.run} {done.mirror.state}: {new}")
        for part in done.mirror.missing:
            until = part.offset + part.size
            lines.append(f"{done.run} {part.file}: bytes {part.offset:,} to {until:,} are {part.problem} in the store")
    for line in lines:
        if line not in said:
            console.print(line)
    said.update(lines)


def _document(report: "MirrorReport") -> dict[str, object]:
    mark = report.mirror.model_dump(mode="json", exclude={"schema_version", "rewritten"})
    return {"run": report.run, "files": report.files, "bytes": report.num_bytes, **mark}


def _end(reports: "list[MirrorReport]", errors: "list[TreeringError]") -> None:
    """Raises what the exit code says.

    Raises:
        TreeringError: the first run that could not be brought.
        EvidenceError: the store has lost or damaged parts.
    """
    from treering.errors import EvidenceError

    for error in errors:
        raise error
    bad = [f"{each.run}/{part.file}" for each in reports for part in each.mirror.missing]
    if bad:
        raise EvidenceError(
            f"{counted(len(bad), 'part')} of files missing or damaged in the store ({', '.join(bad[:5])}): "
            "`treering rebuild` beside the runs puts them there again; then run `treering mirror` again"
        )
