"""The language of `treering search` and `treering runs`.

    query   terms with blanks between them; all of them must hold
    term    [-] field operator value, or [-] word
    field   a name of `FIELDS`, and where the field has one, a dot and a part: tag.owner, score.hellaswag
    value   one or more alternatives with commas between them; each a word, or a text in double quotes
    :  =    a text fits the pattern (`*` is any text, `?` any character, capitals do not matter); a number is equal
    !=      as `:` with `-` before the term
    > >= < <=   for numbers and dates

A word alone is searched in names, tags and notes. Inside quotes `*` and `?` are patterns too; a quote is written twice.
"""

import math
import re
from calendar import monthrange
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, NoReturn, cast

from treering.errors import UserError
from treering.store.ledger.search.fields import ALIASES, EXAMPLES, FIELDS, FOLDER_FIELDS, ONLY_NOW, Field

Operator = Literal[":", ">", ">=", "<", "<="]

WORD: Final = "word"
"""The field of a word alone."""

_NAME = re.compile(r"([A-Za-z_]+)(?=[.:=<>!])")
_PART = re.compile(r'[^\s:=<>!"]+')
_OPERATOR = re.compile(r"!=|>=|<=|[:=<>]")
_BARE = re.compile(r'[^\s,"]+')
_WORD = re.compile(r'[^\s"]+')
_QUOTED = re.compile(r'"((?:[^"]|"")*)"')
_BLANK = re.compile(r"\s*")
_DATE = re.compile(r"(\d{4})(?:-(\d\d)(?:-(\d\d)(?:T(\d\d):(\d\d))?)?)?Z?")


@dataclass(frozen=True, slots=True)
class Term:
    """One condition.

    Attributes:
        column: where it begins in the query, from 1.
        text: as it is written.
        negated: whether it must not hold.
        field: name of its field, or `WORD`.
        part: what is behind the field's dot, empty for nothing.
        operator: `:` for patterns and equality.
        values: alternatives of a text: patterns with `*` and `?`.
        spans: alternatives of a number or a date: from, and up to and with, which for a date is a span.
    """

    column: int
    text: str
    negated: bool
    field: str
    part: str
    operator: Operator
    values: tuple[str, ...] = ()
    spans: tuple[tuple[float, float], ...] = ()

    @property
    def of_checkpoint(self) -> bool:
        """Whether it is about checkpoints, not about the run as a whole."""
        return self.field in FIELDS and FIELDS[self.field].of == "checkpoint"

    @property
    def may_be_unknown(self) -> bool:
        """Whether it is about what checkpoints read, which the ledger does not always know."""
        return self.field in {"corpus", "licence"}


def parse(query: str, fields: Mapping[str, Field] = FIELDS, command: str = "search") -> tuple[Term, ...]:
    """The terms of a query.

    Args:
        query: what a person typed.
        fields: what the query can ask about.
        command: the command whose help lists these fields.

    Raises:
        UserError: it is not a query; the text points at the column and says what was expected there.
    """
    reader = _Reader(query, fields, command)
    terms = []
    while not reader.at_end():
        terms.append(reader.term())
    return tuple(terms)


