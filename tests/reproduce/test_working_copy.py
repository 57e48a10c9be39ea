"""The copy in which a recorded command runs again: what it writes there does not reach the original."""

import os
import time
from pathlib import Path

import pytest
import versioned_project

from treering.collect.code import run_git
from treering.reproduce.working_copy import WorkingCopy, in_copy, outside


@pytest.fixture
def root(tmp_path):
    """A working directory: a script, data, results, checkpoints, and links of every kind."""
    root, scratch = tmp_path / "proj", tmp_path / "scratch"
    for folder in (root / "data/deep", root / "out", root / "ckpt", scratch / "out"):
        folder.mkdir(parents=True)
    for file in ("train.py", "data/deep/tokens", "out/result", "ckpt/step-5"):
        (root / file).write_text("original")
    (scratch / "out/log").write_text("original")
    (scratch / "note").write_text("original")
    (root / "latest").symlink_to("ckpt/step-5")
    (root / "absolute").symlink_to(root / "out/result")
    (root / "far").symlink_to(scratch / "out")
    (root / "note").symlink_to(scratch / "note")
    (root / "gone").symlink_to(scratch / "gone")
    (root / "round").symlink_to("round")
    os.mkfifo(root / "pipe")
    return root


def copied(root, work, since, commit="", folder=None):
    copy = WorkingCopy(root, folder or root, commit, "", since, frozenset({root / "ckpt"}))
    copy.make(work)
    return copy


def write_everywhere(work):
    """Writes into every file that the copy leads to, and a new file into every folder; no error where none is."""
    for folder, _, files in os.walk(work, followlinks=True):
        for name in ("new", *files):
            path = Path(folder) / name
            if name != ".git" and (name == "new" or path.is_file()):
                path.write_text("again")


def state(*folders):
    found = [path for folder in folders for path in sorted(folder.rglob("*")) if ".git" not in path.parts]
    return {path: path.read_text() if path.is_file() else None for path in found}


@pytest.mark.parametrize("versioned", [False, True])
def test_nothing_that_the_run_may_have_written_is_reached(root, tmp_path, versioned):
    commit = ""
    if versioned:
        versioned_project.git(root, "init", "-q")
        versioned_project.git(root, "add", "train.py", "latest", "absolute", "far", "note")
        versioned_project.git(root, "commit", "-qm", "loop")
        commit = run_git(root, "rev-parse", "HEAD").strip()
        (root / ".gitignore").write_text("*\n")
    before = state(root, tmp_path / "scratch")
    work = tmp_path / "work"
    copy = copied(root, work, since=0, commit=commit)
    assert copy.linked == []
    assert (work / "out/result").read_text() == (work / "far/log").read_text() == "original"
    assert (work / "data/deep/tokens").read_text() == "original"
    assert (work / "absolute").readlink() == Path("out/result")
    assert not (work / "latest").exists()
    assert not (work / "pipe").exists()
    write_everywhere(work)
    assert state(root, tmp_path / "scratch") == before


def test_folders_in_which_nothing_changed_are_linked_and_named(root, tmp_path):
    copy = copied(root, tmp_path / "work", since=time.time() + 60)
    assert copy.linked == ["data", "far", "out"]
    assert (tmp_path / "work/data").resolve() == root / "data"


def test_without_a_recorded_time_only_python_environments_are_linked(root, tmp_path):
    (root / ".venv").mkdir()
    (root / ".venv/pyvenv.cfg").write_text("")
    assert copied(root, tmp_path / "work", since=None).linked == [".venv"]


def test_the_working_directory_and_the_folders_around_it_are_never_links(root, tmp_path):
    copy = copied(root, tmp_path / "work", since=time.time() + 60, folder=root / "data/deep")
    assert copy.linked == ["far", "out"]
    assert (tmp_path / "work/data/deep").resolve() == tmp_path / "work/data/deep"
    assert (tmp_path / "work/data/deep/tokens").read_text() == "original"


def test_only_the_folders_with_a_change_are_made_anew(root, tmp_path):
    began = time.time() + 60
    os.utime(root / "out/result", (began + 10, began + 10))
    (root / "data/link").symlink_to(root / "out")  # behind it something changed
    copy = copied(root, tmp_path / "work", since=began)
    assert copy.linked == ["data/deep", "far"]
    assert (tmp_path / "work/data/link").readlink() == Path("../out")
    assert not (tmp_path / "work/out").is_symlink()


def test_an_unchanged_folder_behind_a_tracked_link_is_linked(root, tmp_path):
    outside = tmp_path / "large"
    outside.mkdir()
    (outside / "tokens").write_text("original")
    (root / "large").symlink_to(outside)
    versioned_project.git(root, "init", "-q")
    versioned_project.git(root, "add", "train.py", "large")
    versioned_project.git(root, "commit", "-qm", "loop")
    commit = run_git(root, "rev-parse", "HEAD").strip()
    assert "large" in copied(root, tmp_path / "work", time.time() + 10, commit).linked


def test_a_python_environment_is_linked_though_it_has_new_bytecode(root, tmp_path):
    (root / ".venv").mkdir()
    (root / ".venv/pyvenv.cfg").write_text("")
    assert copied(root, tmp_path / "work", since=0).linked == [".venv"]


def test_paths_of_the_command(root, tmp_path):
    (tmp_path / "other").symlink_to(root)
    work = tmp_path / "work"
    assert in_copy(f"--out={tmp_path}/other/out", root, work) == f"--out={work}/out"
    assert in_copy(f"{tmp_path}/scratch/../other/out/new", root, work) == f"{work}/out/new"
    words = [f"--out={tmp_path}/scratch/out", f"{root}/out", "/dev/null", f"{tmp_path}/missing", "a/b"]
    assert outside(words, root) == [tmp_path / "scratch/out"]
