"""Capsules: the same bytes for the same run, unpacked elsewhere by content, and refused where they are not whole."""

import io
import json
import os
import shutil
import zipfile
from pathlib import Path

import pytest
from edited_capsules import changed, resealed, rewritten
from rocrate.rocrate import ROCrate

import treering as api
from treering.config.canonical import digest_bytes, digest_file
from treering.errors import EvidenceError, UserError
from treering.reproduce.capsule.contents import METADATA, RECORD
from treering.reproduce.capsule.read import open_capsule
from treering.reproduce.capsule.unpack import unpack_capsule
from treering.reproduce.capsule.write import write_capsule
from treering.runlog.directory import RunDirectory
from treering.runlog.lock import acquire
from treering.runlog.recorded_directory import RecordedRunDirectory


def test_the_same_run_gives_the_same_bytes(template, packed, tmp_path):
    run = RunDirectory(next(template.runs.iterdir()))
    again = write_capsule(run, tmp_path / "other-name.zip", template)
    assert again.digest == packed.digest == digest_file(packed.file)
    names = zipfile.ZipFile(packed.file).namelist()
    files = packed.capsule.files
    assert sorted(names) == sorted({*files, RECORD, METADATA})
    assert {"README.md", "experiment.yaml", "run/resolved.json", "run/attempts/0002/rings.jsonl"} <= set(names)
    assert "corpora/train/red.json" in names
    assert not any(name.endswith((".bin", ".parquet")) for name in names)
    assert packed.size < 200_000
    for name, each in files.items():
        assert zipfile.ZipFile(packed.file).getinfo(name).file_size == each.size


def test_the_metadata_is_an_ro_crate_of_every_file(packed, tmp_path):
    with zipfile.ZipFile(packed.file) as archive:
        archive.extractall(tmp_path / "crate")
    crate = ROCrate(tmp_path / "crate")
    assert crate.name == f"Run {packed.capsule.run[7:23]} of experiment tiny"
    files = {each.id: each for each in crate.data_entities}
    assert set(files) == {*packed.capsule.files, RECORD}
    for name, each in packed.capsule.files.items():
        assert (files[name]["sha256"], files[name]["contentSize"]) == (each.digest[7:], str(each.size)), name
        assert digest_file(tmp_path / "crate" / name) == each.digest
        assert files[name]["encodingFormat"] != "application/octet-stream", name
    assert (crate.version, crate.root_dataset.id, crate.root_dataset.type) == ("1.3", "./", "Dataset")
    assert crate.mainEntity.id == RECORD
    assert int(crate.mainEntity["contentSize"]) == (tmp_path / "crate" / RECORD).stat().st_size
    assert crate.root_dataset["identifier"]["value"] == packed.capsule.run
    assert crate.root_dataset["license"]["name"] == "Licence of the records"
    assert crate.root_dataset["datePublished"].endswith("Z")
    assert {each.id for each in crate.root_dataset["hasPart"]} == set(files)
    action = crate.root_dataset["mentions"]
    assert [each["identifier"] for each in action["object"]] == [each.digest for each in packed.capsule.corpora]
    assert (action["instrument"]["name"], action["result"].id) == ("Treering", "./")
    licences = {
        each["name"]: each["license"]["name"] for each in crate.get_by_type("Dataset") if each.id.startswith("#corpus")
    }
    assert licences == {"red": "CC0-1.0", "green": "MIT", "blue": "Apache-2.0"}


def test_an_empty_project_gets_the_run_and_the_corpora_by_content(template, packed, elsewhere):
    project, store = elsewhere
    unpacked = unpack_capsule(packed.file, project, store)
    run = unpacked.run
    assert run.path == project.run(packed.capsule.run[7:23])
    original = RunDirectory(template.run(run.id))
    assert list(run.path_rings()) == list(original.path_rings())
    assert unpacked.compared_samples == sum(1 for _ in packed.capsule.orders[0].vectors) == 6
    for name in ("red", "green", "blue"):
        assert digest_file(project.corpus(name) / "corpus.bin") == digest_file(template.corpus(name) / "corpus.bin")
    assert digest_file(project.tokenizer) == digest_file(template.tokenizer)
    assert f"mirror of capsule run.zip ({packed.digest})" in run.mirror_doubt
    assert run.state() == packed.capsule.state
    with pytest.raises(UserError, match="is a mirror of a run"):
        run.journal.append(None)
    again = shutil.copy(packed.file, store / "run(1).zip")
    assert unpack_capsule(again, project).run.path == run.path  # nothing to do, under any name of the file


