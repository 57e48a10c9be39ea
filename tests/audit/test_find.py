"""`treering find`: what a digest names, with real DVC and git where a corpus is gone."""

import json
import shutil

import pytest
from versioned_project import run

from treering.audit.dvc.find import find_digest
from treering.audit.dvc.stores import find_stores, tracked
from treering.data.corpus.corpus import Corpus
from treering.errors import NotFoundError, UserError
from treering.reproduce.places import data_items, project_view
from treering.runlog.find import find_runs

pytestmark = pytest.mark.slow


def test_a_corpus_in_its_place(built):
    corpus = built.corpora["red"]
    [found] = find_digest(built.project, corpus.digest)
    assert (found.what, found.digest, found.path, found.command) == (
        "corpus red (train)",
        corpus.digest,
        str(corpus.directory),
        None,
    )
    assert find_digest(built.project, corpus.digest.removeprefix("sha256:")[:10]) == [found]


def test_a_file_of_a_corpus_by_either_digest(built):
    entry = built.corpora["green"].manifest["files"]["corpus.bin"]
    for digest in (entry["sha256"], entry["dvc_md5"], f"md5:{entry['dvc_md5'][:12]}"):
        [found] = find_digest(built.project, digest)
        assert found.what == "corpus.bin of corpus green (train)"
        assert found.path == str(built.corpora["green"].directory / "corpus.bin")


def test_a_corpus_whose_files_are_gone(built):
    (built.corpora["red"].directory / "corpus.bin").unlink()
    [found] = find_digest(built.project, built.corpora["red"].digest)
    assert (found.what, found.command) == ("corpus red (train) without corpus.bin", "dvc checkout data/corpora")


def test_what_a_run_holds(built):
    ring = next(ring for ring in built.run.attempts()[1].rings() if ring.step == 9)
    attempt = built.run.attempts()[0]
    for digest, what, where in (
        (built.run.resolved.recipe.digest, f"run {built.run.id}", built.run.path),
        (built.run.resolved.blend.digest, f"blend of run {built.run.id}", built.run.path),
        (attempt.header_digest, f"attempt 1 of run {built.run.id}", attempt.path),
        (built.first.digest, f"checkpoint of step 6 of run {built.run.id}", built.first.path),
        (
            built.first.manifest.files[0].digest,
            f"weights.bin of checkpoint of step 6 of run {built.run.id}",
            built.first.path / "weights.bin",
        ),
        (ring.digest, f"ring of step 9, attempt 2 of run {built.run.id}", f"{built.run.attempts()[1].rings_file}:3"),
    ):
        found = find_digest(built.project, digest)
        assert [(each.what, each.digest, each.path) for each in found] == [(what, digest, str(where))]


def test_the_tokenizer_is_named_once(built):
    [found] = find_digest(built.project, built.run.resolved.blend.tokenizer)
    assert found.path == str(built.project.tokenizer)


def test_a_corpus_of_an_earlier_commit_is_in_the_cache(gone):
    stores, elsewhere = find_stores(gone.root)
    assert [store.name for store in stores] == ["DVC's cache", "DVC's remote shelf"]
    assert elsewhere == {"cloud": "gs://bucket/path"}
    [cached, remote] = find_digest(gone.project, gone.digests["green"])
    assert (cached.what, cached.digest, cached.place) == ("corpus green (train)", gone.digests["green"], "DVC's cache")
    assert (remote.place, "-r shelf data/corpora" in remote.command) == ("DVC's remote shelf", True)
    assert cached.command.startswith("git checkout ")
    assert cached.command.endswith(" -- data/corpora.dvc && dvc checkout data/corpora")


def test_the_command_brings_it_back(gone):
    [found, _] = find_digest(gone.project, gone.digests["red"])
    run(gone.root, "sh", "-ec", found.command)
    corpus = Corpus.open(gone.project.corpus("red"))
    assert (corpus.digest, corpus.verify()) == (gone.digests["red"], [])
    [found] = find_digest(gone.project, gone.digests["red"])
    assert (found.place, found.command) == ("project", None)


def test_what_no_lock_file_names_is_copied(gone):
    """The stage ran anew and nobody committed the lock file: only the cache knows the corpus."""
    shutil.rmtree(gone.root / ".git")
    found = find_digest(gone.project, gone.digests["blue"])[0]
    assert found.command.startswith("mkdir -p data/corpora/train/blue && cp ")
    run(gone.root, "sh", "-ec", found.command)
    corpus = Corpus.open(gone.project.corpus("blue"))
    assert (corpus.digest, corpus.verify()) == (gone.digests["blue"], [])


def test_a_remote_alone(gone):
    shutil.rmtree(gone.root / ".dvc" / "cache")
    [found] = find_digest(gone.project, gone.digests["red"])
    assert found.place == "DVC's remote shelf"
    assert " && dvc fetch -r shelf data/corpora && dvc checkout data/corpora" in found.command


def test_a_store_that_lost_a_file(gone):
    manifest = json.loads(
        next(
            path
            for path in (gone.root / ".dvc" / "cache" / "files" / "md5").glob("??/*")
            if b'"name": "red"' in path.read_bytes()
        ).read_bytes()
    )
    md5 = manifest["files"]["corpus.idx"]["dvc_md5"]
    for store in find_stores(gone.root)[0]:
        if store.remote is None:
            store.file(md5).unlink()
    (gone.root / ".dvc" / "config").write_text("")
    [found] = find_digest(gone.project, gone.digests["red"])
    assert (found.what, found.command) == ("corpus red (train) without corpus.idx", None)


def test_a_lock_file_of_the_pipeline(tmp_path):
    (tmp_path / "dvc.lock").write_text(
        "schema: '2.0'\nstages:\n  tokenize:\n    cmd: x\n    outs:\n    - path: data/corpora\n      md5: abc.dir\n"
    )
    found = tracked(tmp_path, "abc.dir")
    assert (found.out, found.file, found.commit) == ("data/corpora", "dvc.lock", None)
    assert tracked(tmp_path, "def.dir") is None


def test_nothing_has_it(gone):
    with pytest.raises(
        NotFoundError, match=r"nothing has that digest in the project, DVC's cache .*cloud \(gs://bucket"
    ):
        find_digest(gone.project, "sha256:" + "0" * 64)


@pytest.mark.parametrize("digest", ["", "abc", "sha256:xyzw", "0" * 65])
def test_no_digest(built, digest):
    with pytest.raises(UserError, match="expected at least 4 hex characters"):
        find_digest(built.project, digest)


def test_a_reproduction_copies_what_only_the_cache_has(gone, tmp_path):
    (run,) = find_runs(gone.project.runs)
    names = [component.corpus for component in run.resolved.blend.components]
    assert {each.state for each in data_items(run, gone.project)} == {"rebuilt"}
    with project_view(run, gone.project, tmp_path / "view") as view:
        assert {name: Corpus.open(view.corpus(name)).digest for name in names} == {n: gone.digests[n] for n in names}
    assert not (tmp_path / "view").exists()
    shutil.rmtree(gone.root / ".dvc" / "cache")
    run_remote = {each.reason for each in data_items(run, gone.project)}
    assert run_remote == {"DVC's remote shelf has it: it is copied from there"}
    (gone.root / ".dvc" / "config").write_text("")
    found = list(data_items(run, gone.project))
    assert {(each.state, each.stops, each.remedy[:22]) for each in found} == {
        ("cannot", True, "`treering find sha256:")
    }
