"""CONTRIBUTING's table of where things are: each file exists and defines the name."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROWS = re.findall(
    r"^\| ([^|]+) \| `([\w/]+\.py)` \| (?:`([\w.]+)`)? ?\|$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE
)


def names(tree, prefix=""):
    """Dotted names of what a module defines, classes with their methods."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield f"{prefix}{node.name}"
            if isinstance(node, ast.ClassDef):
                yield from names(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    yield f"{prefix}{target.id}"


def test_there_are_twenty():
    assert len(ROWS) == len({question for question, _, _ in ROWS}) == 20


@pytest.mark.parametrize(("question", "file", "name"), ROWS)
def test_each_file_defines_its_name(question, file, name):
    defined = list(names(ast.parse((ROOT / file).read_text())))
    assert not name or name in defined or any(each.endswith(f".{name}") for each in defined), question
