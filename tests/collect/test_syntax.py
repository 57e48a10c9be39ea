"""The syntax digest: what is the same program has the same digest, and every other one has another.

The last tests go over every module that decides numbers: each field of each node of its tree is changed once.
"""

import ast
import io
import random
import re
import sys
import tokenize
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from treering.collect.code import NUMERIC_SOURCES, source_digests
from treering.collect.syntax import syntax_digest, tree_digest
from treering.errors import UserError

ROOT = Path(__file__).parents[2]
MODULES = sorted(name for name in source_digests(ROOT, NUMERIC_SOURCES) if name.endswith(".py"))

SAMPLE = '''
"""A module."""
import os as system
from typing import *

@staticmethod
async def f(a, /, b: int = 1, *c, d=2.5, e, **k) -> "text":
    """A function."""
    global G
    x = [i async for i in a if i] + [*c, -1, ~2, 3j, b"\\x00", None, ..., True, 1e999, "ä\\U0001f600\\ud800"]
    y: dict[str, int] = {"a": 1, **k}
    z = f"{a!r:>{b}}{b:{c}{d}}{{}}" "text" f"{a=}{a:%H:%M}" + rf"\\d{b:}"
    x[1:2, ::3] @= lambda q=1, *, r: (q, r)
    with open(a) as o, o:
        return await (yield_ := a) if a < b <= c is not d not in e else (not a and b or c)

class C(Base, metaclass=Meta):
    """A class."""
    field: int
    """A field."""
    def g(self):
        try:
            yield from self
        except* (A, B) as error:
            raise error from None
        else:
            del self.a, self[0]
        finally:
            assert self, "text"
        match self:
            case {"a": [1, *rest], **others} | C(0, x=None) if rest:
                pass
            case _ as whole:
                nonlocal_ = 1
        while True:
            break
        for i, (j, *k) in self:
            continue
'''

SAME = [
    ("a = 1", "# a comment\n\n\na    =  1  # another"),
    ("a = 1", "# -*- coding: latin-1 -*-\na = 1"),
    ("a = 1", "a = \\\n 1;"),
    ("a = 16", "a = 0x10"),
    ("a = 1000.0", "a = 1_000.0"),
    ("a = 'b' 'c'", 'a = """bc"""'),
    ("a = u'b'", "a = 'b'"),
    ("a = f'{b}' 'c' ''", "a = f'{b}c'"),
    ("a = (b, c)", "a = (\n    b,  # first\n    c,\n)"),
    ("def f():\n    return 1", "def f():\n  '''What it is.'''\n  return 1"),
    ("class C:\n    a: int = 1", "'''A module.'''\nclass C:\n    '''A class.'''\n    a: int = 1\n    '''A field.'''"),
    ("async def f():\n    'one'\n    return 1", "async def f():\n    'other'\n    return 1"),
]

OTHER = [
    ("a = 1", "a = 1.0"),
    ("a = 1", "a = True"),
    ("a = 'b'", "a = b'b'"),
    ("a = None", "a = 'None'"),
    ("a = b", "a = 'b'"),
    ("a = 0.1", "a = 0.10000000000000002"),
    ("a = b - c", "a = c - b"),
    ("a = b - (c - d)", "a = b - c - d"),
    ("a = b < c", "a = b <= c"),
    ("a = f'{b}'", "a = f'{b!r}'"),
    ("a = f'{b}{c}'", "a = f'{b} {c}'"),
    ("a = f'{b:3}'", "a = f'{b:4}'"),
    ("a = f'{b}'", "a = '{b}'"),
    ("f(a, b=1)", "f(a, c=1)"),
    ("f(a, b)", "f(b, a)"),
    ("def f(a=1): pass", "def f(a=2): pass"),
    ("def f(a, b=1): pass", "def f(a=1, b=1): pass"),
    ("def f(*, a, b=1): pass", "def f(*, a=1, b): pass"),
    ("def f(a, b): pass", "def f(a, /, b): pass"),
    ("@g\ndef f(): pass", "def f(): pass"),
    ("class C:\n    a: int = 1", "class C:\n    a: float = 1"),
    ("class C:\n    a: int = 1", "class C:\n    a = 1"),
    ("a = 1\nb = 2", "b = 2\na = 1"),
    ("a = 1\nif b: c()", "a = 1\nif b: pass\nc()"),
    ("return_ = x[1:]", "return_ = x[:1]"),
    ("{1: a, **b}", "{**b, 1: a}"),
    ("def f():\n    return 'text'", "def f():\n    'text'"),
    ("f('text')", "f('another')"),
]


def digest(text: str) -> str:
    return syntax_digest(text.encode("latin-1" if "latin-1" in text else "utf-8"), Path("a.py"))


def test_the_rule_gives_what_it_always_gave():
    """For ever, under every version of Python: a digest that was recorded must be found again."""
    assert digest(SAMPLE) == "sha256:c1ea17c1b490be61582a911ba8969b9396cf590c34e626ed385db05ec73bc218"


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same_program(one, other):
    assert digest(one) == digest(other)


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_another_program(one, other):
    assert digest(one) != digest(other)


