"""`treering gc`: deletes what no answer needs, after it said what is lost."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from treering.cli.numbers import counted
from treering.cli.options import JsonOption, project
from treering.cli.output import console, print_json, print_table

if TYPE_CHECKING:
    from treering.runlog.garbage import Found, Garbage

RunsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[RUN]...", help="Any unique prefixes of runs' ids; default: all runs.")
]
KindOption = Annotated[
    list[str] | None,
    typer.Option(
        "--kind",
        metavar="KIND",
        help="unfinished, superseded, abandoned, conversion, reproduction, columns, telemetry or index; repeatable. "
        "Default: the first five.",
    ),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Delete without a question.")]

_DEFAULT = ("unfinished", "superseded", "abandoned", "conversion", "reproduction")


def gc(
    runs: RunsArgument = None,
    kind: KindOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Delete what no answer needs, and say before what is lost with it.

    Rings, headers, journals and manifests on a run's path are never deleted, nor a checkpoint on the way to the newest
    step, one that was promoted, or one that another run started from. A running run is left alone, and so is a run's
    newest reproduction, and one that is not finished. Removed checkpoints are recorded in the journal, so the audit
    knows that they were removed.

    Exit codes:
        0: done, or nothing to delete
        2: the question was answered with no, or cannot be asked: give --yes

    Examples:
        treering gc --dry-run
        treering gc 0123 --kind superseded --kind columns --yes

    Raises:
        UserError: a kind is unknown, a run is a published copy, or there is no terminal to ask on.
        Exit: the question was answered with no.
    """
    from treering.errors import UserError
    from treering.runlog.find import named_original
    from treering.runlog.garbage import LOST, delete, find_garbage

    kinds = tuple(kind or _DEFAULT)
    unknown = [each for each in kinds if each not in LOST]
    if unknown:
        raise UserError(f"gc: found --kind {unknown[0]}, expected one of {', '.join(LOST)}")
    here = project()
    named = [named_original(here.runs, name, "gc") for name in runs] if runs else None
    found = find_garbage(here, named, [each for each in LOST if each in kinds])
    total = sum(each.size for each in found.things)
    if not json:
        _print(found)
    asks = bool(found.things) and not (dry_run or yes)
    if asks and (json or not sys.stdin.isatty()):
        raise UserError("gc: nothing was deleted, since there is no terminal to ask on; give --yes, or --dry-run")
    if asks and not typer.confirm(f"Delete {counted(len(found.things), 'folder')}, {_size(total)}?"):
        console.print("nothing was deleted")
        raise typer.Exit(2)
    deleted: list[Garbage] = []

    def done(thing: "Garbage") -> None:
        deleted.append(thing)
        if not json:
            console.print(f"deleted  {thing.path}")

    if not dry_run:
        delete(found.things, done)
    if json:
        things = [
            {
                "kind": each.kind,
                "path": str(each.path),
                "bytes": each.size,
                "run": each.run.path.name if each.run else None,
                "lost": LOST[each.kind],
                "deleted": each in deleted,
            }
            for each in found.things
        ]
        print_json({"things": things, "bytes": total, "kept": list(found.kept)})
    elif deleted:
        console.print(f"{_size(sum(each.size for each in deleted))} freed")


def _print(found: "Found") -> None:
    from treering.runlog.garbage import LOST

    if found.things:
        rows = [[each.kind, _size(each.size), str(each.path)] for each in found.things]
        print_table(("kind", "size", "folder"), rows, numbers=("size",))
        console.print("")
        for kind in dict.fromkeys(each.kind for each in found.things):
            console.print(f"lost with {kind}: {LOST[kind]}")
    else:
        console.print("nothing to delete")
    for text in found.kept:
        console.print(f"kept     {text}")


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"
