"""The documentation as a site: it builds strictly, loads nothing from other servers, and refers to documented names."""

import importlib.util
import os
import re
import runpy
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
REFERENCES = [name for page in PAGES for name in re.findall(r"^::: (\S+)", page.read_text(), re.MULTILINE)]
BUILD = [sys.executable, "-m", "mkdocs", "build"]
SERVERS = re.compile(r"<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=\"?(?:https?:)?//([^/\"]+)")


def build(root, out):
    environ = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [*BUILD, "--config-file", str(root / "mkdocs.yml"), "--site-dir", str(out)]
    return subprocess.run(command, cwd=root, env=environ, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("built") / "site"
    built = build(ROOT, out)
    assert built.returncode == 0, built.stderr
    return out


@pytest.mark.slow
def test_every_page_is_built(site):
    wanted = {page.relative_to(ROOT / "docs").with_suffix(".html") for page in PAGES}
    wanted |= {Path("index.html"), Path("contributing.html"), Path("changelog.html")}
    assert wanted <= {page.relative_to(site) for page in site.rglob("*.html")}


@pytest.mark.slow
def test_pages_load_nothing_from_another_server(site):
    for page in site.rglob("*.html"):
        assert SERVERS.findall(page.read_text()) == [], page.name
    assert SERVERS.findall('<script src="https://unpkg.com/x">') == ["unpkg.com"]


@pytest.mark.slow
def test_words_are_linked_with_the_glossary_both_ways(site):
    assert '<a href="glossary.html#ring">ring</a>' in (site / "run-log.html").read_text()
    assert '<a href="run-log.html#rings" id="ring">ring</a>' in (site / "glossary.html").read_text()


def test_the_glossary_is_sorted_and_every_word_has_a_page():
    rows = re.findall(r"^\| (.+?) \| .+ \|$", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)[1:]
    words = [re.fullmatch(r"\[([^]]+)\]\(\S+\)", row)[1].lower() for row in rows]
    assert len(words) > 60
    assert words == sorted(words)


@pytest.mark.slow
def test_a_ring_is_shown_with_its_fields(site):
    page = (site / "reference/run-log.html").read_text()
    assert 'id="treering.runlog.ring.Ring"' in page
    assert "global gradient norm before clipping" in page
    assert "cpu or cuda" in page, "descriptions of pydantic's fields are shown too"
    assert "<td></td>" not in re.sub(r"\s", "", (site / "reference/audit.html").read_text()), "enums have no fields"


@pytest.mark.parametrize("name", REFERENCES)
def test_a_reference_is_documented(name):
    module, rest = name, []
    while not exists(module):
        module, _, last = module.rpartition(".")
        rest.insert(0, last)
    found = importlib.import_module(module)
    for each in rest:
        found = getattr(found, each)
    if not isinstance(found, type | types.FunctionType | types.ModuleType):
        return  # a constant has no docstring at run time
    described = {
        name: found,
        **{f"{name}.{each}": member for each, member in vars(found).items() if public(each, member)},
    }
    assert [each for each, member in described.items() if not member.__doc__] == []
    assert not (found.__doc__ or "").startswith(f"{name.rpartition('.')[2]}("), "the docstring is dataclass's own"


def exists(module):
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def public(name, member):
    return not name.startswith("_") and isinstance(member, types.FunctionType | property | classmethod)


@pytest.mark.slow
def test_a_broken_link_or_reference_ends_the_build(tmp_path):
    root = tmp_path / "project"
    for name in ("docs/site", "dashboard/treering_dashboard/logo.svg", "platform/treering"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, root / name)
        else:
            (root / name).parent.mkdir(parents=True)
            shutil.copy(ROOT / name, root / name)
    config = re.sub(r"^nav:\n(?: .*\n)+", "", (ROOT / "mkdocs.yml").read_text(), flags=re.MULTILINE)
    (root / "mkdocs.yml").write_text(config.replace("[platform, trainer, dashboard]", "[platform]"))
    hooks = runpy.run_path(str(ROOT / "docs/site/hooks.py"))
    for name in (*hooks["PAGES"], "docs/audit.md", "docs/glossary.md"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("# A page\n")
    assert build(root, tmp_path / "sound").returncode == 0
    for text, expected in (
        ("[x](gone.md) [x](audit.md#gone)", ["'gone.md'", "'audit.md#gone'"]),
        ("::: treering.runlog.ring.Gone", ["treering.runlog.ring.Gone"]),
    ):
        (root / "docs/audit.md").write_text(text)
        built = build(root, tmp_path / "broken")
        assert built.returncode == 1
        assert [each for each in expected if each not in built.stderr] == []
