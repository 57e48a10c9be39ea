"""The name of each file of a run stands in one place: everywhere else it is a property of the run's folders."""

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(path for folder in ("platform", "trainer", "dashboard") for path in (ROOT / folder).rglob("*.py"))
HOMES = {
    "resolved.json": {"config/resolved.py"},
    "header.json": {"runlog/folders.py"},
    "rings.jsonl": {"runlog/ring.py"},
    "end.json": {"runlog/folders.py"},
    "incidents.jsonl": {"runlog/incidents.py"},
    "manifest.json": {"runlog/directory.py", "data/corpus/corpus.py"},  # of a checkpoint, and of a corpus
    "hooks.json": {"runlog/directory.py"},
    "journal.jsonl": {"runlog/journal.py"},
    "evaluations": {"runlog/directory.py"},
}


@cache
def _tree(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def _texts(tree):
    """Texts that a program works with: no docstrings, no descriptions and helps, no keys of mappings."""
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    skipped |= {
        id(word.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for word in node.keywords
        if word.arg in {"description", "help"}
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.value


def _joined(tree):
    """Texts that are joined to a path with `/`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and isinstance(node.right, ast.Constant):
            yield node.right.value


def homes(name):
    found = set()
    for path in SOURCES:
        tree = _tree(path)
        if name == "evaluations":
            constants = (node for node in tree.body if isinstance(node, ast.Assign))
            named = any(isinstance(node.value, ast.Constant) and node.value.value == name for node in constants)
            named |= name in _joined(tree) or any(f"{name}/" in text for text in _texts(tree))
        else:
            named = any(name in text.replace("/", " ").split() for text in _texts(tree))
        if named:
            found.add(path.relative_to(ROOT).as_posix().removeprefix("platform/treering/"))
    return found


@pytest.mark.parametrize("name", HOMES)
def test_a_name_stands_in_one_place(name):
    assert homes(name) == HOMES[name]


def test_a_journal_is_made_in_one_place():
    calls = [
        path.name
        for path in SOURCES
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Journal"
    ]
    assert not calls, "`Journal.of` makes it"