def test_what_other_versions_of_python_have_in_their_trees():
    """3.12 has `type_params`, and cuts the texts of an f-string elsewhere."""
    tree = ast.parse("def f(): pass\na = f'{b:>{c}}de'")
    expected = tree_digest(tree)
    function, assignment = tree.body
    function.type_params = []
    function._fields = (*function._fields, "type_params")
    formatted, text = assignment.value.values
    assignment.value.values = [ast.Constant(""), formatted, ast.Constant("d"), ast.Constant("e")]
    formatted.format_spec.values.append(ast.Constant(""))
    assert tree_digest(tree) == expected
    text.value = "d"
    assignment.value.values = [formatted, text]
    assert tree_digest(tree) != expected


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (b"a = 1\nb = (\n", "line 2: '(' was never closed"),
        (b"a = '\xe4'\n", "codec can't decode byte 0xe4"),
        (b"a = 1\0\n", "null bytes"),
        (b"# coding: no-such-coding\n", "unknown encoding"),
    ],
)
def test_what_is_no_module_is_named(source, found):
    expected = f"^code digest: core/model.py.*{re.escape(found)}.*`git checkout -- core/model.py` restores"
    with pytest.raises(UserError, match=expected):
        syntax_digest(source, Path("core/model.py"))


def test_a_module_nested_beyond_the_limit_of_the_process_is_named():
    """The limit is the test's own: libraries (rdflib, for one) raise it for the whole process."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    try:
        with pytest.raises(UserError, match=r"^code digest: core/model.py.*nested too deeply"):
            syntax_digest(b"a = 1" + b" + 1" * 900, Path("core/model.py"))
    finally:
        sys.setrecursionlimit(limit)


def test_a_warning_of_the_parser_is_no_error():
    assert digest(r"a = '\d'") == digest(r"a = '\\d'")


@pytest.mark.parametrize("name", MODULES)
def test_what_does_not_move_numbers_does_not_move_the_digest(name):
    source = (ROOT / name).read_bytes()
    expected, text = syntax_digest(source, ROOT / name), source.decode()
    rewritten = {
        "comments": commented(text),
        "no comments and another format": ast.unparse(ast.parse(text)),
        "docstrings": ast.unparse(documented(ast.parse(text))),
        "line ends": text.replace("\n", "\r\n"),
        "byte order mark": "\ufeff" + text,
        "encoding line": "# -*- coding: utf-8 -*-\n" + text,
    }
    for change, other in rewritten.items():
        assert other != text
        assert syntax_digest(other.encode(), ROOT / name) == expected, change


@pytest.mark.parametrize("name", MODULES)
def test_everything_else_moves_it(name):
    """Each field of each node is changed once: judged by the node alone, twenty of them by the whole module."""
    tree = ast.parse((ROOT / name).read_bytes())
    expected = tree_digest(tree)
    texts = {id(each) for text in ast.walk(tree) if is_text(text) for each in ast.walk(text)}
    nodes = [node for node in ast.walk(tree) if id(node) not in texts]
    before = {id(node): tree_digest(node) for node in nodes}
    every = [change for node in nodes for change in changes(node)]
    assert len(every) > 30 or name.endswith("__init__.py")
    for change in every:
        with change.made():
            assert tree_digest(change.node) != before[id(change.node)], f"{name}: {change}"
    for change in random.Random(1).sample(every, min(20, len(every))):
        with change.made():
            assert tree_digest(tree) != expected, f"{name}: {change}"
    assert tree_digest(tree) == expected, "every change was undone"


def commented(text: str) -> str:
    """A comment at every logical line, and a blank line behind it."""
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NEWLINE:
            lines[token.start[0] - 1] += "  # why\n"
    return "\n".join(lines) + "\n"


def documented(tree: ast.Module) -> ast.Module:
    """Another text for every docstring, and one where there was none: below constants and fields as well."""
    text = ast.Expr(ast.Constant("Another text."))
    for node in list(ast.walk(tree)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            rest = [each for each in node.body if not is_text(each)]
            functions = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            parts = ([each] if functions or not isinstance(each, ast.AnnAssign) else [each, text] for each in rest)
            node.body = [text, *(each for part in parts for each in part)]
    return ast.fix_missing_locations(tree)


@dataclass
class Change:
    """Another value for a field of a node."""

    node: ast.AST
    field: str
    value: Any

    @contextmanager
    def made(self):
        before = getattr(self.node, self.field)
        setattr(self.node, self.field, self.value)
        try:
            yield
        finally:
            setattr(self.node, self.field, before)

    def __str__(self):
        return f"line {getattr(self.node, 'lineno', '?')}: {type(self.node).__name__}.{self.field} = {self.value!r}"


def is_text(node) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def changes(node):
    for field, value in ast.iter_fields(node):
        if field not in NO_SYNTAX:
            yield from (Change(node, field, other) for other in other_values(node, value))


NO_SYNTAX = {"ctx", "kind", "type_comment", "type_ignores"}
"""What follows from a node's place, says how a text was spelled, or is a comment."""


def other_values(node, value):
    if isinstance(node, ast.Constant):
        yield another_constant(value)
    elif isinstance(value, str):
        yield value + "_"
    elif isinstance(value, int):
        yield value + 1
    elif isinstance(value, ast.operator | ast.unaryop | ast.boolop | ast.cmpop):
        yield next(kind for kind in type(value).__base__.__subclasses__() if kind is not type(value))()
    elif isinstance(value, ast.AST):
        yield None
    elif isinstance(value, list):
        yield from other_lists(value)


def other_lists(value):
    """Without its first, second or last element; with two neighbours swapped."""
    for position, each in enumerate(value):
        if not is_text(each) and position in (0, 1, len(value) - 1):
            yield value[:position] + value[position + 1 :]
    for position, (one, other) in enumerate(pairwise(value)):
        if not is_text(one) and not is_text(other) and shown(one) != shown(other):
            yield [*value[:position], other, one, *value[position + 2 :]]


def another_constant(value):
    if isinstance(value, str):
        return value + "_"
    if isinstance(value, bytes):
        return value + b"_"
    if isinstance(value, bool) or value in (None, ...):
        return not value
    return value + 1 if isinstance(value, int) else float.fromhex("0x1p-52") + value * 2


def shown(value) -> str:
    return ast.dump(value) if isinstance(value, ast.AST) else repr(value)
