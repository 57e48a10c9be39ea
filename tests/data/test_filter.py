from collections.abc import Callable

import pytest

from treering.config.corpora import CurationConfig, FilterRules
from treering.data.curate.extract import extract
from treering.data.curate.filter import judge
from treering.data.curate.language import language

PROSE = FilterRules()
CODE = CurationConfig().code
GERMAN = "Der alte Mann ging mit seinem Hund durch den Wald und dachte an die Zeit, die er verloren hatte. " * 2


def test_good_prose_passes(prose: Callable[[int], str]) -> None:
    assert judge(prose(1), PROSE)[0] is None


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda text: text[:511], "min_characters"),
        (lambda text: text * 1000, "max_characters"),
        (lambda text: text + " Lorem Ipsum dolor.", "forbidden_phrases"),
        (lambda text: "\n".join(f"- {part}." for part in text.split(".")), "max_bullet_line_fraction"),
        (lambda text: "\n".join(f"{part}..." for part in text.split(".")), "max_ellipsis_line_fraction"),
        (lambda text: "\n".join([text[:300]] * 3), "max_duplicate_line_fraction"),
        (lambda _: "internationalisation " * 40, "min_words"),
        (lambda _: "a b c of the to " * 60, "min_mean_word_length"),
        (lambda _: "internationalisation " * 60, "max_mean_word_length"),
        (lambda text: text.replace(" ", " # ", 40), "max_symbol_to_word_ratio"),
        (lambda text: text + " 12345" * 80, "min_alphabetic_word_fraction"),
        (lambda _: "cats eating fish under large trees " * 30, "min_stop_words"),
    ],
)
def test_each_prose_rule_fires(change: Callable[[str], str], rule: str, prose: Callable[[int], str]) -> None:
    assert judge(change(prose(1)), PROSE)[0] == rule


def test_language_is_identified_without_a_download() -> None:
    assert language(GERMAN)[0] == "de"
    rules = FilterRules(min_characters=50, min_words=10, min_stop_words=0)
    assert judge(GERMAN, rules)[0] == "languages"
    assert judge(GERMAN, rules.model_copy(update={"languages": ("de", "en")}))[0] is None
    assert judge(GERMAN, rules.model_copy(update={"languages": ()}))[0] is None


def test_browser_notice_is_short_and_says_javascript() -> None:
    rules = FilterRules(min_characters=10)
    assert judge("Please enable JavaScript.", rules)[0] == "max_javascript_characters"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("def f(x):\n    return x\n" * 5, "min_characters"),
        ("# auto-generated, do not edit\n" + "x = y + z\n" * 30, "forbidden_phrases"),
        ("x = [" + "1, " * 400 + "]\n" + "y = z\n" * 30, "max_line_length"),
        ("\n".join(f"value_{n} = " + "a + " * 30 for n in range(20)), "max_mean_line_length"),
        ("\n".join("[][][]{}()" * 8 + f"word{n}" for n in range(40)), "min_alphanumeric_fraction"),
    ],
)
def test_each_code_rule_fires(text: str, rule: str) -> None:
    assert judge(text, CODE)[0] == rule


def test_code_needs_no_language() -> None:
    assert judge("\n".join(f"alpha_{n} = beta_{n} + gamma({n})" for n in range(40)), CODE)[0] is None


def test_extract_reads_html_and_mends_prose() -> None:
    html = "<p>Caf&eacute; &amp; bar</p><script>no()</script><!-- no --><ul><li>one</li></ul>"
    assert extract(html, "html") == "Café & bar\n\n  • one"
    assert extract("schÃ¶n\r\nda ", "prose") == "schön\nda"
    assert extract('x = "schÃ¶n"', "code") == 'x = "schÃ¶n"'
    assert extract("a\ud800b", "code") == "a?b"
    assert extract("<p>a\ud800b</p>", "html") == "a?b"
