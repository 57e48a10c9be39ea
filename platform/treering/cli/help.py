"""How the help of a command looks: what the command does, its options, its exit codes, its examples.

The docstring of a command is its help. Its sections `Exit codes:` and `Examples:` are printed after the
options; the section `Raises:` is not printed.
"""

import re
from inspect import cleandoc
from typing import Any

from typer.core import TyperCommand, TyperGroup

_SECTION = r"^{}:\n((?:    .*\n?)+)"
_USUAL = {"0": "done", "2": "the usage, the config or a file is wrong"}
"""The exit codes of every command, where its docstring gives no other meaning."""


class CommandHelp(TyperCommand):
    """A command that prints its help in this form."""

    def collect_usage_pieces(self, context: Any) -> list[str]:
        """The words of the usage line; an argument that must be given has no braces."""
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(context)]

    def format_options(self, context: Any, formatter: Any) -> None:
        """Writes arguments and options; the type of an argument is in its text."""
        for title, kind in (("Arguments", "argument"), ("Options", "option")):
            records = [
                each.get_help_record(context) for each in self.get_params(context) if each.param_type_name == kind
            ]
            rows = [
                (name.partition(" <")[0] if kind == "argument" else name, text) for name, text in filter(None, records)
            ]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def format_help_text(self, _context: Any, formatter: Any) -> None:
        """Writes the paragraphs before the sections."""
        _write_text(self.help or "", formatter)

    def format_epilog(self, _context: Any, formatter: Any) -> None:
        """Writes the sections."""
        _write_sections(self.help or "", formatter, _USUAL)


class GroupHelp(TyperGroup):
    """A group of commands that prints its help in this form."""

    def format_commands(self, _context: Any, formatter: Any) -> None:
        """Writes the names and the first sentences of the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary(command.help or "")) for name, command in self.commands.items()])

    def format_help_text(self, _context: Any, formatter: Any) -> None:
        """Writes the paragraphs before the sections."""
        _write_text(self.help or "", formatter)

    def format_epilog(self, _context: Any, formatter: Any) -> None:
        """Writes the sections."""
        _write_sections(self.help or "", formatter, {})


def summary(text: str) -> str:
    """The first paragraph of a help, which is one sentence."""
    return " ".join(cleandoc(text).partition("\n\n")[0].split())


def examples(text: str) -> list[str]:
    """The command lines of the section `Examples:`."""
    return _section(text, "Examples")


def _section(text: str, title: str) -> list[str]:
    """The lines of a section, without their indent."""
    found = re.search(_SECTION.format(title), cleandoc(text), re.MULTILINE)
    return [line.strip() for line in found[1].splitlines()] if found else []


def _write_text(text: str, formatter: Any) -> None:
    formatter.write_paragraph()
    with formatter.indentation():
        formatter.write_text(
            re.sub(_SECTION.format("(?:Exit codes|Examples|Raises)"), "", cleandoc(text), flags=re.MULTILINE)
        )


def _write_sections(text: str, formatter: Any, usual: dict[str, str]) -> None:
    codes = usual | dict(line.split(": ", 1) for line in _section(text, "Exit codes"))
    if codes:
        with formatter.section("Exit codes"):
            formatter.write_dl(sorted(codes.items(), key=lambda row: int(row[0])))
    with formatter.section("Examples"):
        for example in examples(text):  # whole, to be copied
            formatter.write(f"{'':{formatter.current_indent}}{example}\n")
