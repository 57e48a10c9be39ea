"""What the site adds to docs/: the pages of the repository's root, and the dashboard's logo.

These files are written for a reader of the repository, so their links start at its root; on the site they are pages
beside the others.
"""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
LOGO = "dashboard/treering_dashboard/logo.svg"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages and the logo."""
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=_linked((ROOT / name).read_text())))
    files.append(File.generated(config, "site/logo.svg", abs_src_path=str(ROOT / LOGO)))
    return files


def _linked(text: str) -> str:
    """A text of the repository's root, its links as the site's pages need them."""
    for name, page in PAGES.items():
        text = text.replace(f"]({name})", f"]({page})")
    return re.sub(r"\]\(docs/", "](", text)
