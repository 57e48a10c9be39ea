"""Foreign text: text that Treering prints but did not write, made safe for a terminal and for Markdown.

Names, ids, licences, sources, texts of documents, log lines and the messages of other programs are foreign. Such a text
may hold anything: a sequence that moves a terminal's cursor, a line break that imitates a line of ours, the markup of a
table. `shown` makes it safe for a terminal, `markdown` and `code` for a Markdown page. Commands print with
`treering.cli.output.console`, which applies `shown` to everything.
"""

import re
import sys
import unicodedata
from contextlib import suppress
from typing import TextIO

_UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode's categories of invisible characters: controls, formats, lone surrogates, line and paragraph ends."""
_JOINERS = "\u200c\u200d"
"""Joiners inside words of some scripts, and inside emoji: they are harmless and stay."""
_NAMES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_PLAIN = re.compile(r"[\x20-\x7e]*")
_MARKUP = re.compile(r"[\\`*\[\]<>|#~&$!]|(?<![^\W_])_|_(?![^\W_])")
_ADDRESS = re.compile(r"\b(https?|ftp)(?=:)|\bwww(?=\.)", re.IGNORECASE)
_LINE_START = re.compile(r"^(?:[-+](?=[-+\s]|$)|[=:]|\d+(?=[.)](?:\s|$)))")


def shown(text: object, *, lines: bool = False) -> str:
    r"""The text as a terminal may print it: what would control the terminal is shown escaped.

    Escaped are control characters (`\x1b`), those that turn the direction of writing or are invisible (`\u202e`),
    ends of lines (`\n`) and lone surrogates (`\udc80`).

    Args:
        text: the text, or a value whose `str` is.
        lines: whether ends of lines and tabs are kept, as in a text of several lines.
    """
    text = str(text)
    if _PLAIN.fullmatch(text):
        return text
    kept = _JOINERS + ("\n\t" if lines else "")
    return "".join(
        _escaped(each) if each not in kept and unicodedata.category(each) in _UNSEEN else each for each in text
    )


def _escaped(character: str) -> str:
    code = ord(character)
    if character in _NAMES:
        return _NAMES[character]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


class Markdown(str):
    """A text that is already Markdown: `markdown` does not change it."""

    __slots__ = ()


def markdown(text: object) -> Markdown:
    """The text for a line of Markdown, or a cell of its tables: it reads as it is written, without markup."""
    if isinstance(text, Markdown):
        return text
    safe = _MARKUP.sub(lambda found: "&#124;" if found[0] == "|" else f"\\{found[0]}", shown(text))
    safe = _ADDRESS.sub(lambda found: f"{found[0]}\\", safe)
    return Markdown(_LINE_START.sub(lambda found: f"{found[0]}\\" if found[0].isdecimal() else f"\\{found[0]}", safe))


def code(text: object) -> Markdown:
    """The text as a code span of Markdown, also inside a table."""
    safe = shown(text)
    runs = [len(run) for run in re.findall(r"`+", safe)]
    fence = "`" * (max(runs, default=0) + 1)
    pad = " " if safe.startswith("`") or safe.endswith("`") else ""
    return Markdown(f"{fence}{pad}{safe}{pad}{fence}".replace("|", "\\|"))


def say(text: str, stream: TextIO | None = None) -> None:
    """Prints a note at once, on standard error by default; there a closed terminal or pipe ends no command."""
    with suppress(*(() if stream else (OSError, ValueError))):
        print(shown(text, lines=True), file=stream or sys.stderr, flush=True)
