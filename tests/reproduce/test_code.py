"""The code of two attempts compared by function, class and constant, from commits and diffs of a real repository."""

import subprocess
from pathlib import Path

import pytest

from treering.collect.code import CODE_RULE, collect_code
from treering.collect.foreign_code import foreign_code
from treering.config.canonical import digest_file
from treering.reproduce.code import compare_code
from treering.reproduce.definitions import changed_definitions, module_name

MODULE = '''"""An optimizer."""

import math

BETA2 = 0.95


def build(rate: float, decay: float = 0.1) -> float:
    """Makes it."""
    return rate * decay


class Adam:
    eps = 1e-8

    def step(self, weight):
        return weight - self.eps * math.sqrt(BETA2)
'''


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "clone"
    (folder / "pkg").mkdir(parents=True)
    git(folder, "init", "--quiet")
    (folder / "pkg" / "optim.py").write_text(MODULE)
    (folder / "pkg" / "table.txt").write_text("1 2\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    return folder


def state(repository):
    return collect_code(repository, ["pkg"], ["pkg"])


def edit(repository, old, new, name="pkg/optim.py"):
    file = repository / name
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def sentences(found):
    return [each.sentence for each in found.changes]


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        (
            "BETA2 = 0.95",
            "BETA2 = 0.99",
            ("constant pkg.optim.BETA2 changed", ("BETA2 = 0.95", "BETA2 = 0.99")),
        ),
        (
            "decay: float = 0.1",
            "decay: float = 0.2",
            (
                "function pkg.optim.build changed",
                (
                    "def build(rate: float, decay: float=0.1) -> float:",
                    "def build(rate: float, decay: float=0.2) -> float:",
                ),
            ),
        ),
        (
            "weight - self.eps",
            "weight + self.eps",
            (
                "function pkg.optim.Adam.step changed",
                (
                    "return weight - self.eps * math.sqrt(BETA2)",
                    "return weight + self.eps * math.sqrt(BETA2)",
                ),
            ),
        ),
        ("eps = 1e-8", "eps = 1e-6", ("constant pkg.optim.Adam.eps changed", ("eps = 1e-08", "eps = 1e-06"))),
        ("class Adam:", "class Adam(dict):", ("class pkg.optim.Adam changed", ("class Adam:", "class Adam(dict):"))),
        ("import math", "import math, os", ("imports of pkg.optim changed", ("import math", "import math, os"))),
    ],
)
def test_a_change_is_named_by_the_part_that_changed(repository, committed, old, new, named):
    sentence, lines = named
    before = state(repository)
    edit(repository, old, new)
    if committed:
        git(repository, "commit", "--quiet", "-am", "second")
    after = state(repository)
    found = compare_code(before, after, [repository])
    assert (found.same, sentences(found), found.doubts) == (False, [sentence], ())
    assert (found.changes[0].first, found.changes[0].second) == lines
    back = compare_code(after, before, [repository])
    assert (back.changes[0].second, back.changes[0].first) == lines


def test_what_was_added_and_removed_is_named(repository):
    before = state(repository)
    edit(repository, "BETA2 = 0.95\n", "")
    edit(repository, "class Adam", "def new():\n    return 1\n\n\nclass Adam")
    (repository / "pkg" / "more.py").write_text("x = 1\n")  # which git does not know: it is in the recorded diff
    found = compare_code(before, state(repository), [repository])
    assert sentences(found) == [
        "file pkg/more.py added",
        "constant pkg.optim.BETA2 removed",
        "function pkg.optim.new added",
    ]


def test_comments_formatting_and_docstrings_are_the_same_code(repository):
    before = state(repository)
    edit(repository, '    """Makes it."""\n', '    """Builds it."""\n    # so\n')
    found = compare_code(before, state(repository), [repository])
    assert (found.same, found.changes) == (True, ())


def test_a_file_that_is_no_module_is_named_whole(repository):
    before = state(repository)
    edit(repository, "1 2", "1 3", "pkg/table.txt")
    assert sentences(compare_code(before, state(repository), [repository])) == ["file pkg/table.txt changed"]


