"""How commands show progress: bars on standard error, or the lines of a stage."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from treering.cli.output import console
from treering.foreign import shown

if TYPE_CHECKING:
    from treering.audit.corpora.content import Progress


@contextmanager
def progress_bars() -> "Iterator[Progress]":
    """Shows a bar on standard error for each slow part, if standard error is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    terminal = Console(stderr=True)
    with Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal) as bars:
        tasks: dict[str, Any] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(shown(what), total=total)
            bars.update(tasks[what], completed=done)

        yield show


def stage_progress(*, json: bool) -> Callable[[str], None]:
    """Prints the lines of a stage on the console, or nothing if standard output is JSON."""
    return (lambda _: None) if json else console.print
