"""The digest of a Python module's syntax: equal for two texts that are the same program.

Comments, formatting, line ends, the encoding of the file and docstrings do not count; every name, constant, operator,
default, decorator and annotation does, and so does the order of statements. The digest is over canonical JSON of the
syntax tree, in a form of our own: `ast.dump` differs between versions of Python.
"""

import ast
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from treering.config.canonical import digest_json
from treering.errors import UserError


def syntax_digest(source: bytes, path: Path) -> str:
    """`sha256:<hex>` of a module's syntax, the same under every version of Python that can parse it.

    Args:
        source: the file's bytes; a line that declares their encoding is obeyed.
        path: the file, for the error.

    Raises:
        UserError: this Python cannot parse the file.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an invalid escape, for example, which do not matter for a digest
            tree = ast.parse(source)
        return tree_digest(tree)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        found = error.msg if isinstance(error, SyntaxError) else str(error)
        found = "nested too deeply" if isinstance(error, RecursionError) else found
        raise UserError(
            f"code digest: {path}{line}: {found}; expected a Python module, since its syntax is digested. Correct the "
            f"file, or `git checkout -- {path}` restores the committed version"
        ) from error


def tree_digest(tree: ast.AST) -> str:
    """The digest of a syntax tree, or of a part of a tree.

    Raises:
        ValueError: nested too deeply.
    """
    return digest_json(_form(tree))


def _form(value: Any) -> Any:
    """A part of a tree as JSON values.

    A node is its class and its fields; empty fields are left out, since later versions of Python have more of them.
    """
    if isinstance(value, ast.Constant):  # whose field `kind` says only how a text was spelled
        return ["Constant", ascii(value.value)]
    if isinstance(value, ast.JoinedStr):
        return ["JoinedStr", _form(_joined(value.values))]
    if isinstance(value, ast.AST):
        fields = ((name, child) for name, child in ast.iter_fields(value) if child is not None and child != [])
        return [type(value).__name__, {name: _form(child) for name, child in fields}]
    if isinstance(value, list):
        return [_form(each) for each in value if not _is_text(each)]
    return value


def _is_text(node: Any) -> bool:
    """Whether a statement is a bare text: a docstring, or the same below a constant or a field."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _joined(pieces: Iterable[ast.expr]) -> list[ast.expr]:
    """The pieces of an f-string, neighbouring texts as one: Python 3.12 cuts them elsewhere, and has empty ones."""
    joined: list[ast.expr] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if isinstance(piece, ast.Constant) and isinstance(last, ast.Constant):
            joined[-1] = ast.Constant(str(last.value) + str(piece.value))
        elif not (isinstance(piece, ast.Constant) and not piece.value):
            joined.append(piece)
    return joined
