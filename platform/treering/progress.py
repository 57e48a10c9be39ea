"""Progress of slow work: what a function calls while it works, and the bars that a command shows meanwhile."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from treering.foreign import shown

Progress = Callable[[str, int, int], None]
"""Called with the name of a part of the work, how much of the part is done, and how much there is."""

Say = Callable[[str], None]
"""Called with each line that a stage reports."""


def quiet(_part: str, _done: int, _total: int) -> None:
    """A `Progress` that shows nothing."""


@contextmanager
def progress_bars(*, in_bytes: bool = False) -> Iterator[Progress]:
    """Shows a bar on standard error for each part of the work, if standard error is a terminal.

    Args:
        in_bytes: whether the parts count bytes, which are shown in a fitting unit.
    """
    from rich import progress as rich  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415

    terminal = Console(stderr=True)
    with rich.Progress(
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(),
        rich.DownloadColumn() if in_bytes else rich.MofNCompleteColumn(),
        rich.TimeRemainingColumn(),
        console=terminal,
        transient=True,
        disable=not terminal.is_terminal,
    ) as bars:
        tasks: dict[str, Any] = {}

        def show(part: str, done: int, total: int) -> None:
            if part not in tasks:
                tasks[part] = bars.add_task(shown(part), total=total)
            bars.update(tasks[part], completed=done)

        yield show
