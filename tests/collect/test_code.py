"""The code's digest and evidence, in a real git repository and without one."""

import ast
import subprocess
from pathlib import Path

import pytest

from treering.collect.code import NUMERIC_SOURCES, code_digest, collect_code, source_digests
from treering.config.canonical import digest_bytes
from treering.errors import NotFoundError

PATHS = ("src", "*le.py")


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "src" / "inner").mkdir(parents=True)
    (tmp_path / "src" / "a.py").write_text("a = 1\n")
    (tmp_path / "src" / "inner" / "b.py").write_text("b = 1\n")
    (tmp_path / "single.py").write_text("c = 1\n")
    (tmp_path / "other.py").write_text("d = 1\n")
    return tmp_path


def git(root, *arguments):
    subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments],
        cwd=root,
        check=True,
        capture_output=True,
    )


@pytest.fixture
def repository(tree):
    git(tree, "init", "-q")
    git(tree, "add", ".")
    git(tree, "commit", "-qm", "first")
    return tree


def test_sources_by_path(tree):
    assert source_digests(tree, PATHS) == {
        "src/a.py": digest_bytes(b"a = 1\n"),
        "src/inner/b.py": digest_bytes(b"b = 1\n"),
        "single.py": digest_bytes(b"c = 1\n"),
    }


def test_digest_is_of_content_and_relative_path(tree, tmp_path_factory):
    digest = code_digest(tree, PATHS)
    assert digest == code_digest(tree, reversed(PATHS))
    (tree / "other.py").write_text("d = 2\n")
    (tree / "src" / "__pycache__").mkdir()
    (tree / "src" / "__pycache__" / "a.cpython-311.pyc").write_bytes(b"x")
    assert code_digest(tree, PATHS) == digest
    (tree / "src" / "a.py").write_text("a = 2\n")
    changed = code_digest(tree, PATHS)
    (tree / "src" / "a.py").write_text("a = 1\n")
    assert code_digest(tree, PATHS) == digest
    (tree / "src" / "a.py").rename(tree / "src" / "z.py")
    assert len({digest, changed, code_digest(tree, PATHS)}) == 3
    (tree / "src" / "z.py").rename(tree / "src" / "a.py")
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "moved"
    tree.rename(elsewhere)
    assert code_digest(elsewhere, PATHS) == digest
    elsewhere.rename(tree)


def test_a_missing_source_is_an_error(tree):
    with pytest.raises(NotFoundError, match="code digest: gone does not exist below"):
        code_digest(tree, ("src", "gone"))


def test_without_git(tree):
    code = collect_code(tree, PATHS)
    assert (code["commit"], code["dirty"], code["diff"], code["diff_digest"]) == (None, None, "", None)
    assert code["digest"] == code_digest(tree, PATHS)


def test_clean_commit(repository):
    code = collect_code(repository, PATHS)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=repository, capture_output=True, text=True, check=True)
    assert (code["commit"], code["dirty"], code["diff"], code["diff_digest"]) == (head.stdout.strip(), False, "", None)
    (repository / "other.py").write_text("d = 2\n")
    assert collect_code(repository, PATHS)["dirty"] is False, "a change outside the sources is not the code's"


def test_the_diff_rebuilds_the_tree_new_files_included(repository, tmp_path_factory):
    (repository / "src" / "a.py").write_text("a = 3\n")
    (repository / "src" / "new.py").write_text("n = 1\n")
    code = collect_code(repository, PATHS)
    assert code["dirty"] is True
    assert code["diff_digest"] == digest_bytes(code["diff"].encode())
    clone = tmp_path_factory.mktemp("clone")
    git(clone, "clone", "-q", str(repository), ".")
    subprocess.run(["git", "apply", "-"], cwd=clone, input=code["diff"].encode(), check=True)
    assert code_digest(clone, PATHS) == code["digest"]


ROOT = Path(__file__).parents[2]


def test_patterns_stay_within_one_folder(tree):
    assert set(source_digests(tree, ("src/*.py",))) == {"src/a.py"}


def test_numeric_sources_hold_the_trainer_without_evaluation():
    sources = source_digests(ROOT, NUMERIC_SOURCES)
    assert "trainer/treering_trainer/core/model.py" in sources
    folders = {path.name for path in (ROOT / "trainer" / "treering_trainer").iterdir() if path.is_dir()}
    readers = {"evaluate", "export", "generate", "replay"}  # of finished checkpoints
    assert folders - {"__pycache__"} <= readers, "a new folder of the trainer must enter NUMERIC_SOURCES"
    assert not any(f"/{reader}/" in path for path in sources for reader in readers)


def test_numeric_sources_hold_all_that_the_data_order_stands_on():
    """What it imports of `treering.data` is in as well, but for what makes or checks digests or names documents.

    `continuation` decides a part of a blend, which the blend's digest and so the run's id hold.
    """
    names = ("blend", "chunks", "continuation", "document_table", "manifest")
    bookkeeping = {f"treering.data.{name}" for name in names}
    sources = source_digests(ROOT, NUMERIC_SOURCES)
    for path in sources:
        tree = ast.parse((ROOT / path).read_text())
        modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        missing = {
            module
            for module in modules
            if module.startswith("treering.data.") and f"platform/{module.replace('.', '/')}.py" not in sources
        }
        assert missing <= bookkeeping, path
