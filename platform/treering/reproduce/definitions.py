"""What differs between two versions of a Python module: functions, classes, methods and constants by name."""

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from treering.collect.syntax import tree_digest
from treering.config.canonical import digest_json

Kind = Literal["function", "class", "constant", "imports", "statements", "file"]
Change = Literal["changed", "added", "removed"]

_NAMELESS = ("imports", "statements")
_TOO_LONG = 120
"""Characters of a line of code that is shown."""


@dataclass(frozen=True, slots=True)
class CodeChange:
    """One part of a program that differs between two versions.

    Attributes:
        file: the file, relative to the root of the sources.
        kind: `statements` are those of a module or a class that define no name; `file` is a whole file.
        name: with the names of its module and class; of imports and statements the module or class, of a file its path.
        change: from the first version to the second.
        first: the first line of code that differs, as the first version has it; empty where it has none.
        second: the same of the second version.
    """

    file: str
    kind: Kind
    name: str
    change: Change
    first: str = ""
    second: str = ""

    @property
    def sentence(self) -> str:
        """The change in words."""
        return f"{self.kind} {'of ' if self.kind in _NAMELESS else ''}{self.name} {self.change}"


@dataclass(frozen=True, slots=True)
class _Definition:
    kind: Kind
    nodes: list[ast.stmt]

    @property
    def digest(self) -> str:
        return digest_json([tree_digest(node) for node in self.nodes])

    @property
    def lines(self) -> list[str]:
        return [line for node in self.nodes for line in ast.unparse(node).splitlines()]


def changed_definitions(file: str, first: bytes | None, second: bytes | None) -> list[CodeChange]:
    """What differs between two versions of a module; comments, formatting and docstrings do not count.

    Args:
        file: path of the file, relative to the root of the sources; names of its parts begin with its module.
        first: the first version, None where there is none.
        second: the second version, None likewise.

    Returns:
        The changes in the order of the module; for a file that is no Python module one change of the file.
    """
    if first is None or second is None:
        change: Change = "added" if first is None else "removed"
        return [CodeChange(file, "file", file, change)] if first != second else []
    if not file.endswith(".py"):
        return [CodeChange(file, "file", file, "changed")] if first != second else []
    try:
        versions = [_definitions(content) for content in (first, second)]
        one, other = versions
        names = dict.fromkeys([*one, *other])
        return [found for name in names if (found := _compared(file, name, one.get(name), other.get(name))) is not None]
    except (SyntaxError, ValueError, RecursionError):  # of another version of Python, or no Python at all
        return [CodeChange(file, "file", file, "changed")] if first != second else []


def _compared(file: str, name: str, first: _Definition | None, second: _Definition | None) -> CodeChange | None:
    there = first or second
    if there is None or (first is not None and second is not None and first.digest == second.digest):
        return None
    module = module_name(file)
    change: Change = "added" if first is None else "removed" if second is None else "changed"
    lines = _first_lines(first.lines if first else [], second.lines if second else [])
    full = f"{module}.{name}"
    if there.kind in _NAMELESS:
        full = full.rpartition(".")[0]
    return CodeChange(file, there.kind, full, change, *lines)


def module_name(file: str) -> str:
    """`treering_trainer.core.optim` of `trainer/treering_trainer/core/optim.py`: from the package's folder on."""
    parts = file.removesuffix(".py").removesuffix("/__init__").split("/")
    start = next((at for at, part in enumerate(parts) if part.startswith("treering")), 0)
    return ".".join(parts[start:])


def _first_lines(first: list[str], second: list[str]) -> tuple[str, str]:
    """The first line that differs, as each version has it."""
    for kind, start, end, other, other_end in SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        if kind != "equal":
            texts = (first[start] if start < end else "", second[other] if other < other_end else "")
            one, two = (text.strip()[:_TOO_LONG] for text in texts)
            return one, two
    return "", ""


def _definitions(source: bytes) -> dict[str, _Definition]:
    """The parts of a module by name.

    Raises:
        SyntaxError: this Python cannot parse it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(source)
    found: dict[str, _Definition] = {}
    for name, kind, node in _parts(tree.body, ""):
        found.setdefault(name, _Definition(kind, [])).nodes.append(node)
    return found


def _parts(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, Kind, ast.stmt]]:
    """Name, kind and tree of each statement; imports and other nameless statements have a name together."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name, "function", node
        elif isinstance(node, ast.ClassDef):
            head = ast.ClassDef(node.name, node.bases, node.keywords, [ast.Pass()], node.decorator_list)
            yield prefix + node.name, "class", head
            yield from _parts(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield f"{prefix}imports", "imports", node
        elif names := _assigned(node):
            yield prefix + names, "constant", node
        elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):  # a docstring
            yield f"{prefix}statements", "statements", node


def _assigned(node: ast.stmt) -> str:
    """The names that a statement assigns, empty for any other statement."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return ", ".join(ast.unparse(target) for target in targets)
