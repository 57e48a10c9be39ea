"""The valence of words, for sentiment: VADER's lexicon from its wheel, or the user's own file.

Source: Hutto and Gilbert, VADER (ICWSM 2014). MT-NLG used SentiWordNet, which no wheel ships; a file of one's own can
hold its values.
"""

import importlib.util
import math
import re
from importlib.metadata import version
from pathlib import Path

from treering.config.canonical import digest_bytes
from treering.errors import UserError
from treering.files import read_bytes
from treering.runlog.analyses import Lexicon

_PACKAGE = "vaderSentiment"
_WORD = re.compile(r"[^\W\d_]+(-[^\W\d_]+)*")


def read_lexicon(path: Path | None) -> tuple[Lexicon | None, dict[str, float]]:
    """The lexicon and its valences by word.

    Args:
        path: lines of a word, a tab, and its valence; None for the lexicon of VADER.

    Returns:
        None and no word where no lexicon is asked for and VADER's is not installed.

    Raises:
        UserError: the file cannot be read, or a line is wrong.
    """
    file, name = (path, str(path)) if path is not None else _own()
    if file is None:
        return None, {}
    try:
        content = read_bytes(file)
        lines = content.decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--lexicon: {file}: {error}; expected UTF-8 lines of a word, a tab and a number") from error
    valences = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        word, _tab, rest = line.partition("\t")
        value = _number(rest.partition("\t")[0], f"{file} line {number}")
        if _WORD.fullmatch(word):  # VADER has emoticons too
            valences[word.lower()] = value
    if not valences:
        raise UserError(f"--lexicon: {file}: no word, expected lines of a word, a tab and a number")
    return Lexicon(name=name, digest=digest_bytes(content)), valences


def _own() -> tuple[Path | None, str]:
    package = importlib.util.find_spec(_PACKAGE)
    if package is None or package.origin is None:
        return None, ""
    return Path(package.origin).with_name("vader_lexicon.txt"), f"{_PACKAGE} {version(_PACKAGE)}"


def _number(text: str, where: str) -> float:
    """A valence.

    Raises:
        UserError: it is not a finite number.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"{where}: found {text[:40]!r}, expected a word, a tab and a finite number")
    return value
