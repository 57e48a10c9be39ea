"""Nothing that a stranger wrote into a capsule runs, is loaded or names a place without consent."""

import json
import zipfile

import pytest
from edited_capsules import changed, resealed, rewritten

import treering as api
from treering.config.canonical import digest_bytes
from treering.errors import EvidenceError
from treering.project import Project
from treering.reproduce.capsule.unpack import unpack_capsule
from treering.reproduce.capsule.write import write_capsule
from treering.runlog.document import document_text
from treering.runlog.recorded_directory import RecordedRunDirectory

CONFIG = "run/resolved.json"
HEADER = "run/attempts/0001/header.json"


def with_header(packed, path, edit):
    """A capsule whose makers wrote another header, and made everything else fit."""
    document = json.loads(zipfile.ZipFile(packed.file).read(HEADER))
    document.pop("digest")
    edit(document)
    text = document_text(document)[0].encode()

    def fit(record):
        record["files"][HEADER] = {"size": len(text), "digest": digest_bytes(text)}

    return changed(packed, path, lambda entries: resealed(rewritten(HEADER, lambda _content: text)(entries), fit))


def test_no_variable_of_a_stranger_is_set(packed, elsewhere, tmp_path):
    path = with_header(
        packed, tmp_path / "run.zip", lambda header: header["environment"].update(variables={"LD_PRELOAD": "x"})
    )
    with pytest.raises(EvidenceError, match=r"attempts/0001/header.json: environment.variables: found LD_PRELOAD"):
        unpack_capsule(path, *elsewhere)
    assert not list(elsewhere[0].runs.glob("*"))


def test_no_code_of_a_stranger_runs_without_consent(packed, elsewhere, tmp_path, treering, monkeypatch):
    project, store = elsewhere
    monkeypatch.chdir(project.root)
    path = with_header(
        packed, tmp_path / "run.zip", lambda header: header["code"].update(diff="import os", commit="0" * 40)
    )
    code, _, err = treering("reproduce", path, "--corpora", store, "--dry-run")
    assert (code, "the recorded diff is code of the capsule, expected consent to run it" in err) == (2, True)
    run = packed.capsule.run[7:15]
    code, _, err = treering("reproduce", run, "--dry-run")  # unpacked already, and still a stranger's
    assert (code, "expected consent" in err) == (2, True)
    code, _, err = treering("reproduce", run, "--environment", "--dry-run")
    assert (code, "--environment would install the packages that the capsule records" in err) == (2, True)
    code, out, err = treering("reproduce", run, "--trust", "--dry-run", "--json")
    items = {each["name"].partition(" (")[0]: each["state"] for each in json.loads(out)["items"]}
    assert items["corpora"] == "same"
    assert "expected consent" not in err
    code, _, err = treering("reproduce", run, "--corpora", store)
    assert (code, "found --corpora for" in err) == (2, True)


def test_no_corpus_is_named_by_a_path(packed, elsewhere, tmp_path):
    """The names of a blend are no part of its digest, so a capsule whose names lead elsewhere fits its records."""
    victim = tmp_path / "thesis"
    victim.mkdir()
    for number, name in enumerate((str(victim), "../../../../thesis", "..")):
        content = (
            zipfile.ZipFile(packed.file)
            .read(CONFIG)
            .replace(b'"corpus": "red"', json.dumps({"corpus": name})[1:-1].encode())
        )

        def fit(record, content=content, name=name):
            record["files"][CONFIG] = {"size": len(content), "digest": digest_bytes(content)}
            for vector in record["orders"][0]["vectors"]:
                vector["corpus"] = name if vector["corpus"] == "red" else vector["corpus"]

        path = changed(
            packed, tmp_path / f"{number}.zip",
            lambda entries, content=content, fit=fit: resealed(rewritten(CONFIG, lambda _old: content)(entries), fit),
        )  # fmt: skip
        with pytest.raises(EvidenceError, match=r"resolved.json: not a resolved config \(blend.components.\d.corpus: "):
            unpack_capsule(path, *elsewhere)
        assert not list(elsewhere[0].runs.glob("*"))


def test_no_code_of_a_stranger_runs_in_search_of_causes(packed, elsewhere, tmp_path, treering, monkeypatch):
    project, store = elsewhere
    monkeypatch.chdir(project.root)
    path = with_header(
        packed, tmp_path / "run.zip", lambda header: header["code"].update(diff="import os", commit="0" * 40)
    )
    run = unpack_capsule(path, project, store).run.id
    code, _, err = treering("diff-runs", run, run, "--causes")
    assert (code, "the recorded diff is code of the capsule, expected consent to run it" in err) == (2, True)
    assert "consent" not in treering("diff-runs", run, run, "--causes", "--trust")[2]


def test_no_library_of_a_stranger_is_loaded_without_consent(packed, elsewhere, tmp_path, treering, monkeypatch):
    project, store = elsewhere
    monkeypatch.chdir(project.root)
    tool = {"OMP_TOOL_LIBRARIES": "runs/4950705605aaecc6/evaluations/step-00000001.json"}
    path = with_header(packed, tmp_path / "run.zip", lambda header: header["environment"].update(variables=tool))
    code, _, err = treering("reproduce", path, "--corpora", store, "--dry-run")
    assert (code, "variable OMP_TOOL_LIBRARIES names a place" in err) == (2, True)


def test_no_command_of_a_stranger_runs_without_consent(elsewhere, tmp_path, treering, monkeypatch):
    project, _ = elsewhere
    monkeypatch.chdir(tmp_path)
    with api.start("plain") as run:
        run.step(loss=1.0)
    write_capsule(RecordedRunDirectory(run.path), tmp_path / "plain.zip", Project(tmp_path))
    monkeypatch.chdir(project.root)
    code, _, err = treering("reproduce", tmp_path / "plain.zip")
    assert (code, "its recorded command is code of the capsule, expected consent to run it" in err) == (2, True)
