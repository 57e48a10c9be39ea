"""The words of a launch script, as a shell would give them to the program, as far as no shell is needed for that.

Read are assignments, arrays, quotes, line continuations, comments, here-documents, `$NAME`, `${NAME}`, `${NAME[@]}` and
whole-number arithmetic over names that the script itself assigns. Nothing is run. What the environment, a command, a
condition or a loop decides becomes an `Unresolved` word, which an error can name with its line.

Source: POSIX.1-2024, Shell Command Language; GNU Bash Reference Manual 5.2, Arrays.
"""

import ast
import operator
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

MAX_WORDS: Final = 1_000_000
"""Words that a script may come to; names that name each other may multiply."""
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_HEREDOC: Final = re.compile(r"<<-?\s*(['\"]?)([\w.-]+)\1")
_OPENING: Final = frozenset({"if", "for", "while", "until", "case", "select", "{"})
_CLOSING: Final = frozenset({"fi", "done", "esac", "}"})
_LEADING: Final = frozenset({"if", "while", "until", "then", "else", "elif", "do", "{", "!", "time"}) | _CLOSING
"""Words before a command that are no part of it."""
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
    """A word that only a shell could give.

    Attributes:
        text: the word as the script has it.
        line: where, from 1.
        reason: what decides it, in words.
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


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a word: plain text, or an expansion that is still to be made."""

    text: str
    quoted: bool
    expands: bool


@dataclass(frozen=True, slots=True)
class _Raw:
    """A word before expansion, an operator (`;`, `&&`, `(` ...), or an array; `adjoins`: with no blank before it."""

    parts: tuple[_Part, ...]
    line: int
    operator: bool = False
    adjoins: bool = False
    array: "tuple[_Raw, ...] | None" = None

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts)

    @property
    def plain(self) -> str | None:
        """The word where nothing of it is quoted or expanded."""
        return None if any(part.quoted or part.expands for part in self.parts) else self.text


class _Tokens:
    """The raw words of a script."""

    def __init__(self, text: str) -> None:
        self._text = text.replace("\r\n", "\n")
        self._at = 0
        self._line = 1
        self._heredocs: list[str] = []

    def words(self) -> Iterator[_Raw]:
        """Words and operators; a line's end is the operator `;`."""
        while self._at < len(self._text):
            character = self._text[self._at]
            if character == "\n":
                yield _Raw((_Part(";", False, False),), self._line, operator=True)
                self._newline()
            elif character in " \t":
                self._at += 1
            elif self._text.startswith("\\\n", self._at):
                self._at += 2
                self._line += 1
            elif character == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            elif character in ";&|()<>":
                yield from self._operator()
            else:
                yield self._word()

    def _newline(self) -> None:
        self._at += 1
        self._line += 1
        for end in self._heredocs:
            while self._at < len(self._text):
                line, _, _ = self._text[self._at :].partition("\n")
                self._at += len(line) + 1
                self._line += 1
                if line.strip() == end:
                    break
        self._heredocs.clear()

    def _operator(self) -> Iterator[_Raw]:
        heredoc = _HEREDOC.match(self._text, self._at)
        if heredoc and not self._text.startswith("<<<", self._at):
            self._heredocs.append(heredoc[2])
            self._at = heredoc.end()
            return
        start = self._at
        self._at += 1
        following = self._text[self._at : self._at + 1]
        if following and following in {"(": "(", ")": ""}.get(self._text[start], "&|;<>"):
            self._at += 1
        adjoins = start > 0 and not self._text[start - 1].isspace()
        yield _Raw((_Part(self._text[start : self._at], False, False),), self._line, operator=True, adjoins=adjoins)

    def _word(self) -> _Raw:
        parts, line = [], self._line
        while self._at < len(self._text) and self._text[self._at] not in " \t\n;&|()<>":
            parts += self._part()
            assignment = _ASSIGNMENT.fullmatch("".join(part.text for part in parts))
            if assignment and len(parts) == 1 and self._text.startswith("(", self._at):
                return _Raw(tuple(parts), line, array=tuple(self._array()))
        return _Raw(tuple(parts), line)

    def _array(self) -> Iterator[_Raw]:
        self._at += 1
        for word in self.words():
            if word.operator and word.text == ")":
                return
            if not word.operator:
                yield word

    def _part(self) -> list[_Part]:
        character = self._text[self._at]
        if character == "'":
            return [_Part(self._until("'", 1), True, False)]
        if character == '"':
            self._at += 1
            return self._double()
        if character in "$`":
            return [self._expansion(quoted=False)]
        if character == "\\":
            taken = self._text[self._at + 1 : self._at + 2]
            self._at += 2
            if taken == "\n":
                self._line += 1
                return []
            return [_Part(taken, True, False)]
        start = self._at
        while self._at < len(self._text) and self._text[self._at] not in " \t\n;&|()<>'\"$`\\":
            self._at += 1
            if self._text[self._at - 1] == "=" and self._text.startswith("(", self._at):
                break
        return [_Part(self._text[start : self._at], False, False)]

    def _until(self, end: str, skip: int) -> str:
        start = self._at + skip
        stop = self._text.find(end, start)
        stop = len(self._text) if stop < 0 else stop
        self._at = stop + len(end)
        self._line += self._text.count("\n", start, stop)
        return self._text[start:stop]

    def _double(self) -> list[_Part]:
        parts, text = [_Part("", True, False)], ""
        while self._at < len(self._text) and self._text[self._at] != '"':
            character = self._text[self._at]
            if character in "$`":
                parts += [_Part(text, True, False), self._expansion(quoted=True)]
                text = ""
                continue
            if character == "\\" and self._text[self._at + 1 : self._at + 2] in '$`"\\\n':
                self._at += 1
                character = self._text[self._at : self._at + 1].replace("\n", "")
                self._line += not character
            self._line += character == "\n"
            text += character
            self._at += 1
        self._at += 1
        return [*parts, _Part(text, True, False)]

    def _expansion(self, *, quoted: bool) -> _Part:
        start = self._at
        if self._text[start] == "`":
            self._at += 1
            self._until("`", 0)
        elif self._text[start + 1 : start + 2] in ("(", "{"):
            self._balanced()
        else:
            name = _NAME.match(self._text, start + 1)
            self._at = name.end() if name else start + 2
            if not name and self._text[start + 1 : start + 2] in ("", " ", "\t", "\n", '"'):
                self._at = start + 1
                return _Part("$", quoted, False)
        return _Part(self._text[start : self._at], quoted, True)

    def _balanced(self) -> None:
        """Goes behind the bracket that closes the one after `$`."""
        depth = 0
        while self._at < len(self._text):
            character = self._text[self._at]
            self._line += character == "\n"
            depth += (character in "({") - (character in ")}")
            self._at += 1
            if depth == 0 and character in ")}":
                return