def test_missing_corpora_are_named_with_all_that_helps_to_find_them(packed, elsewhere):
    project, store = elsewhere
    green = next(each for each in packed.capsule.corpora if each.name == "green")
    tokens = green.files["corpus.bin"].digest
    next(path for path in store.rglob("*") if path.is_file() and digest_file(path) == tokens).unlink()
    wanted = (
        rf"corpus green \(train\): {green.digest}, .* tokens, licence MIT, source jsonl; missing corpus.bin {tokens}"
    )
    with pytest.raises(EvidenceError, match=wanted):
        unpack_capsule(packed.file, project, store)
    with pytest.raises(EvidenceError, match=r"`--corpora FOLDER` finds them by content:\n  corpus red"):
        unpack_capsule(packed.file, project)
    assert list(project.root.iterdir()) == []


def test_what_is_here_already_stays(template, packed, elsewhere):
    project, store = elsewhere
    run = project.run(packed.capsule.run[7:23])
    shutil.copytree(template.run(run.name), run)
    with pytest.raises(UserError, match="is here already and not from this capsule"):
        unpack_capsule(packed.file, project, store)
    shutil.rmtree(run)
    shutil.copytree(template.corpus("red"), project.corpus("green"))
    with pytest.raises(UserError, match=r"green: found corpus sha256:\w+, expected sha256:\w+ by the capsule"):
        unpack_capsule(packed.file, project, store)


