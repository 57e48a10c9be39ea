"""A command that an error, a note or a page names exists, with its options, and applies where it is said."""

import ast
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from treering.cli import app
from treering.remedies import applicable

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(
    path
    for folder in ("platform", "trainer", "dashboard")
    for path in (ROOT / folder).rglob("*.py")
    if path.name != "remedies.py"
)
QUOTED = re.compile(r"`((?:treering|dvc|make|pip|git|python) [^`]*)`")
OTHERS = {"git checkout dvc.lock", "git fetch", "git checkout -- VALUE"}
"""Commands of other programs."""
DVC = {"init", "repro", "checkout", "status", "pull", "remote", "fetch", "push", "metrics", "plots"}


def _texts(path):
    """The texts of a file that people may read, each f-string with a word in place of its values."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "VALUE" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.value


NAMED = sorted({found for path in SOURCES for text in _texts(path) for found in QUOTED.findall(text)})


@pytest.fixture(scope="module")
def tree():
    return get_command(app)


def test_there_are_remedies():
    assert len(NAMED) > 40


@pytest.mark.parametrize("named", NAMED)
def test_a_named_command_exists(named, tree):
    program, *words = shlex.split(named.replace("…", "VALUE"))
    if program == "treering":
        command = tree
        while hasattr(command, "commands") and words and words[0] != "VALUE" and not words[0].startswith("-"):
            assert words[0] in command.commands, f"`{named}` names no command"
            command = command.commands[words.pop(0)]
        options = {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {"--help"}
        for word in words:
            if word.startswith("--"):
                assert word.partition("=")[0] in options, f"`{named}` names no option of {command.name}"
    elif program == "dvc":
        assert words[0] in DVC
        stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
        named_stages = [word for word in words[1:] if not word.startswith("-") and word != "VALUE"]
        assert set(named_stages if words[0] == "repro" else ()) <= set(stages)
    elif program == "make":
        assert re.search(rf"^{words[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif program == "pip":
        assert words[0] == "install"
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        assert set(re.findall(r"(?:treering|\.)\[(\w+)\]", named)) <= {*extras, "VALUE"}
    elif program == "python":
        assert words[0] == "-m"
        module = words[1].replace(".", "/")
        places = [ROOT / folder / module for folder in ("platform", "trainer", "dashboard")]
        assert any(place.with_suffix(".py").exists() or (place / "__main__.py").exists() for place in places)
    else:
        assert named in OTHERS


def test_a_remedy_applies_in_this_folder(tmp_path):
    text = "no blend; `dvc repro -f blend` makes it, `dvc checkout` restores it, `dvc repro tokenize` too"
    assert applicable(text, tmp_path) == (
        "no blend; `treering blend CONFIG` makes it, a copy of your own restores it, `treering tokenize CONFIG` too"
    )
    (tmp_path / "dvc.yaml").write_text("stages:\n  blend:\n    cmd: x\n")
    assert applicable(text, tmp_path) == (
        "no blend; `dvc repro -f blend` makes it, `dvc checkout` restores it, `treering tokenize CONFIG` too"
    )
    assert applicable("nothing to run", tmp_path) == "nothing to run"
    text = "no run there; `make repro` makes one"
    assert applicable(text, tmp_path) == "no run there; the pipeline from `treering fetch CONFIG` on makes one"
    (tmp_path / "Makefile").touch()
    assert applicable(text, tmp_path) == text
