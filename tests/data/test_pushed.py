"""Curated documents and corpora in a folder and on a real S3 server: pushed, killed, pulled, damaged, read there."""

import json
import os
import shutil
import signal
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from audited_project import lay_project

from treering.audit.checkpoint import audit_checkpoint
from treering.audit.documents.batch import step_batch
from treering.audit.report import Level
from treering.data.corpus.corpus import Corpus
from treering.data.stored import DATA_VARIABLE
from treering.data.stored import push as pushing
from treering.data.stored.pull import corpus_in_store, pull
from treering.data.stored.push import push
from treering.errors import EvidenceError, NotFoundError, StoreError, UserError
from treering.objects import ObjectStore
from treering.project import Project
from treering.reproduce.capsule.unpack import unpack_capsule
from treering.reproduce.capsule.write import write_capsule
from treering.runlog.directory import RunDirectory
from treering.runlog.find import find_runs

NAMES = ("train/blue", "train/green", "train/red")
PART = 5 << 20


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A project with corpora, a run, and curated documents."""
    root = tmp_path_factory.mktemp("pushed") / "project"
    root.mkdir()
    lay_project(root)
    project = Project(root)
    RunDirectory(next(project.runs.iterdir())).resolved.blend.write(project.blend)
    (project.curated / "train").mkdir(parents=True)
    (project.curated / "train/red.jsonl").write_text('{"text": "ring"}\n')
    (project.curated / "summary.json").write_text("{}")
    return project


@pytest.fixture
def project(template, tmp_path, monkeypatch):
    """A copy to work on; `TREERING_PROJECT` names it."""
    monkeypatch.setenv("TREERING_PROJECT", "tree")
    return Project(shutil.copytree(template.root, tmp_path / "project"))


@pytest.fixture
def here(tmp_path):
    """Another machine's folder."""
    (tmp_path / "here").mkdir()
    return Project(tmp_path / "here")


@pytest.fixture
def folder_url(tmp_path):
    return str(tmp_path / "store")


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.slow)])
def url(request, tmp_path):
    place = str(tmp_path / "store") if request.param == "folder" else request.getfixturevalue("s3_url")
    return str(place)


def data(project, *, curated=True):
    folders = [project.corpora, *([project.curated] if curated else [])]
    files = {path for folder in folders for path in folder.rglob("*") if path.is_file()} | {project.blend}
    return {path.relative_to(project.root).as_posix(): path.read_bytes() for path in files}


def moved(done):
    return {each.what: each.moved for each in done}


def test_what_is_pushed_is_pulled(project, here, url):
    store = ObjectStore(url)
    first = push(project, store)
    assert [each.what for each in first[:2]] == ["corpus blue (train)", "corpus green (train)"]
    assert all(each.moved == each.num_bytes for each in first)
    assert set(moved(push(project, store)).values()) == {0}
    brought = pull(here, store, curated=True)
    assert [each.what for each in brought[:3]] == [f"corpus {name}" for name in NAMES]
    assert data(here) == data(project)
    assert [Corpus.open(here.corpora / name).verify() for name in NAMES] == [[], [], []]
    assert set(moved(pull(here, store, curated=True)).values()) == {0}


def test_the_commands(project, here, folder_url, treering, monkeypatch):
    monkeypatch.chdir(project.root)
    code, out, _ = treering("push", folder_url, "--json")
    assert (code, [each["what"] for each in json.loads(out)][-2:]) == (0, ["tokenizer", "curated documents"])
    monkeypatch.chdir(here.root)
    monkeypatch.setenv(DATA_VARIABLE, folder_url)
    code, out, _ = treering("pull")
    assert (code, out.splitlines()[1].split()[:2]) == (0, ["corpus", "train/blue"])
    assert data(here, curated=False) == data(project, curated=False)
    assert not here.curated.exists()
    monkeypatch.delenv(DATA_VARIABLE)
    code, _, err = treering("pull")
    assert code == 2
    assert "found no store, expected URL or TREERING_DATA_URL: treering pull s3://BUCKET/PREFIX" in err


