"""What every test of the suite keeps to."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
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
