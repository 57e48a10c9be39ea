"""A capsule made in one folder is reproduced in an empty one that has only the corpora's files under other names."""

import json
import shutil

import pytest

from treering.project import Project
from treering.runlog.directory import RunDirectory

pytestmark = [pytest.mark.trainer, pytest.mark.slow]


def test_a_capsule_is_reproduced_in_an_empty_folder(project, reference, tmp_path, monkeypatch, treering):
    shutil.copytree(reference.path, tmp_path / "here/runs" / reference.id)
    shutil.copytree(project.corpora, tmp_path / "here/data/corpora")
    (tmp_path / "store").mkdir()
    for number, path in enumerate(sorted(project.corpora.rglob("*"))):
        if path.is_file() and path.name != "manifest.json":
            shutil.copy(path, tmp_path / "store" / f"{number}.dat")
    monkeypatch.chdir(tmp_path / "here")
    code, _, err = treering("capsule", reference.id, "../run.zip")
    assert code == 0, err
    shutil.rmtree(tmp_path / "here")
    (tmp_path / "again").mkdir()
    monkeypatch.chdir(tmp_path / "again")
    code, out, err = treering("reproduce", "../run.zip", "--corpora", "../store", "--json")
    assert code == 0, out + err
    record = json.loads(out)
    assert record["sentence"].startswith("Identical to the last bit over 15 steps")
    again = Project(tmp_path / "again")
    run = RunDirectory(again.run(reference.id))
    assert run.mirror_doubt.startswith("mirror of capsule run.zip (sha256:")
    assert "mirror of capsule run.zip" in treering("runs")[1]
    code, out, _ = treering("audit", reference.id, "--verify", "--json")
    assert (code, json.loads(out)["level"]) == (0, "content-bound"), out
    assert treering("verify")[0] == 0
