"""`treering checkpoint`: lists the checkpoints of a run, and converts one for another layout."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from treering.cli.help import CommandHelp, GroupHelp
from treering.cli.options import JsonOption, RunArgument, project
from treering.cli.output import console, print_json, print_table
from treering.cli.trainer import become_trainer

SourceArgument = Annotated[
    Path,
    typer.Argument(
        metavar="CHECKPOINT", help="The folder of a checkpoint, or of a run; a run means its newest checkpoint."
    ),
]

_HELP = """Show the checkpoints of a run, or convert a checkpoint for another layout.

Examples:
    treering checkpoint list 0123
    treering checkpoint convert runs/0123456789abcdef
"""

checkpoint = typer.Typer(
    name="checkpoint", cls=GroupHelp, help=_HELP, no_args_is_help=True, add_completion=False, rich_markup_mode=None
)


@checkpoint.command("list", cls=CommandHelp)
def list_(
    run: RunArgument,
    json: JsonOption = False,
) -> None:
    """List the checkpoints of a run: layout, size, held-out loss, conversion, and the rules that keep each.

    The rules are those of the newest attempt of the run. A checkpoint that no rule keeps is removed when the next one
    is saved. The held-out loss is the newest loss that was measured at the step or before it.

    Exit codes:
        3: a record of the run does not hold

    Examples:
        treering checkpoint list 0123
    """
    from treering.metrics.checkpoints import list_checkpoints
    from treering.runlog.find import find_run

    found = list_checkpoints(find_run(project().runs, run))
    if json:
        print_json(found)
    elif not found:
        console.print("No checkpoint yet.")
    else:
        columns = ("step", "TPxPPxDP", "MB", "saved, UTC", "val. loss", "converted", "stays by")
        print_table(columns, [_row(each) for each in found], numbers=("step", "MB", "val. loss"))
        for each in found:
            if each["problem"]:
                console.print("", f"{each['problem']}")


def _row(each: dict[str, Any]) -> list[str]:
    if each["problem"]:
        return [f"{each['step']:,}", *[""] * 5, "damaged"]
    return [
        f"{each['step']:,}",
        each["layout"],
        f"{each['bytes'] / 1e6:,.1f}",
        time.strftime("%Y-%m-%d %H:%M", time.gmtime(each["created_at"])),
        "" if each["validation_loss"] is None else f"{each['validation_loss']:.4f}",
        "yes" if each["converted"] else "",
        ", ".join(each["kept_by"]) or "nothing",
    ]


@checkpoint.command("convert", cls=CommandHelp)
def convert(source: SourceArgument, json: JsonOption = False) -> None:
    """Convert a checkpoint, so that a training with any layout can continue from it.

    Every file is checked first. The conversion has one tensor for each parameter, where the checkpoint has a part for
    each rank. It is written to `universal/` in the folder of the run, and is kept as long as its checkpoint. A
    conversion that exists and holds is kept. `treering train CONFIG --continue-changed` converts by itself; with this
    command, no accelerator waits for the conversion.

    Exit codes:
        2: the checkpoint does not exist, or it was saved before conversions existed
        3: the checkpoint does not hold
        5: the conversion cannot be written

    Examples:
        treering checkpoint convert runs/0123456789abcdef
    """
    become_trainer("checkpointing.convert", {"--json": json}, str(source))
