"""How commands print: lines and tables for people, JSON for machines.

Everything that people read goes through `console`. It treats no text as markup, and escapes characters that would
control the terminal (`treering.foreign`). On a terminal, lines and tables fit its width. In a pipe, each line and each
row is whole.
"""

import json
import re
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from treering.foreign import shown
from treering.progress import Say
from treering.remedies import applicable

if TYPE_CHECKING:
    from rich.console import Console


# Shorter titles of curation steps, so that tables fit a terminal; `heldout` drops twins of held-out documents.
STEP_TITLES = {"heldout": "twins", "decontaminate": "decontam."}


_NARROW = 60
"""A table that is too wide for a terminal with fewer columns is printed with one cell on each line."""


_PIPE = 1 << 20
"""The width of a pipe in columns: more than any row needs."""


_LABEL = re.compile(r"\s*\S.{0,10}?\s{2,}|\s+(?:[-*] )?")
"""The label at the beginning of a line (`label       ` or `  - `): its width is the indent of continued lines."""


class Output:
    """Prints for people on standard output."""

    def print(self, *lines: str, style: str = "") -> None:
        """Prints each text on its own line; without a text, an empty line.

        A line break inside a text is not ours: it is printed escaped.
        """
        for line in lines or ("",):
            self._write(shown(applicable(line)), style)

    def print_text(self, text: str) -> None:
        """Prints a text of several lines, such as a document."""
        for line in shown(text, lines=True).split("\n"):
            self._write(line, "")

    def heading(self, line: str) -> None:
        """Prints a heading, with an empty line before it."""
        self.print("", line, style="bold")

    def print_table(
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[str] = ()
    ) -> None:
        """Prints a table; the columns named in `numbers` are aligned to the right."""
        from rich.cells import cell_len
        from rich.measure import Measurement
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            table.add_column(Text(column), justify="right" if column in numbers else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(shown(cell)) for cell in row))
        width = _width()
        pipe = _console(_PIPE)
        if width >= _NARROW or Measurement.get(pipe, pipe.options, table).maximum <= width:
            _console(width).print(table, crop=False)
            return
        label = max(map(cell_len, columns))
        for row in rows:
            self.print("", *(f"{column:<{label}}  {cell}" for column, cell in zip(columns, row, strict=True)))

    def _write(self, line: str, style: str) -> None:
        from rich.text import Text

        width = _width()
        for each in [line] if width == _PIPE else _wrapped(line, width):
            _console(width).print(Text(each, style=style), soft_wrap=True)


def _width() -> int:
    """Columns of the terminal, or of a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _PIPE


def _console(width: int) -> "Console":
    """A console without markup, emoji names and coloured numbers."""
    from rich.console import Console

    return Console(width=width, markup=False, emoji=False, highlight=False)


def _wrapped(line: str, width: int) -> list[str]:
    """Splits a line between words into parts that fit; a word that is longer than the width stays whole."""
    from rich.cells import cell_len

    if cell_len(line) <= width:
        return [line]
    label = _LABEL.match(line)
    indent = " " * min(cell_len(label[0]) if label else 0, width // 2)
    parts, part = [], ""
    for word in re.findall(r"\s*\S+", line):
        if part.strip() and cell_len(part + word) > width:
            parts.append(part)
            part = indent + word.lstrip()
        else:
            part += word
    return [*parts, part]


console = Output()
print_table = console.print_table


def print_json(value: Any) -> None:
    """Prints one JSON document on standard output."""
    sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")


def stage_progress(*, json: bool) -> Say:
    """Prints the lines of a stage on the console, or nothing if standard output is JSON."""
    return (lambda _: None) if json else console.print