def test_a_capsule_finds_the_corpora_that_were_pulled(project, here, folder_url, tmp_path):
    written = write_capsule(find_runs(project.runs)[0], tmp_path / "run.zip", project)
    push(project, ObjectStore(folder_url))
    with pytest.raises(EvidenceError, match=r"run\.zip: corpora are missing"):
        unpack_capsule(written.file, here)
    pull(here, ObjectStore(folder_url))
    unpacked = unpack_capsule(written.file, here)
    assert unpacked.run.id == find_runs(project.runs)[0].id
    assert step_batch(unpacked.run, 7, here).content_bound


def test_corpora_of_an_older_blend_stay(project, here, folder_url):
    store = ObjectStore(folder_url)
    old = {each.what: each.digest for each in push(project, store)}
    shutil.rmtree(project.corpora / "train/red")
    shutil.copytree(project.corpora / "train/green", project.corpora / "train/red")
    push(project, store)
    pull(here, store)
    assert Corpus.open(here.corpora / "train/red").digest == old["corpus green (train)"]
    assert store.size(f"corpora/{old['corpus red (train)'].removeprefix('sha256:')}/corpus.bin") is not None


def test_a_changed_file_is_not_pushed(project, folder_url):
    store, path = ObjectStore(folder_url), project.corpora / "train/red/corpus.bin"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"\7")
    with pytest.raises(
        EvidenceError, match=r"train/red/corpus\.bin: chunk 0 has digest .*, expected sha256:.* by the ma"
    ):
        push(project, store)
    assert store.get("projects/tree.json") is None
    path.write_bytes(content)
    done = moved(push(project, store))
    assert (done["corpus blue (train)"], done["corpus red (train)"] > 0) == (0, True)


def damaged(store, name):
    content = store.get(name)
    store.put(name, content[:-1] + bytes([content[-1] ^ 1]))


def test_what_the_store_damaged_is_named_and_not_placed(project, here, folder_url):
    store = ObjectStore(folder_url)
    done = push(project, store)
    digests = {each.what: each.digest.removeprefix("sha256:") for each in done}
    [red] = [each for each in done if each.what == "corpus red (train)"]
    base = f"corpora/{digests['corpus red (train)']}"
    damaged(store, f"{base}/corpus.bin")
    with pytest.raises(
        EvidenceError, match=rf"{base}/corpus\.bin: found chunk 0 with digest .*; remove .*{base}, and `tr"
    ):
        pull(here, store)
    assert (here.corpora / "train/blue").is_dir()
    assert not (here.corpora / "train/red").exists()
    store.remove([f"{base}/{name}" for name in ("manifest.json", "corpus.bin")])
    push(project, store)
    assert moved(pull(here, store))["corpus train/red"] == red.num_bytes
    damaged(store, f"curated/{digests['curated documents']}/train/red.jsonl")
    with pytest.raises(EvidenceError, match=r"train/red\.jsonl: found digest sha256:.*, expected sha256:"):
        pull(here, store, curated=True)
    damaged(store, f"curated/{digests['curated documents']}/files.json")
    with pytest.raises(EvidenceError, match=r"files\.json: found no list"):
        pull(here, store, curated=True)
    store.remove([f"{base}/manifest.json"])
    shutil.rmtree(here.corpora / "train/red")
    with pytest.raises(EvidenceError, match=rf"{base}/manifest\.json: found no such object"):
        pull(here, store)


