"""The code's digest and evidence, in a real git repository and without one."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

from treering.collect.code import (
    CODE_RULE,
    NUMERIC_SOURCES,
    code_difference,
    code_digest,
    code_record,
    collect_code,
    source_digests,
    sources_root,
)
from treering.collect.syntax import syntax_digest
from treering.config.canonical import digest_bytes
from treering.errors import NotFoundError, UserError

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


def test_modules_by_their_syntax_and_other_files_by_their_bytes(tree):
    (tree / "src" / "table.json").write_text("[1]")
    assert source_digests(tree, PATHS) == {
        "src/a.py": syntax_digest(b"a = 1", Path("a.py")),
        "src/inner/b.py": syntax_digest(b"b = 1", Path("b.py")),
        "src/table.json": digest_bytes(b"[1]"),
        "single.py": syntax_digest(b"c = 1", Path("c.py")),
    }


def test_digest_is_of_content_and_relative_path(tree, tmp_path_factory):
    digest = code_digest(tree, PATHS)
    assert digest == code_digest(tree, reversed(PATHS))
    (tree / "other.py").write_text("d = 2\n")
    (tree / "src" / "__pycache__").mkdir()
    (tree / "src" / "__pycache__" / "a.cpython-311.pyc").write_bytes(b"x")
    assert code_digest(tree, PATHS) == digest
    (tree / "src" / "a.py").write_text("# a comment\r\na  =  1\r\n")
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


def test_a_module_that_cannot_be_parsed_is_named(tree):
    (tree / "src" / "a.py").write_text("a = 1\nb = = 2\n")
    path = re.escape(str(tree / "src" / "a.py"))
    with pytest.raises(UserError, match=f"^code digest: {path}, line 2: invalid syntax; expected a Python module"):
        code_digest(tree, PATHS)


def test_records_are_compared_by_file(tree):
    before = code_record(tree, PATHS)
    assert before == {"digest": code_digest(tree, PATHS), "rule": "syntax-1", "sources": source_digests(tree, PATHS)}
    (tree / "src" / "a.py").write_text("a = 1  # a comment\n")
    assert code_difference(before, code_record(tree, PATHS)) == ""
    (tree / "src" / "a.py").write_text("a = 2\n")
    (tree / "src" / "new.py").write_text("n = 1\n")
    now = code_record(tree, PATHS)
    assert code_difference(before, now) == "src/a.py, src/new.py"
    assert (
        code_difference(before, {"digest": now["digest"], "rule": CODE_RULE}) == "single.py, src/a.py, src/inner/b.py"
    )
    bare = {"rule": CODE_RULE}
    assert code_difference({"digest": "1", **bare}, {"digest": "2", **bare}) == "its files are not recorded"
    many = {"digest": "2", "sources": {f"{n}.py": "2" for n in range(9)}}
    assert code_difference({"digest": "1"}, many) == "0.py, 1.py, 2.py, 3.py, 4.py, 5.py and 3 more"


def test_records_by_two_rules_cannot_be_compared(tree):
    now = code_record(tree, PATHS)
    cannot = "of the code digest; whether the code is the same cannot be said"
    earlier = {name: now[name] for name in ("digest", "sources")}  # as before there was a field `rule`
    assert code_difference(earlier, now) == f"recorded by an earlier rule {cannot}"
    later = {**now, "rule": "syntax-2"}
    assert code_difference(later, now) == f"recorded by rule syntax-2, not syntax-1, {cannot}"
    assert code_difference(earlier, earlier) == ""


def test_without_git(tree):
    code = collect_code(tree, PATHS, PATHS)
    assert (code["commit"], code["dirty"], code["diff"], code["diff_digest"]) == (None, None, "", None)
    assert code["digest"] == code_digest(tree, PATHS)


def test_clean_commit(repository):
    code = collect_code(repository, PATHS, PATHS)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=repository, capture_output=True, text=True, check=True)
    assert (code["commit"], code["dirty"], code["diff"], code["diff_digest"]) == (head.stdout.strip(), False, "", None)
    (repository / "other.py").write_text("d = 2\n")
    assert collect_code(repository, PATHS, PATHS)["dirty"] is False, "a change outside the sources is not the code's"


def test_the_diff_rebuilds_the_tree_new_files_included(repository, tmp_path_factory):
    (repository / "src" / "a.py").write_text("a = 3\n")
    (repository / "src" / "new.py").write_text("n = 1\n")
    code = collect_code(repository, PATHS, PATHS)
    assert code["dirty"] is True
    assert code["diff_digest"] == digest_bytes(code["diff"].encode())
    clone = tmp_path_factory.mktemp("clone")
    git(clone, "clone", "-q", str(repository), ".")
    subprocess.run(["git", "apply", "-"], cwd=clone, input=code["diff"].encode(), check=True)
    assert code_digest(clone, PATHS) == code["digest"]


ROOT = Path(__file__).parents[2]


def test_patterns_stay_within_one_folder(tree):
    assert set(source_digests(tree, ("src/*.py",))) == {"src/a.py"}


OUTSIDE = {
    "treering.config.canonical": "makes digests, which no number depends on",
    "treering.config.operation": "what an attempt may choose anew: its values are in the header",
    "treering.config.schema": "what people write: the values that it resolves to are in the run's id",
    "treering.data.blend.corpora": "refuses a corpus that is not the blend's",
    "treering.data.corpus.chunks": "digests ranges of files",
    "treering.data.corpus.document_table": "names documents; tokens are read without it",
    "treering.data.corpus.mapped_offsets": "finds where documents begin; tokens are read without it",
    "treering.data.corpus.manifest": "reads what a corpus's digest covers",
    "treering.errors": "ends a training, changes none",
    "treering.files": "reads bytes",
    "treering.metrics.flops": "computes the FLOPs of a step from its time",
    "treering.project": "where files are; a digest names each",
    "treering.runlog": "records steps",
    "treering_trainer.checkpointing": "names, digests and removes the files that `core` writes and reads",
    "treering_trainer.monitor": "watches",
}
"""Own modules, or packages of them, that a numeric module imports and that decide no number, each with the reason."""


def test_an_imported_module_decides_numbers_or_has_a_reason_not_to():
    sources = source_digests(ROOT, NUMERIC_SOURCES)
    numeric = {module_name(path) for path in sources}
    assert {"treering_trainer.core.model", "treering.data.order.treering1", "treering.config.schedule"} <= numeric
    for path in sources:
        for name in own_imports(path):
            known = name in numeric or any(f"{name}.".startswith(f"{outside}.") for outside in OUTSIDE)
            assert known, f"{path} imports {name}: put it into NUMERIC_SOURCES, or its reason into OUTSIDE"


def test_what_only_surrounds_training_is_no_numeric_source():
    sources = source_digests(ROOT, NUMERIC_SOURCES)
    folders = {
        path.name for path in (ROOT / "trainer" / "treering_trainer").iterdir() if (path / "__init__.py").exists()
    }
    around = {"checkpointing", "evaluate", "export", "generate", "launch", "monitor", "replay"}
    assert folders == {*around, "core"}, "a new folder of the trainer: does it decide numbers?"
    assert not any(path.startswith(f"trainer/treering_trainer/{folder}/") for path in sources for folder in around)
    assert all(path.endswith(".py") for path in sources), "a numeric folder holds modules alone"


def test_packages_of_numeric_modules_run_nothing_when_they_are_imported():
    parents = {parent for path in source_digests(ROOT, NUMERIC_SOURCES) for parent in Path(path).parents}
    found = [ROOT / parent / "__init__.py" for parent in parents if (ROOT / parent / "__init__.py").exists()]
    assert len(found) > 5
    for path in found:
        if path.parent.name != "treering":  # names for users, none of which a numeric module imports
            assert all(isinstance(each, ast.Expr) for each in ast.parse(path.read_text()).body), path


def module_name(path: str) -> str:
    return path.partition("/")[2].removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def own_imports(path: str) -> set[str]:
    """The modules of this project that a file imports, wherever in it."""
    names = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            inner = {f"{node.module}.{each.name}" for each in node.names}
            names |= {name if is_own_module(name) else node.module for name in inner}
    return {name for name in names if name.startswith("treering")}


def is_own_module(name: str) -> bool:
    return any((ROOT / root / f"{name.replace('.', '/')}.py").exists() for root in ("platform", "trainer"))


def test_installed_packages_have_the_names_and_digests_of_a_clone(tmp_path):
    for root, platform, trainer in (("clone", "platform/", "trainer/"), ("packages", "", "")):
        for file in (f"{platform}treering/config/layout.py", f"{trainer}treering_trainer/core/loop.py"):
            (tmp_path / root / file).parent.mkdir(parents=True)
            (tmp_path / root / file).write_text("a = 1\n")
    paths = ("platform/treering/config/*.py", "trainer/treering_trainer/core", "trainer/treering_trainer")
    installed = source_digests(tmp_path / "packages", paths)
    assert list(installed) == ["platform/treering/config/layout.py", "trainer/treering_trainer/core/loop.py"]
    assert installed == source_digests(tmp_path / "clone", paths)


def test_code_that_a_wheel_installed_has_no_commit(tmp_path):
    packages = tmp_path / "venv"
    for package in ("treering", "treering_trainer"):
        (packages / package).mkdir(parents=True)
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-qm", "someone else's", "--allow-empty")
    code = collect_code(packages, ("treering",), ("treering",))
    assert (code["commit"], code["dirty"], code["diff"]) == (None, None, "")


def test_the_root_of_the_sources(tmp_path):
    packages = ("clone/platform/treering", "clone/trainer/treering_trainer", "lib/treering", "lib/treering_trainer")
    for package in packages:
        (tmp_path / package / "launch").mkdir(parents=True)
    for root, file in (("clone", "clone/trainer/treering_trainer/launch/a.py"), ("lib", "lib/treering/launch/a.py")):
        assert sources_root(tmp_path / file) == tmp_path / root