def test_without_the_repository_files_are_named_with_a_doubt(repository, tmp_path):
    before = state(repository)
    edit(repository, "0.95", "0.99")
    found = compare_code(before, state(repository), [tmp_path])
    assert (found.same, sentences(found)) == (False, ["file pkg/optim.py changed"])
    (doubt,) = found.doubts
    assert "is in no git repository here" in doubt.text
    assert "clone of the code" in doubt.remedy


def test_a_diff_that_was_changed_is_not_believed(repository):
    before = state(repository)
    edit(repository, "0.95", "0.99")
    after = state(repository)
    for diff in (after["diff"].replace("0.99", "0.98"), "", "no diff"):
        found = compare_code(before, {**after, "diff": diff}, [repository])
        assert sentences(found) == ["file pkg/optim.py changed"]
        assert found.doubts[0].level == "limited"


def test_a_rebuilt_file_with_another_digest_is_not_believed(repository):
    before = state(repository)
    edit(repository, "0.95", "0.99")
    after = state(repository)
    after["sources"] = {**after["sources"], "pkg/optim.py": "sha256:" + "0" * 64}
    found = compare_code(before, after, [repository])
    assert sentences(found) == ["file pkg/optim.py changed"]
    assert "does not give the recorded digests" in found.doubts[0].text


def test_records_by_two_rules_are_compared_by_content(repository):
    after = state(repository)
    assert after["rule"] == CODE_RULE
    earlier = {**after, "digest": "sha256:" + "1" * 64}
    del earlier["rule"]
    earlier["sources"] = {name: digest_file(repository / name) for name in after["sources"]}
    found = compare_code(earlier, after, [repository])
    assert (found.same, found.changes, found.doubts) == (True, (), ())
    found = compare_code(earlier, after, [])
    assert (found.same, found.changes, found.doubts[0].level) == (None, (), "limited")


def test_a_module_that_this_python_cannot_parse_is_compared_whole():
    assert changed_definitions("a.py", b"x = 1", b"def") != []
    assert changed_definitions("a.py", b"def", b"def") == []


def test_statements_without_a_name_count():
    (found,) = changed_definitions("pkg/a.py", b"if True:\n    x = 1\n", b"if True:\n    x = 2\n")
    assert (found.sentence, found.first, found.second) == ("statements of pkg.a changed", "x = 1", "x = 2")


def test_modules_of_a_clone_have_the_names_that_python_has():
    assert module_name("trainer/treering_trainer/core/optim.py") == "treering_trainer.core.optim"
    assert module_name("platform/treering/data/order/__init__.py") == "treering.data.order"
    assert module_name("train.py") == "train"


def test_another_trainer_is_compared_by_its_repository(repository):
    script = repository / "pkg" / "optim.py"
    before = foreign_code(script)
    same = compare_code(before, foreign_code(script))
    assert (same.same, [doubt.text for doubt in same.doubts]) == (
        True,
        ["files that git does not track were not compared"],
    )
    edit(repository, "0.95", "0.99")
    dirty = foreign_code(script)
    assert sentences(compare_code(before, dirty)) == ["constant pkg.optim.BETA2 changed"]
    git(repository, "commit", "--quiet", "-am", "second")
    found = compare_code(dirty, foreign_code(script))
    assert (found.same, found.changes) == (True, ())


def test_a_script_outside_git_is_compared_by_its_digest(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("x = 1\n")
    before = foreign_code(script)
    found = compare_code(before, before)
    assert (found.same, found.changes, found.doubts[0].level) == (None, (), "missing")
    script.write_text("x = 2\n")
    found = compare_code(before, foreign_code(script))
    assert (found.same, sentences(found)) == (False, [f"file {script} changed"])
    assert "keep the trainer in git" in found.doubts[0].remedy


def test_records_of_two_trainers_have_no_common_form(repository):
    found = compare_code(state(repository), foreign_code(repository / "pkg" / "optim.py"))
    assert (found.same, found.doubts[0].level) == (None, "missing")
