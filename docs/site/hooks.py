"""What the site adds to docs/: pages from elsewhere in the repository, the logo, tables, and links to the glossary.

Pages from elsewhere are written for a reader of the repository, so their links start at their folder; on the site they
are pages beside the others. A line `{{ metrics }}` or `{{ lineages }}` becomes a table of what the code holds.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from treering.data.megatron.lineage import CORE, LINEAGES
from treering.runlog.metric_catalog import METRICS

ROOT = Path(__file__).parents[2]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "experiments/benchmarks/README.md": "benchmarks.md",
}
LOGO = "dashboard/treering_dashboard/logo.svg"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages and the logo."""
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=_linked((ROOT / name).read_text())))
    files.append(File.generated(config, "site/logo.svg", abs_src_path=str(ROOT / LOGO)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Links to pages from elsewhere; tables; words of the glossary, each linked from the page that explains it."""
    for name, target in PAGES.items():
        markdown = markdown.replace(f"](../{name}", f"]({target}")
    markdown = markdown.replace("{{ metrics }}", _metrics()).replace("{{ lineages }}", _lineages())
    entries = _ENTRY.findall((ROOT / "docs/glossary.md").read_text())
    if page.file.src_uri == "glossary.md":
        return _ENTRY.sub(
            lambda found: f"| [{found[1]}]({found[2]}{found[3] or ''}){{#{_anchor(found[1])}}} |", markdown
        )
    words = [word for word, target, _ in entries if target == page.file.src_uri]
    if not words:
        return markdown
    links = ", ".join(f"[{word}](glossary.md#{_anchor(word)})" for word in words)
    return f"{markdown}\n\n---\n\nIn the [glossary](glossary.md): {links}.\n"


_ENTRY = re.compile(r"^\| \[([^]]+)\]\(([\w/-]+\.md)(#[\w-]+)?\) \|", re.MULTILINE)
"""An entry of the glossary: its word, page and place on it."""


def _anchor(word: str) -> str:
    return re.sub(r"\W+", "-", word.lower())


def _linked(text: str) -> str:
    """A text from elsewhere in the repository, its links as the site's pages need them."""
    for name, page in PAGES.items():
        text = text.replace(f"]({name})", f"]({page})")
    return re.sub(r"\]\((?:\.\./\.\./)?docs/", "](", text)


def _metrics() -> str:
    rows = [f"| `{metric.key}` | {metric.unit} | {metric.meaning} |" for metric in METRICS.values()]
    return "\n".join(["| key | unit | meaning |", "|---|---|---|", *rows])


def _lineages() -> str:
    rows = ["| lineage | programs | rules that the first one does not have | read from |", "|---|---|---|---|"]
    for lineage in LINEAGES.values():
        rules = "; ".join(text for _, text in lineage.differences(CORE))
        rows.append(f"| `{lineage.name}` | {lineage.programs} | {rules} | {lineage.source} |")
    return "\n".join(rows)
