"""The words and operators of a shell script, before anything in them is expanded.

Read are quotes, line continuations, comments, here-documents and arrays.

Source: POSIX.1-2024, Shell Command Language, Token Recognition; GNU Bash Reference Manual 5.2, Arrays.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)(\+?)=")
NAME: Final = re.compile(r"[A-Za-z_]\w*")
_HEREDOC: Final = re.compile(r"<<-?\s*(['\"]?)([\w.-]+)\1")


@dataclass(frozen=True, slots=True)
class WordPart:
    """A part of a word: plain text, or an expansion that is still to be made."""

    text: str
    quoted: bool
    expands: bool


@dataclass(frozen=True, slots=True)
class RawWord:
    """A word before expansion, an operator (`;`, `&&`, `(` ...), or an array; `adjoins`: without a blank before it."""

    parts: tuple[WordPart, ...]
    line: int
    operator: bool = False
    adjoins: bool = False
    array: "tuple[RawWord, ...] | None" = None

    @property
    def text(self) -> str:
        """The word as the script has it, without its quotes."""
        return "".join(part.text for part in self.parts)

    @property
    def plain(self) -> str | None:
        """The word, None if a part of it is quoted or needs expansion."""
        return None if any(part.quoted or part.expands for part in self.parts) else self.text


class Tokens:
    """The raw words of a script."""

    def __init__(self, text: str) -> None:
        self._text = text.replace("\r\n", "\n")
        self._at = 0
        self._line = 1
        self._heredocs: list[str] = []

    def words(self) -> Iterator[RawWord]:
        """Words and operators; a line's end is the operator `;`."""
        while self._at < len(self._text):
            character = self._text[self._at]
            if character == "\n":
                yield RawWord((WordPart(";", False, False),), self._line, operator=True)
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

    def _operator(self) -> Iterator[RawWord]:
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
        yield RawWord(
            (WordPart(self._text[start : self._at], False, False),), self._line, operator=True, adjoins=adjoins
        )

    def _word(self) -> RawWord:
        parts, line = [], self._line
        while self._at < len(self._text) and self._text[self._at] not in " \t\n;&|()<>":
            parts += self._part()
            assignment = ASSIGNMENT.fullmatch("".join(part.text for part in parts))
            if assignment and len(parts) == 1 and self._text.startswith("(", self._at):
                return RawWord(tuple(parts), line, array=tuple(self._array()))
        return RawWord(tuple(parts), line)

    def _array(self) -> Iterator[RawWord]:
        self._at += 1
        for word in self.words():
            if word.operator and word.text == ")":
                return
            if not word.operator:
                yield word

    def _part(self) -> list[WordPart]:
        character = self._text[self._at]
        if character == "'":
            return [WordPart(self._until("'", 1), True, False)]
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
            return [WordPart(taken, True, False)]
        start = self._at
        while self._at < len(self._text) and self._text[self._at] not in " \t\n;&|()<>'\"$`\\":
            self._at += 1
            if self._text[self._at - 1] == "=" and self._text.startswith("(", self._at):
                break
        return [WordPart(self._text[start : self._at], False, False)]

    def _until(self, end: str, skip: int) -> str:
        start = self._at + skip
        stop = self._text.find(end, start)
        stop = len(self._text) if stop < 0 else stop
        self._at = stop + len(end)
        self._line += self._text.count("\n", start, stop)
        return self._text[start:stop]

    def _double(self) -> list[WordPart]:
        parts, text = [WordPart("", True, False)], ""
        while self._at < len(self._text) and self._text[self._at] != '"':
            character = self._text[self._at]
            if character in "$`":
                parts += [WordPart(text, True, False), self._expansion(quoted=True)]
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
        return [*parts, WordPart(text, True, False)]

    def _expansion(self, *, quoted: bool) -> WordPart:
        start = self._at
        if self._text[start] == "`":
            self._at += 1
            self._until("`", 0)
        elif self._text[start + 1 : start + 2] in ("(", "{"):
            self._balanced()
        else:
            name = NAME.match(self._text, start + 1)
            self._at = name.end() if name else start + 2
            if not name and self._text[start + 1 : start + 2] in ("", " ", "\t", "\n", '"'):
                self._at = start + 1
                return WordPart("$", quoted, False)
        return WordPart(self._text[start : self._at], quoted, True)

    def _balanced(self) -> None:
        """Moves behind the bracket that closes the bracket after `$`."""
        depth = 0
        while self._at < len(self._text):
            character = self._text[self._at]
            self._line += character == "\n"
            depth += (character in "({") - (character in ")}")
            self._at += 1
            if depth == 0 and character in ")}":
                return
