"""Foreign text controls neither a terminal nor a Markdown page."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from treering.cli.output import Output
from treering.foreign import code, markdown, shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("MIT", "MIT"),
        ("naïve, 日本語", "naïve, 日本語"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\nFAILED b\tc\r", r"a\nFAILED b\tc\r"),
        ("a\u202egpj.exe", r"a\u202egpj.exe"),
        ("\u200bzero", r"\u200bzero"),
        ("\u2028line", r"\u2028line"),
        ("\udc80", r"\udc80"),
        ("\x9b1m\x00\x7f", r"\x9b1m\x00\x7f"),
        ("\U000e0041", r"\U000e0041"),
        ("क्‍ष", "क्‍ष"),
    ],
)
def test_what_controls_a_terminal_is_shown_escaped(text, expected):
    assert shown(text) == expected


def test_ends_of_lines_are_kept_where_a_text_has_several():
    assert shown("a\n\tb\x1b", lines=True) == "a\n\tb\\x1b"


@given(st.text())
def test_shown_text_is_one_encodable_line_without_controls(text):
    line = shown(text)
    line.encode()
    assert line.splitlines() == ([line] if line else [])
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", line)


NASTY = [
    "[/x]", "[red]MIT", "a|b", "`x`", "``", "# title", "- item", "1. item", "> quote", "<b>x</b>", "<!--", "&amp;",
    "[x](https://example.org)", "![x](y.png)", "https://example.org/a_b", "www.example.org", "*x* _y_ __z__ ~~w~~",
    "a\nb", "---", "===", "+ x", "\\", "$x$", "{x}", ":smile:", "a_b", "|", "<script>",
]  # fmt: skip


def _plain(tokens):
    """The text of a page of one paragraph, and the kinds of what is inside it."""
    inline = [token for token in tokens if token.type == "inline"]
    children = [child for token in inline for child in token.children]
    return "".join(child.content for child in children), {child.type for child in children}, [t.type for t in tokens]


@pytest.mark.parametrize("text", NASTY)
def test_markdown_reads_as_it_is_written(text):
    parser = MarkdownIt("gfm-like", {"linkify": False})
    content, kinds, blocks = _plain(parser.parse(markdown(text)))
    assert content == shown(text)
    assert kinds <= {"text", "text_special"}
    assert blocks == ["paragraph_open", "inline", "paragraph_close"]
    content, kinds, _ = _plain(parser.parse(f"x {code(text)}"))
    assert content.removeprefix("x ").replace("\\|", "|") == shown(text)
    assert kinds == {"text", "code_inline"}


@pytest.mark.parametrize("text", NASTY)
def test_a_cell_stays_one_cell(text):
    page = f"| a | b |\n| --- | --- |\n| {markdown(text)} | {code(text)} |\n"
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(page)
    cells = [token for token in tokens if token.type == "inline"][2:]
    assert [_plain([cell])[0].replace("\\|", "|") for cell in cells] == [shown(text), shown(text)]


def _printed(act, monkeypatch, *, width=None):
    """What is printed into a pipe, or on a terminal of a width."""
    stream = io.StringIO()
    stream.isatty = lambda: width is not None
    monkeypatch.setattr("sys.stdout", stream)
    if width is not None:
        monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "dumb")
    act(Output())
    return stream.getvalue()


@pytest.mark.parametrize("text", [*NASTY, "\x1b[31mred", "\u202eabc", "\udc80"])
def test_lines_and_cells_are_printed_as_they_are(text, monkeypatch):
    printed = _printed(lambda out: (out.print(text), out.print_table(("name", "n"), [[text, "1"]])), monkeypatch)
    lines = [line.rstrip() for line in printed.splitlines()]
    assert len(lines) == 3
    assert lines[0] == shown(text)
    assert lines[2].split("  ")[0].strip() == shown(text)


def test_a_pipe_gets_whole_rows_and_a_terminal_rows_that_fit(monkeypatch):
    identity = "sha256:" + "0123456789abcdef" * 4
    rows = [[identity, "a licence of several words"], ["x", "MIT"]]

    def act(out):
        out.print_table(("digest", "licence"), rows)

    piped = _printed(act, monkeypatch)
    assert f"{identity}  a licence of several words" in piped.splitlines()[1]
    assert "\x1b" not in piped
    narrow = _printed(act, monkeypatch, width=80)
    assert max(map(len, narrow.splitlines())) <= 80
    assert "a licence of several words" not in piped.splitlines()[2]
    tiny = _printed(act, monkeypatch, width=20)
    assert identity in tiny, "a word that is longer than the width stays whole"


def test_a_long_line_is_continued_below_its_value(monkeypatch):
    line = "label       " + "word " * 30
    printed = _printed(lambda out: out.print(line.strip()), monkeypatch, width=80).splitlines()
    assert len(printed) == 3
    assert all(len(each) <= 80 for each in printed)
    assert [each[:12] for each in printed[1:]] == [" " * 12] * 2
    assert _printed(lambda out: out.print(line.strip()), monkeypatch).splitlines() == [line.strip()]
