"""`treering mirror` on a store that `treering ship` filled: what reads works in the mirror as beside the run."""

import json
from pathlib import Path

import pytest
from recorded_project import unpack


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return unpack("journals", tmp_path_factory.mktemp("source"))


@pytest.fixture
def mirror(source, tmp_path, treering, monkeypatch):
    """The working directory: a mirror of the project, whose runs were copied to the store of the environment."""
    monkeypatch.setenv("TREERING_STORE_URL", str(tmp_path / "store"))
    monkeypatch.setenv("TREERING_PROJECT", "letters")
    monkeypatch.chdir(source)
    code, out, err = treering("ship")
    assert code == 0, err
    assert f"copies ({tmp_path}/store/letters)" in out
    (tmp_path / "mirror").mkdir()
    monkeypatch.chdir(tmp_path / "mirror")
    code, out, err = treering("mirror")
    assert code == 0, err
    assert out.startswith("d918de10dde91fcd finished: 21 files, ")
    return tmp_path / "mirror"


def answers(treering):
    shown = json.loads(treering("show", "d918", "--json")[1])
    audit = json.loads(treering("audit", "d918", "--json")[1])
    return shown, audit


@pytest.mark.usefixtures("mirror")
def test_a_mirror_answers_as_the_project_does(source, treering, monkeypatch):
    shown, audit = answers(treering)
    monkeypatch.chdir(source)
    own, own_audit = answers(treering)
    assert shown["run"].pop("mirror").startswith("mirror of ")
    assert own["run"].pop("mirror") == ""
    for page in (shown, own):
        del page["path_to_run"], page["run"]["age_s"], page["run"]["checkpoint_age_s"]
        for part in (*page["checkpoints"], *page["attempts"]):
            part.pop("path", None)
    assert shown == own
    for found in (audit, own_audit):  # corpora are not in a store: what is known by them is asked beside the project
        assert found["verdict"] == "recorded: 12 of 12 steps"
        for segment in found["path"]:
            del segment["path"]
    same = ("path", "digests", "consumed_tokens", "applied_steps", "level", "steps_recorded", "findings", "joins")
    assert {name: audit[name] for name in same} == {name: own_audit[name] for name in same}


@pytest.mark.usefixtures("mirror")
def test_weights_that_stay_there_are_a_doubt_and_no_damage(source, treering):
    code, out, err = treering("verify")
    assert code == 0, err
    assert "checkpoints/step-00000012: weights are not in a mirror, so they were not checked" in out
    corpora = Path("data/corpora")
    corpora.parent.mkdir()
    corpora.symlink_to(source / "data/corpora")
    code, out, err = treering("audit", "d918", "--verify", "--json")
    audit = json.loads(out)
    assert (code, audit["level"], audit["findings"]) == (0, "content-bound", []), err
    assert any(each.startswith("That nothing is missing here, and that the weights") for each in audit["not_proven"])
    assert treering("keygen", "signer.pem")[0] == 0
    code, _, err = treering("attest", "d918", "--key", "signer.pem")
    assert code == 2
    assert "is a mirror of a run" in err


@pytest.mark.usefixtures("mirror")
def test_a_mirror_is_named_in_lists_and_refuses_notes(treering):
    assert "d918de10dde91fcd: mirror of" in treering("runs")[1]
    assert "project letters: last copied" in treering("show", "d918")[1]
    code, _, err = treering("note", "d918", "here")
    assert code == 2
    assert "is a mirror of a run, which nothing but `treering mirror` writes to" in err
    assert treering("mirror")[1] == "d918de10dde91fcd finished: nothing new\n"


def test_what_the_store_lost_is_named(mirror, treering, tmp_path):
    (rings,) = (tmp_path / "store/letters/d918de10dde91fcd/files/attempts/0002/rings.jsonl").iterdir()
    size = rings.stat().st_size
    rings.unlink()
    (mirror / "runs/d918de10dde91fcd/attempts/0002/rings.jsonl").unlink()
    code, out, err = treering("mirror")
    assert code == 3
    assert f"attempts/0002/rings.jsonl: bytes 0 to {size:,} are missing in the store" in out
    assert "1 part of files missing or damaged in the store (d918de10dde91fcd/attempts/0002/rings.jsonl)" in err
    assert "attempts/0002/rings.jsonl from byte 0 on is missing in the store" in treering("runs")[1]
    code, out, _ = treering("mirror", "--json")
    assert code == 3
    assert json.loads(out)[0]["missing"][0]["problem"] == "missing"


def test_no_store_and_an_unknown_project_are_named(tmp_path, treering, monkeypatch):
    monkeypatch.delenv("TREERING_STORE_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    code, _, err = treering("mirror")
    assert code == 2
    assert "found no store, expected URL or TREERING_STORE_URL" in err
    code, _, err = treering("mirror", str(tmp_path / "nothing"))
    assert code == 2
    assert "holds these projects: none" in err