class _Reader:
    """Reads a query from left to right."""

    def __init__(self, query: str, fields: Mapping[str, Field], command: str) -> None:
        self._query = query
        self._fields = fields
        self._command = command
        self._at = 0

    def at_end(self) -> bool:
        """Whether nothing but blanks is left."""
        self._take(_BLANK)
        return self._at == len(self._query)

    def term(self) -> Term:
        """The next term."""
        begin = self._at
        negated = self._next("-")
        if self._at == len(self._query) or self._query[self._at].isspace():
            self._fail("a field or a word behind the -")
        name = _NAME.match(self._query, self._at)
        if name is None:
            word = self._text(_WORD, "a word")
            return Term(begin + 1, self._query[begin : self._at], negated, WORD, "", ":", (word,))
        field = self._field(name[1])
        part = self._part(name[1], field)
        sign = self._take(_OPERATOR)
        if sign is None:
            self._fail("an operator: one of : = != > >= < <=")
        operator = cast("Operator", ":" if sign[0] in {"=", "!="} else sign[0])
        if operator != ":" and field.kind == "text":
            self._at = sign.start()
            self._fail(f": or !=, since {name[1]} is a text")
        kind = field.kind if field.kind != "value" else "text" if operator == ":" else "number"
        begin_value = self._at
        values, spans = self._values(kind)
        if name[1] == "state" and self._command == "search" and not ONLY_NOW.isdisjoint(values):
            self._at = begin_value
            self._fail(f"a state that the ledger keeps: {_elsewhere('the state of this moment', 'search')}")
        known = ALIASES.get(name[1], name[1])
        negated ^= sign[0] == "!="
        return Term(begin + 1, self._query[begin : self._at], negated, known, part, operator, values, spans)

    def _field(self, name: str) -> Field:
        known = ALIASES.get(name, name)
        field = self._fields.get(known)
        if field is None and (known in FIELDS or known in FOLDER_FIELDS):
            self._fail(f"a field that `treering {self._command}` knows: {_elsewhere(name, self._command)}")
        if field is None:
            self._fail(f"one of the fields {', '.join(self._fields)}; a word with such a sign in it stands in quotes")
        self._at += len(name)
        return field

    def _part(self, name: str, field: Field) -> str:
        if not self._next("."):
            if field.needs_part:
                self._fail(f". and {field.part}, as {name}.hellaswag")
            return ""
        if not field.part:
            self._at -= 1
            self._fail(f"an operator: {name} has no parts")
        return self._text(_PART, field.part)

    def _values(self, kind: str) -> tuple[tuple[str, ...], tuple[tuple[float, float], ...]]:
        values: list[str] = []
        spans: list[tuple[float, float]] = []
        while True:
            begin = self._at
            value = self._text(_BARE, {"text": "a text", "number": "a number", "date": "a date"}[kind])
            if kind == "text":
                values.append(value)
            else:
                span = _number(value) if kind == "number" else _date(value)
                if span is None:
                    self._at = begin
                    wanted = "a number such as 0.7 or 1e9" if kind == "number" else "a date such as 2026-11-05"
                    self._fail(wanted)
                spans.append(span)
            if not self._next(","):
                break
        if self._at < len(self._query) and not self._query[self._at].isspace():
            self._fail("a blank or a comma behind the value")
        return tuple(values), tuple(spans)

    def _text(self, bare: re.Pattern[str], expected: str) -> str:
        if self._query.startswith('"', self._at):
            quoted = self._take(_QUOTED)
            if quoted is None:
                self._fail('a " that ends the text')
            return quoted[1].replace('""', '"')
        found = self._take(bare)
        if found is None:
            self._fail(expected)
        return found[0]

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._query, self._at)
        if found is not None:
            self._at = found.end()
        return found

    def _next(self, sign: str) -> bool:
        found = self._query.startswith(sign, self._at)
        self._at += found
        return found

    def _fail(self, expected: str) -> NoReturn:
        """Points at the column.

        Raises:
            UserError: always.
        """
        rest = self._query[self._at :].split()
        found = repr(rest[0]) if rest and not self._query[self._at].isspace() else "nothing"
        raise UserError(
            f"query, column {self._at + 1}: found {found}, expected {expected}; `treering {self._command} --help` "
            f"lists the fields; an example: {EXAMPLES[self._command]}\n  {self._query}\n  {' ' * self._at}^"
        )


def _elsewhere(what: str, command: str) -> str:
    """Who answers what a command cannot."""
    if command == "search":
        return f"{what} is not in the ledger; `treering runs QUERY` asks the run folders of a project"
    return f"{what} is in the ledger alone; `treering search QUERY` asks it"


def label_names(task: str, metric: str, shots: int | None) -> tuple[str, ...]:
    """How a query may name a score.

    Args:
        task: its task.
        metric: its metric.
        shots: examples in the prompt; None or -1 where the trainer said none.
    """
    return task, f"{task}.{metric}", f"{task}@{shots}", f"{task}.{metric}@{shots}"


def _number(text: str) -> tuple[float, float] | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return (value, value) if math.isfinite(value) else None


def _date(text: str) -> tuple[float, float] | None:
    """The first and the last moment of a year, month, day or minute, UTC."""
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute = (None if each is None else int(each) for each in match.groups())
    try:
        first = datetime(year or 0, month or 1, day or 1, hour or 0, minute or 0, tzinfo=UTC)
        days = 1 if day else monthrange(first.year, first.month)[1] if month else 366 if _leap(first.year) else 365
        span = timedelta(minutes=1) if hour is not None else timedelta(days=days)
    except ValueError:
        return None
    begin = first.timestamp()
    return begin, math.nextafter(begin + span.total_seconds(), 0.0)


def _leap(year: int) -> bool:
    return monthrange(year, 2)[1] == 29


def pattern(text: str, *, inside: bool = False) -> re.Pattern[str]:
    """A pattern of a query as a regular expression for texts that `fold` has folded.

    Args:
        text: with `*` for any text and `?` for any character.
        inside: whether it may be a part of the text.
    """
    signs = {"*": ".*", "?": "."}
    body = "".join(signs.get(sign) or re.escape(fold(sign)) for sign in text)
    return re.compile(f".*{body}.*" if inside else body, re.DOTALL)


def fold(text: str) -> str:
    """The text in the form in which texts are compared: capitals do not matter."""
    return text.casefold()
