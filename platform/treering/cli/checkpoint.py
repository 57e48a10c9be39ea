"""`treering checkpoint`: checkpoints made ready for another layout, in the trainer's own process."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from treering.cli.output import JsonOption

SourceArgument = Annotated[Path, typer.Argument(help="A checkpoint's folder, or that of a run (its newest one).")]


def register(app: typer.Typer) -> None:
    """Adds the group."""
    group = typer.Typer(no_args_is_help=True)
    group.command("convert")(convert)
    app.add_typer(group, name="checkpoint", help=_HELP)


_HELP = """Make checkpoints ready for another layout.

Example: `treering checkpoint convert runs/0123456789abcdef`
"""


def convert(checkpoint: SourceArgument, json: JsonOption = False) -> None:
    """Convert a checkpoint, so that any layout can go on from it: a tensor a parameter instead of a part a rank.

    Every file is checked first. The conversion is written to `universal/` in the run's folder and stays as long as its
    checkpoint; one that is there and holds is kept. `treering train CONFIG --continue-changed` does the same by itself;
    ahead of it, no accelerator waits. Exit codes: 2 no checkpoint, or one from before this was possible, 3 it does not
    hold, 5 the conversion cannot be written.

    Example: `treering checkpoint convert runs/0123456789abcdef/checkpoints/step-00000300`
    """
    arguments = [sys.executable, "-m", "treering_trainer.convert", str(checkpoint)]
    arguments += ["--json"] if json else []
    os.execv(sys.executable, arguments)  # noqa: S606 - becomes the trainer, which this package never imports
