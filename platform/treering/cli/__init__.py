"""The command line: parse, call, print."""

import sys

import typer

from treering.cli.group import CommandGroup
from treering.ending import EXIT_INTERRUPTED, run_command
from treering.errors import UserError

app = typer.Typer(
    name="treering",
    help="Reproducibility and experiment tracking for large-scale language-model training.",
    cls=CommandGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    epilog="Exit codes: 0 done, 1 a fault in Treering, 2 usage, config or files, 3 evidence does not hold, 4 a store "
    "does not answer, 5 training failed, 75 start again, 130 Ctrl-C, 141 closed pipe. `TREERING_DEBUG=1` prints "
    "tracebacks.",
)


@app.callback()
def treering() -> None:
    """Makes the application a group; every command is in `treering.cli.commands`."""


def main() -> None:
    """Entry point of `treering`: an error is one clear text and its exit code."""
    sys.exit(run_command(_run))


def _run() -> int:
    try:
        code = app(standalone_mode=False)
    except typer.Abort:
        raise UserError("standard input ended; the command asked for a text there") from None
    except SystemExit as end:  # typer's own answer to a closed pipe
        if isinstance(end.__context__, BrokenPipeError):
            raise end.__context__ from None
        raise
    except Exception as error:
        usage = getattr(error, "format_message", None)  # of a class that typer keeps to itself
        if usage is None:
            raise
        command = getattr(getattr(error, "ctx", None), "command_path", "treering")
        text = usage().removesuffix(".")
        if not text:  # no command: its help is printed already
            return UserError.exit_code
        raise UserError(f"{text}; `{command} --help` shows its arguments and options") from None
    if code == EXIT_INTERRUPTED:
        raise KeyboardInterrupt
    return int(code or 0)
