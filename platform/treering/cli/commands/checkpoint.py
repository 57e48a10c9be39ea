"""`treering checkpoint`: which ones a run has and why they stay; one made ready for another layout."""

import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from treering.cli.options import JsonOption, RunArgument, project
from treering.cli.output import console, print_json, print_table

SourceArgument = Annotated[
    Path, typer.Argument(metavar="CHECKPOINT", help="A checkpoint's folder, or that of a run (its newest one).")
]

_HELP = """Show the checkpoints of a run, or make one ready for another layout.

Example: `treering checkpoint list 0123`
"""

checkpoint = typer.Typer(
    name="checkpoint", help=_HELP, no_args_is_help=True, add_completion=False, rich_markup_mode="markdown"
)


@checkpoint.command("list")
def list_(
    run: RunArgument,
    json: JsonOption = False,
) -> None:
    """List a run's checkpoints: layout, size, held-out loss, whether it is converted, and the rules that keep it.

    The rules are those of the run's newest attempt; a checkpoint that none keeps goes when the next one is saved. The
    held-out loss is the newest one measured at or before the step.

    Example: `treering checkpoint list 0123`
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


@checkpoint.command("convert")
def convert(source: SourceArgument, json: JsonOption = False) -> None:
    """Convert a checkpoint, so that any layout can go on from it: a tensor a parameter instead of a part a rank.

    Every file is checked first. The conversion is written to `universal/` in the run's folder and stays as long as its
    checkpoint; one that is there and holds is kept. `treering train CONFIG --continue-changed` does the same by itself;
    ahead of it, no accelerator waits. Exit codes: 2 no checkpoint, or one from before this was possible, 3 it does not
    hold, 5 the conversion cannot be written.

    Example: `treering checkpoint convert runs/0123456789abcdef/checkpoints/step-00000300`
    """
    arguments = [sys.executable, "-m", "treering_trainer.checkpointing.convert", str(source)]
    arguments += ["--json"] if json else []
    os.execv(sys.executable, arguments)  # noqa: S606 - becomes the trainer, which this package never imports
