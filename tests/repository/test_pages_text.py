"""Pages of the dashboard print foreign text through `panels.foreign` alone: nothing in it is read as Markdown."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "dashboard").rglob("*.py"))
HOME = ROOT / "dashboard/treering_dashboard/panels/foreign.py"

PRINTS = {"text", "code", "write", "html", "latex", "metric", "json", "echo", "exception", "table", "write_stream"}
"""Streamlit's functions that print text, and have one place that calls them."""
MARKDOWN = {
    *("markdown", "caption", "info", "warning", "error", "success", "badge", "title", "header", "subheader", "toast"),
    *("button", "page_link", "link_button", "expander", "toggle", "checkbox", "tabs", "popover", "status", "form"),
}
"""Streamlit's functions that read Markdown in what they print."""
OURS = {"error_box": 0, "open_ends": 0, "asked": 1, "refuse": 0, "gone": 0}
"""Functions of the dashboard whose parameter of that number reaches one of those."""


def own(node: ast.AST, names: set[str]) -> bool:
    """Whether an expression can hold nothing but what stands in the source, and numbers."""
    parts: list[ast.AST] = []
    match node:
        case ast.Constant() | ast.Call(func=ast.Name(id="label" | "count" | "plural" | "number" | "size")):
            pass
        case ast.JoinedStr(values=values):
            parts = list(values)
        case ast.FormattedValue(value=value):
            parts = [value]
        case ast.Call(func=ast.Attribute(value=ast.Constant(), attr="join"), args=[ast.GeneratorExp(elt=elt)]):
            parts = [elt]
        case ast.IfExp(body=one, orelse=other) | ast.BinOp(left=one, right=other, op=ast.Add()):
            parts = [one, other]
        case ast.Name(id=name) | ast.Subscript(value=ast.Name(id=name)):
            return name.isupper() or name in names
        case _:
            return False
    return all(own(part, names) for part in parts)


def own_names(function: ast.AST) -> set[str]:
    """Names in a function that are given nothing but own expressions; parameters that `OURS` vouches for."""
    names: set[str] = set()
    if isinstance(function, ast.FunctionDef):
        arguments = [argument.arg for argument in function.args.args]
        names |= {arguments[OURS[function.name]]} if function.name in OURS else set()
        given: dict[str, list[ast.AST]] = {}
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                given.setdefault(node.targets[0].id, []).append(node.value)
            elif isinstance(node, ast.For | ast.comprehension):
                for target in ast.walk(node.target):
                    if isinstance(target, ast.Name):
                        given.setdefault(target.id, []).append(node.iter)
        for name, values in given.items():
            if all(own(value, names) for value in values):
                names.add(name)
    return names


def printed(call: ast.Call) -> list[ast.AST]:
    """The arguments of a call that are read as Markdown."""
    match call.func:
        case ast.Attribute(value=ast.Name(id="st"), attr=attr) if attr in MARKDOWN:
            named = [keyword.value for keyword in call.keywords if keyword.arg in ("label", "help", "body")]
            first = call.args[:1] if attr != "page_link" else []
            return [*first, *named]
        case ast.Attribute(value=ast.Name(id="st")):
            return [keyword.value for keyword in call.keywords if keyword.arg == "help"]
        case ast.Name(id=name) if name in OURS:
            return call.args[OURS[name] : OURS[name] + 1]
    return []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_markdown_on_pages_is_written_in_the_source(path):
    tree = ast.parse(path.read_text())
    scopes = [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))]
    for scope in scopes:
        names = own_names(scope)
        for node in ast.walk(scope) if scope is not tree else ast.iter_child_nodes(tree):
            if isinstance(node, ast.Call):
                for argument in printed(node):
                    assert own(argument, names), f"{path.name} line {node.lineno}: {ast.unparse(argument)}; use `label`"


@pytest.mark.parametrize("path", [path for path in PAGES if path != HOME], ids=lambda path: path.name)
def test_pages_print_text_in_one_place(path):
    text = path.read_text()
    assert "unsafe_allow_html" not in text
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="st"), attr=attr)):
                assert attr not in PRINTS, f"{path.name} line {node.lineno}: print with `say`, `block` or `figure`"
            case ast.Call(func=ast.Attribute(value=ast.Name(id="st"), attr="dataframe"), args=[frame, *_]):
                assert isinstance(frame, ast.Call), f"{path.name} line {node.lineno}: show `shown_frame(…)`"


def test_the_check_sees_foreign_text():
    for source in (
        "def f(run): st.caption(f'run {run.name}')",
        "def f(text): st.badge(text)",
        "def f(run):\n title = run.id\n st.markdown(title)",
        "def f(run): st.page_link(x, label=run.id)",
        "def f(run): st.toggle('x', help=run.id)",
        "def f(e): error_box(str(e), e)",
    ):
        (function,) = ast.parse(source).body
        calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
        assert not all(own(argument, own_names(function)) for call in calls for argument in printed(call)), source
