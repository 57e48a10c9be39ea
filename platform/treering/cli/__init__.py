"""The command line: parse, call, print."""

import sys

import typer

from treering.cli.group import CommandGroup
from treering.cli.output import console
from treering.ending import EXIT_INTERRUPTED, run_command
from treering.errors import UserError

_HELP = """Reproducibility and experiment tracking for large-scale language-model training.

The option `--help` of a command shows its options, exit codes and examples. `TREERING_DEBUG=1` prints tracebacks.

Exit codes:
    0: done
    1: a fault in Treering itself; the error names the file with the traceback
    2: the usage, the config or a file is wrong
    3: the evidence is missing or does not hold
    4: a store does not answer; the same command may succeed later
    5: the training failed, or a command of the trainer cannot read or write
    75: start the same command again
    130: Ctrl-C
    141: the reader of the output ended

Examples:
    treering runs
    treering audit published --verify
"""

app = typer.Typer(
    name="treering",
    cls=CommandGroup,
    help=_HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": 100},
)


@app.callback()
def treering() -> None:
    """Makes the application a group; every command is in `treering.cli.commands`."""


def main() -> None:
    """Runs the command of the command line; an error becomes one text and its exit code."""
    sys.exit(run_command(_run))


def _run() -> int:
    try:
        code = app(standalone_mode=False)
    except typer.Abort:
        raise UserError("standard input ended, expected an answer to the question") from None
    except SystemExit as end:  # typer turns a closed pipe into this
        if isinstance(end.__context__, BrokenPipeError):
            raise end.__context__ from None
        raise
    except Exception as error:
        usage = getattr(error, "format_message", None)  # of a class that typer does not export
        if usage is None:
            raise
        command = getattr(getattr(error, "ctx", None), "command_path", "treering")
        text = usage().removesuffix(".")
        if text.startswith("Usage: "):  # a group without a command
            console.print_text(text)
            return UserError.exit_code
        raise UserError(f"{text}; `{command} --help` shows its arguments and options") from None
    if code == EXIT_INTERRUPTED:
        raise KeyboardInterrupt
    return int(code or 0)