def test_a_recorded_run_has_a_capsule_too(template, elsewhere, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with api.start("plain", config={"lr": 0.1, "api_key": "hunter22"}, data=api.BlendDataset(template.root)) as run:
        for _ in range(3):
            run.step(loss=1.0, tokens=[[1, 2, 3]])
    recorded = RecordedRunDirectory(run.path)
    written = write_capsule(recorded, tmp_path / "recorded.zip", template)
    assert b"hunter22" not in b"".join(zipfile.ZipFile(written.file).read(each) for each in written.capsule.files)
    project, store = elsewhere
    found = unpack_capsule(written.file, project, store).run
    assert isinstance(found, RecordedRunDirectory)
    assert [ring.digest for ring in found.attempts()[0].rings()] == [r.digest for r in recorded.attempts()[0].rings()]


def test_a_running_run_has_none(template, tmp_path):
    run = RunDirectory(next(template.runs.iterdir()))
    descriptor = acquire(run.lock)
    with pytest.raises(UserError, match="the run is running"):
        write_capsule(run, tmp_path / "run.zip", template)
    os.close(descriptor)
    run.lock.unlink()
    assert list(tmp_path.glob("*.zip*")) == []


def renamed(old, new):
    def change(entries):
        for info, content in entries:
            yield zipfile.ZipInfo(new) if info.filename == old else info, content

    return change


def added(info, content=b"x"):
    return lambda entries: [*entries, (info, content)]


def link(name):
    info = zipfile.ZipInfo(name)
    info.external_attr = 0o120777 << 16
    return info


RINGS = "run/attempts/0001/rings.jsonl"
HOSTILE = {
    "a path upwards": (added(zipfile.ZipInfo("../../evil")), r"\.\./\.\./evil: found a name that leads elsewhere"),
    "an absolute path": (added(zipfile.ZipInfo("/etc/evil")), "/etc/evil: found a name that leads elsewhere"),
    "a path of Windows": (added(zipfile.ZipInfo("C:evil")), "C:evil: found a name that leads elsewhere"),
    "a link": (added(link("run/link"), b"/etc/passwd"), "run/link: found a link or a folder"),
    "a folder": (added(zipfile.ZipInfo("run/folder/")), "a name that leads elsewhere, expected a path inside"),
    "a file too many": (
        added(zipfile.ZipInfo("run/evil.py")),
        r"run/evil.py: found a file, expected none by capsule.json",
    ),
    "a file in two cases": (added(zipfile.ZipInfo("readme.MD")), "readme.MD: found the name twice"),
    "a file too few": (renamed(RINGS, "run/other.jsonl"), "rings.jsonl: found no file, expected one by capsule.json"),
    "another ring": (rewritten(RINGS, lambda text: text.replace(b"1", b"2", 1)), "rings.jsonl: found digest sha256:"),
    "a longer file": (rewritten(RINGS, lambda text: text + b"{}"), r"rings.jsonl: found [\d,]+ bytes, expected"),
    "another record": (rewritten(RECORD, lambda text: text.replace(b'"tiny"', b'"tony"', 1)), "was changed"),
    "no record": (renamed(RECORD, "other.json"), "capsule.json: found no such file"),
    "a bomb": (added(zipfile.ZipInfo("run/zeros.json"), bytes(80 << 20)), r"found [\d,]+ bytes in a file of"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_capsules_are_refused(case, packed, elsewhere):
    project, store = elsewhere
    change, said = HOSTILE[case]
    if case == "a bomb":
        path = store.parent / "hostile.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("capsule.json", "{}")
            archive.writestr("run/zeros.json", bytes(80 << 20))
    else:
        path = changed(packed, store.parent / "hostile.zip", change)
    with pytest.raises(EvidenceError, match=said) as refused:
        unpack_capsule(path, project, store)
    assert "get the capsule again" in str(refused.value) or case == "another record"
    assert not (store.parent / "evil").exists()
    assert [path.name for path in project.root.rglob("*") if path.is_file()] == []


def test_a_record_that_lies_consistently_is_refused(packed, elsewhere, tmp_path):
    project, store = elsewhere
    path = changed(packed, tmp_path / "1.zip", lambda es: resealed(es, lambda d: d.update(run="sha256:" + "0" * 64)))
    with pytest.raises(EvidenceError, match=r"holds the records of run sha256:\w+, expected sha256:0000"):
        unpack_capsule(path, project, store)
    assert not list(project.runs.glob("*"))

    def another_order(document):
        document["orders"][0]["vectors"][0]["index"] += 1

    path = changed(packed, tmp_path / "2.zip", lambda es: resealed(es, another_order))
    with pytest.raises(EvidenceError, match=r"orders the samples of blend sha256:\w+ otherwise than"):
        unpack_capsule(path, project, store)

    def other_tokens(document):
        document["orders"][0]["vectors"][0]["tokens"] = "sha256:" + "0" * 64

    path = changed(packed, tmp_path / "3.zip", lambda es: resealed(es, other_tokens))
    with pytest.raises(EvidenceError, match="has other tokens here than in the capsule's golden vectors"):
        unpack_capsule(path, project, store)
    assert [path for path in project.root.rglob("*") if path.is_file() or path.is_symlink()] == []
    path = changed(packed, tmp_path / "4.zip", lambda es: resealed([*es, (zipfile.ZipInfo("run"), b"")], a_file))
    with pytest.raises(EvidenceError, match="run: found a file that is no record of a run"):
        unpack_capsule(path, project, store)


def a_file(document):
    document["files"]["run"] = {"size": 0, "digest": digest_bytes(b"")}


def named(field, value):
    return lambda document: document["corpora"][0].update({field: value})


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (named("name", "../../evil"), "corpora.0.name: String should match pattern"),
        (named("files", {"../../evil": {"size": 1, "digest": "sha256:" + "0" * 64}}), "corpora.0.files"),
        (named("manifest", "../../etc/passwd"), "manifest ../../etc/passwd, expected one of its files"),
        (lambda document: document.update(run="../evil"), "capsule.json: run: "),
    ],
    ids=["name", "files", "manifest", "run"],
)
def test_no_name_in_the_record_leads_elsewhere(edit, said, packed, elsewhere, tmp_path):
    path = changed(packed, tmp_path / "hostile.zip", lambda entries: resealed(entries, edit))
    with pytest.raises(EvidenceError, match=said):
        unpack_capsule(path, *elsewhere)
    assert list(elsewhere[0].root.iterdir()) == []


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_truncated_capsules_are_refused(share, packed, elsewhere, tmp_path):
    content = packed.file.read_bytes()
    (tmp_path / "cut.zip").write_bytes(content[: int(len(content) * share)])
    with pytest.raises(EvidenceError, match=r"cut.zip: found .*, expected a whole zip file"):
        unpack_capsule(tmp_path / "cut.zip", *elsewhere)


def test_every_damaged_byte_is_refused_or_harmless(packed, tmp_path):
    """Whatever byte is changed: the records come out as they were, or not at all."""
    content = packed.file.read_bytes()
    with zipfile.ZipFile(packed.file) as archive:
        expected = {name: archive.read(name) for name in packed.capsule.files}
    refused = 0
    for place in range(0, len(content), max(len(content) // 150, 1)):
        path = tmp_path / "damaged.zip"
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x5A]) + content[place + 1 :])
        try:
            with open_capsule(path) as capsule:
                for name, text in expected.items():
                    target = io.BytesIO()
                    capsule.copy(name, target)
                    assert target.getvalue() == text, (place, name)
        except EvidenceError:
            refused += 1
    assert refused > 100


def test_the_command_lists_what_was_packed(template, packed, treering, monkeypatch, tmp_path):
    monkeypatch.chdir(template.root)
    run = packed.capsule.run[7:15]
    code, out, err = treering("capsule", run, tmp_path / "out.zip", "--json")
    assert code == 0, err
    answer = json.loads(out)
    assert answer["digest"] == packed.digest
    assert answer["files"]["README.md"]["size"] == packed.capsule.files["README.md"].size
    code, out, _ = treering("capsule", run, tmp_path / "out.zip")
    assert (code, "left out    weights of checkpoints, texts and tokens" in out) == (0, True)
    assert "needs       corpus red (train) sha256:" in out
    assert treering("capsule", run, tmp_path / "no/folder.zip")[0] == 2
    assert Path(tmp_path / "out.zip").read_bytes() == packed.file.read_bytes()
