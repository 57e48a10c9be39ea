"""The command group `treering`: it imports the module of a command only when that command is called."""

import importlib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from treering.cli.commands import COMMANDS
from treering.cli.help import CommandHelp, GroupHelp

NAMES = tuple(name for commands in COMMANDS.values() for name in commands)
"""The names of all commands, in the order of `treering --help`."""


class CommandGroup(GroupHelp):
    """Lists the commands from `COMMANDS`, and imports each one on demand."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = cast("dict[str, Any]", _Commands())

    def list_commands(self, _context: Any) -> list[str]:
        """The names of the commands."""
        return list(NAMES)

    def format_commands(self, _context: Any, formatter: Any) -> None:
        """Writes the names and the first sentences of all commands, by topic."""
        for topic, commands in COMMANDS.items():
            with formatter.section(topic):
                formatter.write_dl([(f"{name:<{max(map(len, NAMES))}}", text) for name, text in commands.items()])


class _Commands(Mapping[str, TyperCommand | TyperGroup]):
    """The commands by name; reading one imports its module."""

    def __getitem__(self, name: str) -> TyperCommand | TyperGroup:
        if name not in NAMES:
            raise KeyError(name)
        return _command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


@cache
def _command(name: str) -> TyperCommand | TyperGroup:
    """The command of its module, which is a function or a group of commands."""
    word = name.replace("-", "_")
    found = getattr(importlib.import_module(f"treering.cli.commands.{word}"), word)
    if not isinstance(found, typer.Typer):
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(name, cls=CommandHelp)(found)
        found = alone
    return cast("TyperCommand | TyperGroup", typer.main.get_command(found))