@dataclass
class _Shell:
    """Names that a script assigned so far."""

    names: dict[str, tuple[Word, ...]] = field(default_factory=dict)
    arrays: set[str] = field(default_factory=set)
    spent: int = 0

    def assign(self, raw: _Raw, assignment: re.Match[str], depth: int) -> None:
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
        """Takes that names may have other values from here on."""
        for name in names:
            if not any(isinstance(word, Unresolved) for word in self.names.get(name, ())):
                self.names[name] = (Unresolved(f"${name}", line, reason),)

    def expand(self, raw: _Raw) -> tuple[Word, ...]:
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

    def _items(self, raw: _Raw) -> tuple[Word, ...] | None:
        """The items of an array where the word is one, None elsewhere."""
        whole = [part for part in raw.parts if part.text]
        name = _array_of(whole[0].text) if len(whole) == 1 and whole[0].expands else None
        if name is None or (whole[0].quoted and whole[0].text.endswith("[*]}")):
            return None
        values = self._value(name, raw)
        return values if whole[0].quoted else tuple(piece for value in values for piece in _split(value))

    def _spend(self, words: tuple[Word, ...]) -> tuple[Word, ...]:
        self.spent += len(words) + sum(len(word) for word in words if isinstance(word, str)) // 8
        if self.spent > MAX_WORDS:
            raise OverflowError(f"its names come to more than {MAX_WORDS:,} words")
        return words

    def _value(self, name: str, raw: _Raw) -> tuple[Word, ...]:
        if name in self.names:
            return self.names[name]
        return (Unresolved(f"${name}", raw.line, f"the script does not assign {name}"),)

    def _scalar(self, text: str, raw: _Raw) -> Word:
        if text.startswith(("`", "$(")) and not text.startswith("$(("):
            return Unresolved("␣".join(text.split()), raw.line, "a command gives it")
        if text.startswith("$(("):
            return self._arithmetic(text, raw)
        inner = text[2:-1] if text.startswith("${") else text[1:]
        name = _array_of(text) or (inner if _NAME.fullmatch(inner) else None)
        if name is None:
            return Unresolved("␣".join(text.split()), raw.line, "the shell or its arguments give it")
        if text.endswith("[@]}"):  # beside other text: its first and last word stick to that
            return Unresolved(text, raw.line, "an array beside other text")
        values = self._value(name, raw)
        if name in self.arrays and _array_of(text) is None:
            values = values[:1]  # an array without an index is its first item
        return _joined(tuple(word for value in values for word in (" ", value))[1:]) if values else ""

    def _arithmetic(self, text: str, raw: _Raw) -> Word:
        """Whole numbers with + - * / % and brackets."""
        body = text[3:-2].replace("${", "").replace("}", "").replace("$", "")
        try:
            tree = ast.parse(body.strip(), mode="eval") if len(body) < 1000 else None
            if tree is not None:
                return str(self._number(tree.body, raw))
        except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
            pass
        return Unresolved("␣".join(text.split()), raw.line, "arithmetic that needs a shell")

    def _number(self, node: ast.expr, raw: _Raw) -> int:
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
    """A number that a shell and Python treat alike."""
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


def _statements(text: str) -> Iterator[tuple[list[_Raw], str]]:
    """The words up to each operator, without redirections, and the operator."""
    statement: list[_Raw] = []
    redirects = False
    for raw in (*_Tokens(text).words(), _Raw((_Part(";", False, False),), 0, operator=True)):
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


def _command(shell: _Shell, statement: list[_Raw], depth: int, *, depends: bool) -> Iterator[Command]:
    """One command; its assignments are made."""
    words, first = list(statement), statement[0].plain
    if first in _FOREIGN:
        text = " ".join(raw.text for raw in words)[:80]
        shell.forget(list(shell.names), words[0].line, f"`{text}` may assign it")
    elif first in _ASSIGNING:
        text = " ".join(raw.text for raw in words)[:80]
        names = {name for raw in words[1:] for name in _NAME.findall(raw.text)}
        shell.forget(names, words[0].line, f"`{text}` assigns it")
    while words and (words[0].plain in _PREFIXES or (words != statement and (words[0].plain or "").startswith("-"))):
        words = words[1:]
    while words and not words[0].parts[0].quoted and (match := _ASSIGNMENT.match(words[0].parts[0].text)):
        shell.assign(words[0], match, depth + depends)
        words = words[1:]
    if words:
        expanded = tuple(word for raw in words for word in shell.expand(raw))
        yield Command(expanded, words[0].line, depth)
