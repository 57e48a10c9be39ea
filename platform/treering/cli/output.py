"""How commands print: lines and tables for people, JSON for machines.

Everything that people read goes through `console`, which takes nothing as markup and escapes what would control the
terminal (`treering.foreign`). A terminal gets lines and tables that fit its width; a pipe gets each line and each row
whole.
"""

import json
import re
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from treering.foreign import shown
from treering.remedies import applicable

if TYPE_CHECKING:
    from rich.console import Console


# Curation steps whose names would make a table wider than a terminal; `heldout` drops twins of held-out documents.
STEP_TITLES = {"heldout": "twins", "decontaminate": "decontam."}


_NARROW = 60
"""Columns of a terminal under which a table is printed as one line a cell."""


_PIPE = 1 << 20
"""Columns of a pipe: more than any row has."""


_LABEL = re.compile(r"\s*\S.{0,10}?\s{2,}|\s+(?:[-*] )?")
"""The beginning of a line that its continuations are indented by: `label       ` or `  - `."""


class Output:
    """Prints for people on standard output."""

    def print(self, *lines: str, style: str = "") -> None:
        """Prints each text on a line of its own, an empty line without one.

        An end of a line inside a text is foreign, and shown escaped.
        """
        for line in lines or ("",):
            self._write(shown(applicable(line)), style)

    def print_text(self, text: str) -> None:
        """Prints a text of several lines, as a document's."""
        for line in shown(text, lines=True).split("\n"):
            self._write(line, "")

    def heading(self, line: str) -> None:
        """Prints a line that begins a part, with an empty line before it."""
        self.print("", line, style="bold")

    def print_table(
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[str] = ()
    ) -> None:
        """Prints a table; columns in `numbers` are aligned to the right."""
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
    """Where nothing is markup, no `:name:` an emoji, and no number coloured."""
    from rich.console import Console

    return Console(width=width, markup=False, emoji=False, highlight=False)


def _wrapped(line: str, width: int) -> list[str]:
    """The line in parts that fit, split between words; a word that is longer than the width stays whole."""
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
    """One JSON document on standard output."""
    sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")
