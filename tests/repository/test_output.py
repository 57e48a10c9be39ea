"""Everything for people goes through one console: nothing else prints, and no line of ours hides another one."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLATFORM = sorted((ROOT / "platform" / "treering").rglob("*.py"))
TRAINER = sorted((ROOT / "trainer").rglob("*.py"))
CONSOLES = {"platform/treering/cli/output.py"}
"""Where rich's console and tables are made."""
WRITERS = {
    "platform/treering/foreign.py": "`say`",
    "platform/treering/cli/output.py": "JSON",
    "platform/treering/cli/launch.py": "a shell command for other programs",
    "trainer/treering_trainer/export/__main__.py": "JSON",
    "trainer/treering_trainer/generate/__main__.py": "the generated text, and JSON",
    "trainer/treering_trainer/replay/__main__.py": "JSON for `treering audit`",
}
"""Files that write to a standard stream themselves, and what."""


def _calls(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def _name(call):
    return ast.unparse(call.func)


def _here(path):
    return str(path.relative_to(ROOT))


def test_nothing_prints_beside_the_console():
    for path in (*PLATFORM, *TRAINER):
        _check_prints(path)


def _check_prints(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {_name(node) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    if _here(path) not in CONSOLES:
        imported = {
            f"{node.module}.{alias.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }
        assert not imported & {"rich.table.Table", "rich.print", "rich.markup.render", "rich.markdown.Markdown"}
    assert not names & {"typer.echo", "typer.secho", "click.echo", "rich.print"}
    if _here(path) not in WRITERS:
        assert not names & {"sys.stdout.write", "sys.stderr.write"}, f"{path}: print with `console`, or `foreign.say`"


def test_a_line_is_an_argument_of_its_own():
    """An end of a line inside a text is foreign; ours are arguments of `console.print`."""
    for call in (call for path in (ROOT / "platform" / "treering" / "cli").glob("*.py") for call in _calls(path)):
        if _name(call) in {"console.print", "console.heading"}:
            constants = [node.value for each in call.args for node in ast.walk(each) if isinstance(node, ast.Constant)]
            assert not [text for text in constants if isinstance(text, str) and "\n" in text], ast.unparse(call)


def test_bars_take_no_markup():
    for call in (call for path in (*PLATFORM, *TRAINER) for call in _calls(path)):
        if _name(call) == "TextColumn":
            assert any(word.arg == "markup" and ast.unparse(word.value) == "False" for word in call.keywords)


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
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.FormattedValue) and isinstance(node.value, ast.Attribute):
            assert node.value.attr not in foreign, f"line {node.lineno}: {ast.unparse(node.value)}"


OWN_FILES = {
    "platform/treering/files.py",
    "platform/treering/collect/devices.py",  # /proc and /sys
    "platform/treering/collect/memory.py",  # /proc and /sys
    "platform/treering/cli/serving.py",  # the log of a server that it started itself
    "trainer/treering_trainer/monitor/watchdog.py",  # /proc
    "trainer/treering_trainer/launch/nodes.py",  # a file that the first node of the same run writes
}
"""Files that read what the system, or the same process, made."""


def test_whole_files_are_read_by_the_one_reader():
    """`treering.files` refuses pipes and devices and knows a bound; `config.yaml_text` bounds YAML."""
    for path in (path for path in (*PLATFORM, *TRAINER) if _here(path) not in OWN_FILES):
        for call in _calls(path):
            name = _name(call)
            assert not name.endswith((".read_text", ".read_bytes")), (
                f"{path}, line {call.lineno}: read by treering.files"
            )
            assert name not in {"yaml.safe_load", "json.load"}, f"{path}, line {call.lineno}"