@pytest.mark.parametrize("place", ["../red", "train/../../red", "/etc/red", "train"])
def test_a_record_cannot_lead_elsewhere(project, here, tmp_path, place):
    store = ObjectStore(str(tmp_path / "store"))
    push(project, store)
    record = json.loads(store.get("projects/tree.json"))
    record["corpora"] = {place: record["corpora"]["train/red"]}
    store.put("projects/tree.json", json.dumps(record).encode())
    with pytest.raises(
        EvidenceError, match=r"projects/tree\.json cannot be read \(found '.*', expected places of corp"
    ):
        pull(here, store)
    files = {"../red": {"size": 1, "sha256": "x"}}
    digest = sha256(json.dumps(files, separators=(",", ":"), sort_keys=True).encode()).hexdigest()
    store.put(f"curated/{digest}/files.json", json.dumps(files).encode())
    store.put("projects/tree.json", json.dumps(record | {"corpora": {}, "curated": f"sha256:{digest}"}).encode())
    with pytest.raises(EvidenceError, match=r"files\.json: found a list with digest"):
        pull(here, store, curated=True)


def test_other_data_is_not_replaced(project, here, tmp_path):
    store = ObjectStore(str(tmp_path / "store"))
    with pytest.raises(
        NotFoundError, match=r"has no data of project tree, expected projects/tree\.json; run `treering pu"
    ):
        pull(here, store)
    push(project, store)
    shutil.copytree(project.corpora / "train/green", here.corpora / "train/red")
    with pytest.raises(
        UserError, match=r"train/red: found corpus sha256:.*, expected sha256:.*; move it away, or pull"
    ):
        pull(here, store)
    shutil.rmtree(here.corpora / "train/red")
    here.tokenizer.write_text("{}")
    with pytest.raises(
        UserError, match=r"tokenizer\.json: found another file, expected that of the store; move it away"
    ):
        pull(here, store)
    here.tokenizer.unlink()
    here.curated.mkdir(parents=True)
    with pytest.raises(
        UserError, match=r"data/curated: found other documents, expected sha256:.*; move the folder away"
    ):
        pull(here, store, curated=True)
    shutil.rmtree(here.corpora)
    with pytest.raises(NotFoundError, match="holds no corpus, expected the corpora of stage `tokenize`"):
        push(here, store)


PUSH = """
import os, signal, sys
from pathlib import Path
from treering.data.stored import push as pushing
from treering.objects import ObjectStore
from treering.project import Project
from treering.reproduce.capsule.unpack import unpack_capsule
from treering.reproduce.capsule.write import write_capsule

pushing.PART_BYTES = int(sys.argv[3])
done = 0

def advance(what, read, size):
    global done
    done += what == "curated documents"
    if done == 8:  # of ten parts; four are sent at a time
        os.kill(os.getpid(), signal.SIGKILL)

pushing.push(Project(Path(sys.argv[1])), ObjectStore(sys.argv[2]), advance)
"""


@pytest.mark.slow
def test_a_killed_push_sends_only_what_is_missing(project, here, s3_url, monkeypatch):
    monkeypatch.setattr(pushing, "PART_BYTES", PART)
    (project.curated / "train/large.jsonl").write_bytes(np.random.default_rng(1).bytes(8 * PART + 5))
    command = [sys.executable, "-c", PUSH, str(project.root), s3_url, str(PART)]
    assert subprocess.run(command, env=dict(os.environ), check=False).returncode == -signal.SIGKILL
    store = ObjectStore(s3_url)
    assert store.get("projects/tree.json") is None
    sent = store._files.call_s3("list_multipart_uploads", Bucket="bucket", Prefix=f"{Path(s3_url).name}/curated")
    place = {name: sent["Uploads"][0][name] for name in ("Key", "UploadId")}
    there = store._files.call_s3("list_parts", Bucket="bucket", **place).get("Parts") or []
    assert len(there) >= 1
    done = moved(push(project, store))
    assert done["corpus red (train)"] == done["corpus blue (train)"] == 0
    assert done["curated documents"] <= 8 * PART + 100 - sum(each["Size"] for each in there)
    pull(here, store, curated=True)
    assert data(here) == data(project)


