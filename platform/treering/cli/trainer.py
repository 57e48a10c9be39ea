"""How a command becomes a module of the trainer, which this package never imports."""

import os
import sys
from collections.abc import Mapping
from typing import Never

Value = str | os.PathLike[str] | int | float | list[str] | None


def option_words(options: Mapping[str, Value]) -> list[str]:
    """The words of options: a list repeats its option, True is a flag, None and False give no word."""
    words: list[str] = []
    for name, value in options.items():
        if value is True:
            words.append(name)
        elif isinstance(value, list):
            words += [f"{name}={each}" for each in value]
        elif value is not None and value is not False:
            words.append(f"{name}={value}")
    return words


def trainer_words(module: str, options: Mapping[str, Value], *arguments: str) -> list[str]:
    """The command that runs a module of the trainer.

    Args:
        module: its name in `treering_trainer`.
        options: the options by name.
        arguments: the arguments after the options.
    """
    words = [sys.executable, "-m", f"treering_trainer.{module}", *option_words(options)]
    return [*words, *(["--", *arguments] if arguments else [])]


def become_trainer(module: str, options: Mapping[str, Value], *arguments: str) -> Never:
    """Replaces this process by a module of the trainer; the arguments are those of `trainer_words`."""
    os.execv(sys.executable, trainer_words(module, options, *arguments))  # noqa: S606 - no shell
