"""The command line: parse, call, print."""

import sys

import typer

from treering.errors import EXIT_INTERRUPTED, TreeringError

app = typer.Typer(
    name="treering",
    help="Reproducibility and experiment tracking for large-scale language-model training.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def main() -> None:
    """Entry point of `treering`: an error of ours is one clear text and its exit code."""
    from treering.cli import commands

    commands.register(app)
    try:
        app()
    except TreeringError as error:
        sys.stderr.write(f"treering: {error}\n")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("treering: interrupted; the same command goes on from here\n")
        sys.exit(EXIT_INTERRUPTED)
