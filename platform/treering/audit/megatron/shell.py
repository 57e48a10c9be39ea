"""The commands of a launch script with the words that a shell would pass, as far as they follow from the script alone.

Read are assignments, arrays, quotes, line continuations, comments, here-documents, `$NAME`, `${NAME}`, `${NAME[@]}` and
whole-number arithmetic over names that the script itself assigns. Nothing is run. A word that the environment, a
command, a condition or a loop decides becomes `Unresolved`, which an error can name with its line. Refused: no launch,
several, or one inside a condition, loop or function. The arguments of a script rule out lineages; missing ones, which
may be defaults, do not.

Source: POSIX.1-2024, Shell Command Language; GNU Bash Reference Manual 5.2, Arrays.
"""

import ast
import operator
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from treering.audit.megatron.shell_words import ASSIGNMENT, NAME, RawWord, Tokens, WordPart

MAX_WORDS: Final = 1_000_000
"""The most words of a script after expansion; names that contain each other may multiply them."""
_OPENING: Final = frozenset({"if", "for", "while", "until", "case", "select", "{"})
_CLOSING: Final = frozenset({"fi", "done", "esac", "}"})
_LEADING: Final = frozenset({"if", "while", "until", "then", "else", "elif", "do", "{", "!", "time"}) | _CLOSING
"""Words before a command that do not belong to it."""
_PREFIXES: Final = frozenset({"export", "readonly", "declare", "local", "typeset"})
_FOREIGN: Final = frozenset({"source", ".", "eval"})
"""Commands that may assign any name."""
_ASSIGNING: Final = frozenset(
    {"read", "let", "unset", "mapfile", "readarray", "getopts", "printf", "for", "select", "(("}
)
"""Commands that assign names among their words."""
_OPERATORS: Final[dict[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
}


@dataclass(frozen=True, slots=True)
class Unresolved:
    """A word that only a shell can expand.

    Attributes:
        text: the word as in the script.
        line: its line, from 1.
        reason: what decides the word, in words.
    """

    text: str
    line: int
    reason: str

    def __repr__(self) -> str:
        return f"{self.text} (line {self.line}: {self.reason})"


Word = str | Unresolved


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a script.

    Attributes:
        words: its words, expanded.
        line: where it begins, from 1.
        depth: how many conditions, loops and functions are around it.
    """

    words: tuple[Word, ...]
    line: int
    depth: int


@dataclass
class _Shell:
    """Names that a script assigned so far."""

    names: dict[str, tuple[Word, ...]] = field(default_factory=dict)
    arrays: set[str] = field(default_factory=set)
    spent: int = 0

    def assign(self, raw: RawWord, assignment: re.Match[str], depth: int) -> None:
        """Takes `NAME=value`, `NAME+=value`, and the same with an array."""
        name, adds = assignment[1], bool(assignment[2])
        if raw.array is not None:
            values = tuple(value for word in raw.array for value in self.expand(word))
            self.arrays.add(name)
        else:
            rest = replace(raw.parts[0], text=raw.parts[0].text[assignment.end() :])
            parts = tuple(replace(part, quoted=True) for part in (rest, *raw.parts[1:]))
            values = self.expand(replace(raw, parts=parts)) or ("",)
        if depth:
            values = (Unresolved(f"${name}", raw.line, f"{name} is assigned in a condition, a loop or a function"),)
        before = self.names.get(name, ()) if adds else ()
        if adds and before and raw.array is None and name not in self.arrays:
            joined = _joined((*before, *values))
            self.names[name] = (joined,)
        else:
            self.names[name] = (*before, *values)

    def forget(self, names: Iterable[str], line: int, reason: str) -> None:
        """Marks names whose values are unknown from here on."""
        for name in names:
            if not any(isinstance(word, Unresolved) for word in self.names.get(name, ())):
                self.names[name] = (Unresolved(f"${name}", line, reason),)

    def expand(self, raw: RawWord) -> tuple[Word, ...]:
        """The words that a raw word becomes."""
        items = self._items(raw)
        if items is not None:
            return self._spend(items)
        found: list[Word] = []
        current: Word = ""
        begun = any(part.quoted for part in raw.parts)
        for part in raw.parts:
            if not part.expands:
                current = _joined((current, part.text))
                begun |= bool(part.text)
                continue
            value = self._scalar(part.text, raw)
            if part.quoted or (isinstance(value, Unresolved) and len(value.text.split()) == 1):
                current, begun = _joined((current, value)), True
                continue
            pieces = _split(value)
            if not pieces:
                continue
            text = value.text if isinstance(value, Unresolved) else value
            if text[:1].isspace() and begun:
                found.append(current)
                current = ""
            current = _joined((current, pieces[0]))
            for piece in pieces[1:]:
                found.append(current)
                current = piece
            begun = True
            if text[-1:].isspace():
                found.append(current)
                current, begun = "", False
        return self._spend((*found, current) if begun else tuple(found))

    def _items(self, raw: RawWord) -> tuple[Word, ...] | None:
        """The items of an array if the word is one, else None."""
        whole = [part for part in raw.parts if part.text]
        name = _array_of(whole[0].text) if len(whole) == 1 and whole[0].expands else None
        if name is None or (whole[0].quoted and whole[0].text.endswith("[*]}")):
            return None
        values = self._value(name, raw)
        return values if whole[0].quoted else tuple(piece for value in values for piece in _split(value))

    def _spend(self, words: tuple[Word, ...]) -> tuple[Word, ...]:
        self.spent += len(words) + sum(len(word) for word in words if isinstance(word, str)) // 8
        if self.spent > MAX_WORDS:
            raise OverflowError(f"its names expand to more than {MAX_WORDS:,} words")
        return words

    def _value(self, name: str, raw: RawWord) -> tuple[Word, ...]:
        if name in self.names:
            return self.names[name]
        return (Unresolved(f"${name}", raw.line, f"the script does not assign {name}"),)

    def _scalar(self, text: str, raw: RawWord) -> Word:
        if text.startswith(("`", "$(")) and not text.startswith("$(("):
            return Unresolved("␣".join(text.split()), raw.line, "a command decides it")
        if text.startswith("$(("):
            return self._arithmetic(text, raw)
        inner = text[2:-1] if text.startswith("${") else text[1:]
        name = _array_of(text) or (inner if NAME.fullmatch(inner) else None)
        if name is None:
            return Unresolved("␣".join(text.split()), raw.line, "the shell or its arguments decide it")
        if text.endswith("[@]}"):  # beside other text: its first and last word stick to that
            return Unresolved(text, raw.line, "an array beside other text")
        values = self._value(name, raw)
        if name in self.arrays and _array_of(text) is None:
            values = values[:1]  # an array without an index is its first item
        return _joined(tuple(word for value in values for word in (" ", value))[1:]) if values else ""

    def _arithmetic(self, text: str, raw: RawWord) -> Word:
        """Whole numbers with + - * / % and brackets."""
        body = text[3:-2].replace("${", "").replace("}", "").replace("$", "")
        try:
            tree = ast.parse(body.strip(), mode="eval") if len(body) < 1000 else None
            if tree is not None:
                return str(self._number(tree.body, raw))
        except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
            pass
        return Unresolved("␣".join(text.split()), raw.line, "arithmetic that needs a shell")

    def _number(self, node: ast.expr, raw: RawWord) -> int:
        match node:
            case ast.Constant(value=int() as value) if not isinstance(value, bool):
                return value
            case ast.Name(id=name):
                words = self._value(name, raw)
                if len(words) == 1 and isinstance(words[0], str):
                    return _bounded(int(words[0]))
            case ast.BinOp(left=left, op=kind, right=right) if type(kind) in _OPERATORS:
                return _bounded(_OPERATORS[type(kind)](self._number(left, raw), self._number(right, raw)))
        raise ValueError


def _bounded(number: int) -> int:
    """A number that a shell and Python treat alike.

    Raises:
        ValueError: it is negative, or has more than 63 bits.
    """
    if not 0 <= number < 2**63:
        raise ValueError
    return number


def _array_of(text: str) -> str | None:
    """The name in `${NAME[@]}` or `${NAME[*]}`."""
    match = re.fullmatch(r"\$\{([A-Za-z_]\w*)\[[@*]\]\}", text)
    return None if match is None else match[1]


def _split(value: Word) -> list[Word]:
    """The words in a value; of one that needs a shell, those parts alone that do."""
    if isinstance(value, str):
        return list(value.split())
    return [replace(value, text=piece) if "$" in piece or "`" in piece else piece for piece in value.text.split()]


def _joined(parts: tuple[Word, ...]) -> Word:
    unresolved = next((part for part in parts if isinstance(part, Unresolved)), None)
    if unresolved is None:
        return "".join(map(str, parts))
    text = "".join(part.text if isinstance(part, Unresolved) else part for part in parts)
    return replace(unresolved, text=text)


def commands_of(text: str) -> Iterator[Command]:
    """The commands of a script, one after the other, with the names assigned before each.

    Raises:
        OverflowError: the words of the script multiply beyond `MAX_WORDS`.
    """
    shell, depth, brackets, depends = _Shell(), 0, 0, False
    for statement, end in _statements(text):
        while statement and (word := statement[0].plain) in _OPENING | _LEADING:
            depth += (word in _OPENING) - (word in _CLOSING and depth > 0)
            if word not in _LEADING:
                break
            del statement[0]
        if statement:
            yield from _command(shell, statement, depth + brackets, depends=depends)
        brackets = max(brackets + end.count("(") - end.count(")"), 0)  # `)` also ends a pattern of `case`
        depends = end in ("&&", "||")


def _statements(text: str) -> Iterator[tuple[list[RawWord], str]]:
    """The words up to each operator, without redirections, and the operator."""
    statement: list[RawWord] = []
    redirects = False
    for raw in (*Tokens(text).words(), RawWord((WordPart(";", False, False),), 0, operator=True)):
        if not raw.operator:
            if not redirects:
                statement.append(raw)
            redirects = False
        elif "<" in raw.text or ">" in raw.text:  # what follows names a file
            redirects = True
            if raw.adjoins and statement and (statement[-1].plain or "").isdecimal():
                statement.pop()
        else:
            yield statement, raw.text
            statement, redirects = ([raw] if raw.text == "((" else []), False


def _command(shell: _Shell, statement: list[RawWord], depth: int, *, depends: bool) -> Iterator[Command]:
    """One command; its assignments are made."""
    words, first = list(statement), statement[0].plain
    if first in _FOREIGN:
        text = " ".join(raw.text for raw in words)[:80]
        shell.forget(list(shell.names), words[0].line, f"`{text}` may assign it")
    elif first in _ASSIGNING:
        text = " ".join(raw.text for raw in words)[:80]
        names = {name for raw in words[1:] for name in NAME.findall(raw.text)}
        shell.forget(names, words[0].line, f"`{text}` assigns it")
    while words and (words[0].plain in _PREFIXES or (words != statement and (words[0].plain or "").startswith("-"))):
        words = words[1:]
    while words and not words[0].parts[0].quoted and (match := ASSIGNMENT.match(words[0].parts[0].text)):
        shell.assign(words[0], match, depth + depends)
        words = words[1:]
    if words:
        expanded = tuple(word for raw in words for word in shell.expand(raw))
        yield Command(expanded, words[0].line, depth)
