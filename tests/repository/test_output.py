"""Everything for people goes through one console: nothing else prints, and no line of ours hides another one."""

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLATFORM = sorted((ROOT / "platform" / "treering").rglob("*.py"))
TRAINER = sorted((ROOT / "trainer").rglob("*.py"))
CONSOLES = {"platform/treering/cli/output.py"}
"""Where rich's console and tables are made."""
WRITERS = {
    "platform/treering/cli/output.py": "JSON",
    "platform/treering/cli/launchers.py": "a shell command for other programs",
    "trainer/treering_trainer/checkpointing/compare.py": "JSON for `treering diff-runs`",
    "trainer/treering_trainer/export/__main__.py": "JSON",
    "trainer/treering_trainer/generate/__main__.py": "the generated text, and JSON",
    "trainer/treering_trainer/replay/__main__.py": "JSON for `treering audit`",
}
"""Files that write to a standard stream themselves, and what."""

OWN_FILES = {
    "platform/treering/collect/devices.py",  # /proc and /sys
    "platform/treering/collect/memory.py",  # /proc and /sys
    "platform/treering/cli/serving.py",  # the log of a server that it started itself
    "trainer/treering_trainer/monitor/watchdog.py",  # /proc
    "trainer/treering_trainer/launch/nodes.py",  # a file that the first node of the same run writes
}
"""Files that read what the system, or the same process, made."""


@cache
def _tree(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def _calls(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def _name(call):
    return ast.unparse(call.func)


def _here(path):
    return str(path.relative_to(ROOT))


def tables(tree):
    """Imports of what the console's module alone makes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from names & {"rich.table.Table", "rich.print", "rich.markup.render", "rich.markdown.Markdown"}


def prints(tree):
    """Calls that print beside the console."""
    yield from {_name(call) for call in _calls(tree)} & {"typer.echo", "typer.secho", "click.echo", "rich.print"}


def writes(tree):
    """Calls that write to a standard stream."""
    yield from {_name(call) for call in _calls(tree)} & {"sys.stdout.write", "sys.stderr.write"}


def lines(tree):
    """Ends of lines inside a text that is printed: those are foreign, ours are arguments of `console.print`."""
    for call in _calls(tree):
        if _name(call) in {"console.print", "console.heading"}:
            constants = [node.value for each in call.args for node in ast.walk(each) if isinstance(node, ast.Constant)]
            yield from (text for text in constants if isinstance(text, str) and "\n" in text)


def columns(tree):
    """Texts of bars that take markup."""
    for call in _calls(tree):
        if _name(call) == "TextColumn":
            plain = any(word.arg == "markup" and ast.unparse(word.value) == "False" for word in call.keywords)
            yield from [] if plain else [ast.unparse(call)]


def reads(tree):
    """Whole files that are not read by `treering.files`, which refuses pipes and devices and knows a bound."""
    for call in _calls(tree):
        name = _name(call)
        if name.endswith((".read_text", ".read_bytes")) or name in {"yaml.safe_load", "json.load"}:
            yield f"line {call.lineno}: {name}"


@pytest.mark.parametrize(
    ("check", "waived"),
    [(tables, CONSOLES), (prints, set()), (writes, WRITERS), (lines, set()), (columns, set()), (reads, OWN_FILES)],
    ids=["tables", "prints", "writes", "lines", "columns", "reads"],
)
def test_only_files_with_a_reason_do_it(check, waived):
    found = {_here(path): list(check(_tree(path))) for path in (*PLATFORM, *TRAINER)}
    assert {path: each for path, each in found.items() if each and path not in waived} == {}
    assert {path for path in waived if not found.get(path)} == set(), "a reason that nothing needs any more"


@pytest.mark.parametrize(
    ("check", "source"),
    [
        (tables, "from rich.table import Table"),
        (prints, "typer.echo(x)"),
        (writes, "sys.stdout.write(x)"),
        (lines, "console.print(f'{x}\\n')"),
        (columns, "TextColumn('{task.description}')"),
        (columns, "TextColumn('x', markup=True)"),
        (reads, "path.read_text()"),
        (reads, "json.load(file)"),
    ],
)
def test_the_check_sees_it(check, source):
    assert list(check(ast.parse(source)))


@pytest.mark.parametrize(
    "path",
    [
        ROOT / "platform/treering/report/page.py",
        ROOT / "platform/treering/audit/disclosure/training_summary.py",
        ROOT / "trainer/treering_trainer/export/card.py",
    ],
    ids=_here,
)
def test_pages_escape_names_texts_and_licences(path):
    """In a page's texts, what comes from records stands behind `markdown` or `code`; numbers need neither."""
    foreign = {
        "corpus",
        "licence",
        "licences",
        "description",
        "experiment",
        "text",
        "verdict",
        "harness",
        "reason",
    }
    values = [node for node in ast.walk(_tree(path)) if isinstance(node, ast.FormattedValue)]
    assert values, "the page's texts are f-strings"
    for node in values:
        if isinstance(node.value, ast.Attribute):
            assert node.value.attr not in foreign, f"line {node.lineno}: {ast.unparse(node.value)}"