def test_an_interrupted_pull_brings_only_what_is_missing(project, here, tmp_path, monkeypatch):
    store = ObjectStore(str(tmp_path / "store"))
    push(project, store)
    read, asked = ObjectStore.read, []

    def failing(self, name, start, end):
        asked.append(name)
        if name.endswith("documents.parquet"):
            raise StoreError("the end")
        return read(self, name, start, end)

    monkeypatch.setattr(ObjectStore, "read", failing)
    with pytest.raises(StoreError, match="the end"):
        pull(here, store)
    assert [name.rpartition("/")[2] for name in asked] == ["corpus.bin", "corpus.idx", "documents.parquet"]
    assert not here.corpora.exists()
    monkeypatch.setattr(ObjectStore, "read", read)
    brought = moved(pull(here, store))
    assert brought["corpus train/blue"] == (project.corpora / "train/blue/documents.parquet").stat().st_size
    assert data(here, curated=False) == data(project, curated=False)


@pytest.fixture
def remote(project, here, url, monkeypatch):
    """The run in another folder, and its corpora in the store alone."""
    push(project, ObjectStore(url))
    shutil.copytree(project.runs, here.runs)
    monkeypatch.setenv(DATA_VARIABLE, url)
    return here


def test_the_audit_reads_corpora_that_are_only_in_the_store(project, remote, monkeypatch):
    (run,) = find_runs(remote.runs)
    for step in (1, 7):
        assert (
            step_batch(run, step, remote).to_json() == step_batch(find_runs(project.runs)[0], step, project).to_json()
        )
    checkpoint = run.checkpoints()[-1]
    report = audit_checkpoint(checkpoint, remote, verify=True)
    assert (report.level, report.findings) == (Level.CONTENT_BOUND, ())
    assert not remote.corpora.exists()
    assert {path.name for path in (remote.root / ".treering/pull/corpora").rglob("*.*")} == {
        *("manifest.json", "corpus.idx", "documents.parquet")
    }
    monkeypatch.delenv(DATA_VARIABLE)
    assert audit_checkpoint(checkpoint, remote, verify=True).level == Level.RECORDED


def test_tokens_by_ranges_are_those_of_the_file(project, remote):
    for name in NAMES:
        local = Corpus.open(project.corpora / name)
        corpus = corpus_in_store(remote, local.digest)
        assert (corpus.digest, corpus.verify()) == (local.digest, [])
        for start, stop in ((0, 1), (3, 40), (local.num_tokens - 5, local.num_tokens), (7, 7)):
            assert corpus.tokens(start, stop).tolist() == local.tokens(start, stop).tolist()
        for number in (0, local.num_documents - 1):
            assert corpus.document_tokens(number).tolist() == local.document_tokens(number).tolist()
            assert corpus.document(number) == local.document(number)
        with pytest.raises(IndexError, match="tokens 0 to"):
            corpus.tokens(0, local.num_tokens + 1)


@pytest.mark.parametrize("url", ["folder"], indirect=True)
def test_a_damaged_document_in_the_store_is_named(project, remote, url):
    local = Corpus.open(project.corpora / "train/red")
    damaged(ObjectStore(url), f"corpora/{local.digest.removeprefix('sha256:')}/corpus.bin")
    [damage] = corpus_in_store(remote, local.digest).verify()
    assert (damage.file, damage.documents) == ("corpus.bin", (local.num_documents - 1,))
    assert damage.ids == (local.document(local.num_documents - 1)["id"],)


@pytest.mark.parametrize("url", ["folder"], indirect=True)
def test_a_store_that_cannot_be_read_is_named_beside_the_missing_corpus(remote, tmp_path, monkeypatch):
    (run,) = find_runs(remote.runs)
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path / "empty"))
    texts = " ".join(gap.text for gap in step_batch(run, 1, remote).gaps)
    assert f"{tmp_path}/empty of TREERING_DATA_URL does not have it either" in texts
    monkeypatch.setenv(DATA_VARIABLE, "s3://")
    texts = " ".join(gap.text for gap in step_batch(run, 1, remote).gaps)
    assert "TREERING_DATA_URL: s3://: names no bucket, expected s3://BUCKET/PREFIX" in texts
