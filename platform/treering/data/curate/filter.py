"""Step filter: which documents are worth training on, by length, language and quality rules.

`treering.config.corpora.FilterRules` has the meaning and the source of each rule. The rules are tried in a fixed order;
the first one that fails names the decision.
"""

import string

import numpy as np

from treering.config.corpora import FilterRules
from treering.data.curate.language import language, num_of
from treering.data.words import Hashes, WordCounts, scan

_BULLETS = frozenset("•-*‣●▪")
_ELLIPSES = ("...", "…")
_ALPHANUMERIC = (string.ascii_letters + string.digits).encode()


def judge(text: str, rules: FilterRules) -> tuple[str | None, Hashes]:
    """Name of the first rule that a document breaks, None for a document to keep; and the hashes of its words.

    The hashes are empty where a rule failed before the words were read.
    """
    lowered = text.lower()
    rule = _failed_text_rule(text, lowered, rules) or _failed_line_rule(text, rules)
    if rule is not None:
        return rule, np.empty(0, np.uint64)
    words, counts = scan(lowered)
    return _failed_word_rule(text, counts, rules) or _failed_language(text, rules), words


def _failed_text_rule(text: str, lowered: str, rules: FilterRules) -> str | None:
    if len(text) < rules.min_characters:
        return "min_characters"
    if rules.max_characters is not None and len(text) > rules.max_characters:
        return "max_characters"
    if len(text) < rules.max_javascript_characters and "javascript" in lowered:
        return "max_javascript_characters"
    return "forbidden_phrases" if any(phrase.lower() in lowered for phrase in rules.forbidden_phrases) else None


def _failed_line_rule(text: str, rules: FilterRules) -> str | None:
    lines = [line for line in map(str.strip, text.split("\n")) if line]
    count = max(1, len(lines))
    if _above(max(map(len, lines), default=0), rules.max_line_length):
        return "max_line_length"
    if _above(sum(map(len, lines)) / count, rules.max_mean_line_length):
        return "max_mean_line_length"
    if _above(sum(line[0] in _BULLETS for line in lines) / count, rules.max_bullet_line_fraction):
        return "max_bullet_line_fraction"
    if any(ellipsis in text for ellipsis in _ELLIPSES) and _above(
        sum(line.endswith(_ELLIPSES) for line in lines) / count, rules.max_ellipsis_line_fraction
    ):
        return "max_ellipsis_line_fraction"
    if _above(1 - len(set(lines)) / count, rules.max_duplicate_line_fraction):
        return "max_duplicate_line_fraction"
    return None


def _failed_word_rule(text: str, counts: WordCounts, rules: FilterRules) -> str | None:  # noqa: PLR0911 - one a rule
    num_words, characters, alphabetic, stop_words = counts
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
    return num_of(_ALPHANUMERIC, text.encode()) if text.isascii() else sum(map(str.isalnum, text))


def _failed_language(text: str, rules: FilterRules) -> str | None:
    if not rules.languages:
        return None
    code, score = language(text)
    return None if code in rules.languages and score >= rules.min_language_score else "languages"


def _below(value: float, limit: float | None) -> bool:
    return limit is not None and value < limit


def _above(value: float, limit: float | None) -> bool:
    return limit is not None and value > limit
