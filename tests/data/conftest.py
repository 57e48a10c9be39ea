"""A tiny project with real input: your own JSON Lines file and a wheel that is built on the spot."""

import gzip
import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from prose_text import make_text

from treering.config.corpora import CorpusConfig, CurationConfig, WheelConfig
from treering.project import Project


def build_wheel(directory: Path, name: str, version: str, files: dict[str, bytes]) -> WheelConfig:
    """Writes a valid wheel and returns its pin."""
    stem = f"{name.replace('-', '_')}-{version}"
    path = directory / f"{stem}-py3-none-any.whl"
    info = f"{stem}.dist-info"
    contents = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{member},,\n" for member in contents) + f"{info}/RECORD,,\n"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in {**contents, f"{info}/RECORD": record.encode()}.items():
            archive.writestr(zipfile.ZipInfo(member, (1980, 1, 1, 0, 0, 0)), data)
    return WheelConfig(package=name, version=version, sha256=hashlib.sha256(path.read_bytes()).hexdigest())


def service(documents: dict[str, str]) -> bytes:
    """A botocore service description with one operation a document."""
    operations = {name: {"documentation": html} for name, html in documents.items()}
    return gzip.compress(json.dumps({"operations": operations, "shapes": {}}).encode(), mtime=0)


def write_jsonl(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


class Tiny:
    """The tiny project: corpora `own` (JSON Lines, first in priority) and `pages` (HTML in a wheel)."""

    def __init__(self, root: Path) -> None:
        self.project = Project(root)
        self.config = CurationConfig(num_processes=1)
        self.rows: list[dict[str, object]] = [{"id": f"doc-{seed}", "text": make_text(seed)} for seed in range(40)]
        self.pages = {f"Op{seed}": f"<p>{make_text(1000 + seed)}</p><script>x()</script>" for seed in range(30)}

    def corpora(self) -> list[CorpusConfig]:
        """Writes the sources to `data/raw`, as `fetch` does."""
        own, pages = self.project.raw / "own", self.project.raw / "pages"
        for folder in (own, pages):
            folder.mkdir(parents=True, exist_ok=True)
        write_jsonl(own / "own.jsonl", self.rows)
        wheel = build_wheel(
            pages, "tiny-docs", "1.0", {"botocore/data/tiny/2020-01-01/service-2.json.gz": service(self.pages)}
        )
        return [
            CorpusConfig(name="own", licence="CC0-1.0", jsonl="texts/own.jsonl"),
            CorpusConfig(name="pages", licence="MIT", kind="html", reader="botocore", wheels=(wheel,)),
        ]


@pytest.fixture
def tiny(tmp_path: Path) -> Tiny:
    return Tiny(tmp_path)


@pytest.fixture(scope="session")
def tiny_in() -> type[Tiny]:
    return Tiny


@pytest.fixture
def prose() -> Callable[[int], str]:
    return make_text


@pytest.fixture
def wheel_builder() -> Callable[[Path, str, str, dict[str, bytes]], WheelConfig]:
    return build_wheel
