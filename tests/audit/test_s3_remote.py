"""DVC's remote on a real S3 server: push, a fresh clone that pulls, and what is found and audited there."""

import json
import shutil
from types import SimpleNamespace

import pytest
from versioned_project import dvc, git, run

from treering.audit.dvc.find import find_digest, stored_corpus
from treering.audit.dvc.remotes import open_remotes
from treering.audit.dvc.stores import Store, named_trees
from treering.data.corpus.corpus import Corpus
from treering.errors import NotFoundError
from treering.project import Project
from treering.reproduce.places import data_items, project_view
from treering.runlog.find import find_runs

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def storage(versioned, s3, tmp_path_factory):
    """A project with its corpora, the first and the present ones, in S3 alone: without cache and other remotes."""
    root = tmp_path_factory.mktemp("storage") / "project"
    shutil.copytree(versioned.root, root, symlinks=True)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3.environment.items():
            patch.setenv(name, value)
        git(root, "checkout", "-q", "HEAD~1", "--", "data/corpora.dvc")
        dvc(root, "remote add -q -d storage s3://bucket/data", "fetch -q -r shelf", "push -q", "remote remove shelf")
        git(root, "checkout", "-q", "HEAD", "--", "data/corpora.dvc")
        dvc(root, "push -q", "remote remove cloud")
    shutil.rmtree(root / ".dvc" / "cache")
    git(root, "commit", "-qam", "data in S3")
    return root


@pytest.fixture
def pushed(storage, versioned, tmp_path, s3, monkeypatch):
    """A copy to work on, and the environment with the server."""
    root = tmp_path / "project"
    shutil.copytree(storage, root, symlinks=True)
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    return SimpleNamespace(
        project=Project(root), root=root, digests=versioned.digests, folder=versioned.remote, url="s3://bucket/data"
    )


def test_a_fresh_clone_pulls_and_audits(pushed, tmp_path, treering, monkeypatch):
    clone = tmp_path / "clone"
    run(tmp_path, "git", "clone", "-q", str(pushed.root), str(clone))
    git(clone, "checkout", "-q", "HEAD~2", "--", "data/corpora.dvc")
    dvc(clone, "pull -q")
    corpora = {name: Corpus.open(Project(clone).corpus(name)) for name in pushed.digests}
    assert {name: corpus.digest for name, corpus in corpora.items()} == pushed.digests
    assert [corpus.verify() for corpus in corpora.values()] == [[], [], []]
    monkeypatch.chdir(clone)
    shutil.copytree(pushed.root / "runs", clone / "runs")
    code, out, _ = treering("audit", find_runs(clone / "runs")[0].path, "--verify", "--json")
    assert (code, json.loads(out)["level"]) == (0, "content-bound")
    run(clone, "sh", "-ec", 'test -z "$(dvc status -q || echo changed)$(dvc status -c -q || echo changed)"')


def test_a_corpus_in_s3_is_found_and_brought_by_its_command(pushed):
    said = []
    [found] = find_digest(pushed.project, pushed.digests["red"], said.append)
    assert said == [f"asking DVC's remote storage ({pushed.url})"]
    assert (found.place, found.path.split(": ")[0]) == ("DVC's remote storage", pushed.url)
    assert "dvc fetch -r storage data/corpora && dvc checkout data/corpora" in found.command
    shutil.rmtree(pushed.project.corpora)
    run(pushed.root, "sh", "-ec", found.command)
    assert Corpus.open(pushed.project.corpus("red")).digest == pushed.digests["red"]


def test_a_reproduction_takes_its_corpora_from_s3(pushed, tmp_path):
    (recorded,) = find_runs(pushed.project.runs)
    assert {each.reason for each in data_items(recorded, pushed.project)} == {
        "DVC's remote storage has it: it is copied from there"
    }
    with project_view(recorded, pushed.project, tmp_path / "view") as view:
        assert {name: Corpus.open(view.corpus(name)).digest for name in pushed.digests} == pushed.digests


def test_folders_that_no_commit_names_are_listed(pushed):
    [remote] = open_remotes(pushed.root, {"storage": pushed.url})[0]
    trees = {tree for tree in named_trees(pushed.root) if remote.holds(tree)}
    assert len(trees) == 2
    assert dict(remote.other_trees(set())) == dict(remote.trees(trees))
    assert dict(Store("shelf", pushed.folder).trees()).items() <= dict(remote.trees(trees)).items()
    assert list(remote.other_trees(trees)) == []


def test_keys_that_the_server_refuses_and_a_missing_bucket(pushed, monkeypatch):
    digest = pushed.digests["red"]
    dvc(pushed.root, "remote modify storage url s3://nowhere/data")
    with pytest.raises(NotFoundError, match=r"not searched: storage \(s3://nowhere/data\): its bucket does not exist"):
        find_digest(pushed.project, digest)
    assert stored_corpus(pushed.project, digest) is None
    dvc(pushed.root, f"remote modify storage url {pushed.url}")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(
        NotFoundError, match=r"not searched: storage \(s3://bucket/data\) does not answer: .*[Ff]orbidden"
    ):
        find_digest(pushed.project, digest)
