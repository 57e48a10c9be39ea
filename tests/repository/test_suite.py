"""What every test of the suite keeps to."""

import ast
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
FILES = sorted(TESTS.rglob("*.py"))


def unchecked(tree):
    """Calls of `pytest.raises` that accept any text: `match` is missing, or also matches an empty text.

    ruff's PT011 sees only exceptions that are named in the call, not those of a parameter.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"pytest.raises", "raises"}:
            pattern = next((keyword.value for keyword in node.keywords if keyword.arg == "match"), None)
            if pattern is None or (isinstance(pattern, ast.Constant) and re.search(pattern.value, "")):
                yield node


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(TESTS)))
def test_an_expected_error_is_known_by_its_text(path):
    found = [f"line {call.lineno}: {ast.unparse(call)}" for call in unchecked(ast.parse(path.read_text()))]
    assert found == [], f"{path}: pass `match=` with the words that tell this error from others"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("pytest.raises(UserError)", 1),
        ("pytest.raises(error)", 1),
        ("pytest.raises(UserError, match='')", 1),
        ("pytest.raises(UserError, match='.*')", 1),
        ("pytest.raises(UserError, match=message)", 0),
        ("pytest.raises(UserError, match='no corpus')", 0),
    ],
)
def test_the_check_sees_an_error_without_a_text(source, found):
    assert len(list(unchecked(ast.parse(source)))) == found


def test_the_hooks_before_a_commit_are_the_commands_of_make_lint():
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    entries = [hook["entry"].removeprefix(".venv/bin/") for hook in repository["hooks"]]
    needs, recipe = re.search(r"^lint:(.*?)##.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE).groups()
    targets = [f"make {target}" for target in needs.split() if target != "$(READY)"]
    assert entries == [*(line.removeprefix("\t@") for line in recipe.splitlines()), *targets]
    assert {hook["language"] for hook in repository["hooks"]} == {"system"}, "no hook installs anything"
