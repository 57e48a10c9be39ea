"""Every help: one sentence, options, exit codes, examples that parse, in 80 columns."""

import re
import shlex
import subprocess
import sys

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from treering.cli import app
from treering.cli.commands import COMMANDS
from treering.cli.group import NAMES
from treering.cli.help import examples, summary

GROUP = get_command(app)
EVERY = [
    words
    for name in NAMES
    for words in ((name,), *((name, below) for below in getattr(GROUP.commands[name], "commands", ())))
]
"""The words of every command and of every command of a group."""


def command_of(words):
    command = GROUP
    for word in words:
        command = command.commands[word]
    return command


def help_of(*words, **environ):
    result = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "80", "TERM": "dumb", **environ})
    assert result.exit_code == 0
    return result.output


def section(text, title):
    """The lines of a section, without their indent."""
    (found,) = re.findall(rf"^{title}:\n((?:  .*\n)+)", text, re.MULTILINE)
    return [line[2:] for line in found.splitlines()]


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_a_help_has_its_sentence_its_exit_codes_and_its_examples_in_80_columns(words):
    command, text = command_of(words), help_of(*words)
    sentence = summary(command.help)
    assert re.fullmatch(r"[A-Z][^.]+(\.\w[^.]*)*\.", sentence), "one sentence"
    assert sentence in " ".join(text.split())
    assert section(text, "Examples") == examples(command.help)
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    if not hasattr(command, "commands"):
        codes = [line.split()[0] for line in section(text, "Exit codes") if not line.startswith(" ")]
        assert {"0", "2"} <= set(codes) <= {"0", "1", "2", "3", "4", "5", "6", "75", "130"}
        assert codes == sorted(codes, key=int)


@pytest.mark.parametrize("words", [*EVERY, ()], ids=" ".join)
def test_every_example_is_a_command_that_parses(words):
    lines = examples(command_of(words).help)
    assert lines
    for line in lines:
        program, *given = shlex.split(line)
        assert program == "treering"
        assert tuple(given[: len(words)]) == words
        command = GROUP
        while hasattr(command, "commands"):
            command = command.commands[given.pop(0)]
        command.make_context(command.name, given)


def test_the_list_has_the_sentence_of_every_command():
    text = "".join(help_of().split())
    for name, sentence in ((name, text) for commands in COMMANDS.values() for name, text in commands.items()):
        assert sentence == summary(GROUP.commands[name].help), name
        assert f"{name}{sentence}".replace(" ", "") in text
    assert [title for title in COMMANDS if f"{title}:".replace(" ", "") not in text] == []


def test_the_list_imports_no_command(tmp_path):
    code = (
        "import sys; from treering.cli import main; sys.argv = ['treering', '--help']\n"
        "try:\n    main()\n"
        "finally:\n    print(*sorted(name for name in sys.modules if name.startswith('treering.cli.commands.') or name"
        " in {'numpy', 'pydantic', 'rich'}))"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == ""


@pytest.mark.parametrize("words", [[], ["checkpoint"]], ids=" ".join)
def test_a_group_without_a_command_prints_its_help_and_is_wrong_usage(words, tmp_path):
    command = [sys.executable, "-c", "import sys; from treering.cli import main; sys.argv[0] = 'treering'; main()"]
    ran = subprocess.run([*command, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert ran.stdout.startswith(f"Usage: {' '.join(['treering', *words])} [OPTIONS] COMMAND")
    assert ran.stderr == ""
