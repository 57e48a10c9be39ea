"""`treering find` in remotes that are no folders: real DVC, a real HTTP server."""

import json
import shutil
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from dvc_data.hashfile.db import HashFileDB
from dvc_objects.fs.memory import MemoryFileSystem
from typer.testing import CliRunner
from versioned_project import dvc, run

from treering.audit.dvc.find import find_digest, stored_corpus
from treering.audit.dvc.remotes import RemoteStore, open_remotes
from treering.audit.dvc.stores import Store, named_trees
from treering.cli import app
from treering.data.corpus.corpus import Corpus
from treering.errors import NotFoundError

pytestmark = pytest.mark.slow

NOTHING = "sha256:" + "0" * 64


class _Quiet(SimpleHTTPRequestHandler):
    asked: list[str] = []  # noqa: RUF012  (of the one server)

    def log_message(self, *_):
        self.asked.append(f"{self.command} {self.path}")  # in place of standard error


@pytest.fixture
def served(gone):
    """The project without cache and folders: its remote `web` answers by HTTP, `cloud` has no plugin here."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=gone.remote))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    _Quiet.asked.clear()
    gone.url = f"http://127.0.0.1:{server.server_address[1]}"
    dvc(gone.root, "remote remove shelf", f"remote add -q web {gone.url}")
    shutil.rmtree(gone.root / ".dvc" / "cache")
    yield gone
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_corpus_behind_http(served):
    said = []
    stored_corpus(served.project, served.digests["red"]).bring(served.root / "brought")
    assert Corpus.open(served.root / "brought").digest == served.digests["red"]
    _Quiet.asked.clear()
    [found] = find_digest(served.project, served.digests["red"], said.append)
    assert (found.what, found.digest) == ("corpus red (train)", served.digests["red"])
    assert (found.place, found.path.split(": ")[0]) == ("DVC's remote web", served.url)
    assert said[0] == f"asking DVC's remote web ({served.url})"
    assert said[1].startswith("not searched: cloud (gs://bucket/path): gs is supported, but requires 'dvc-gs'")
    assert said[1].endswith("`pip install 'dvc[gs]'` installs what DVC needs")
    fetched = [line for line in _Quiet.asked if line.startswith("GET")]
    files = json.loads((served.remote / "files/md5" / _object(served, ".dir")).read_bytes())
    md5 = {entry["relpath"].split("/")[-1]: entry["md5"] for entry in files}
    assert not any(md5[name][2:] in line for line in fetched for name in ("corpus.bin", "corpus.idx"))  # never read


def _object(served, suffix):
    tree = next(
        tree for tree in named_trees(served.root) if (served.remote / "files/md5" / tree[:2] / tree[2:]).exists()
    )
    assert tree.endswith(suffix)
    return f"{tree[:2]}/{tree[2:]}"


def test_its_command_brings_it_back(served):
    [found] = find_digest(served.project, served.digests["red"])
    assert "dvc fetch -r web data/corpora && dvc checkout data/corpora" in found.command
    shutil.rmtree(served.project.corpora)  # DVC would not overwrite what no store holds
    run(served.root, "sh", "-ec", found.command)
    corpus = Corpus.open(served.project.corpus("red"))
    assert (corpus.digest, corpus.verify()) == (served.digests["red"], [])


def test_a_remote_that_lost_a_file(served):
    manifests = [
        document
        for path in (served.remote / "files/md5").glob("??/*")
        if path.read_bytes().startswith(b"{") and (document := json.loads(path.read_bytes())).get("name") == "red"
    ]
    md5 = manifests[0]["files"]["corpus.idx"]["dvc_md5"]
    store = Store("web", served.remote)
    away = store.file(md5).rename(served.remote / "away")
    try:
        [found] = find_digest(served.project, manifests[0]["digest"])
    finally:
        away.rename(store.file(md5))
    assert (found.what, found.command) == ("corpus red (train) without corpus.idx", None)


def test_what_lies_at_hand_asks_nobody(built, gone):
    said = []
    assert find_digest(built.project, built.corpora["red"].digest, said.append)
    assert [each.place for each in find_digest(gone.project, gone.digests["green"], said.append)] == [
        "DVC's cache",
        "DVC's remote shelf",
    ]
    assert said == []


def test_a_remote_that_does_not_answer(served):
    dvc(served.root, f"remote modify web url {served.url.rpartition(':')[0]}:9")
    with pytest.raises(NotFoundError, match=r"not searched: cloud .*; web \(http://127\.0\.0\.1:9\) does not answer: "):
        find_digest(served.project, served.digests["red"])


def test_a_project_that_dvc_does_not_open(served):
    shutil.rmtree(served.root / ".git")
    with pytest.raises(NotFoundError, match=r"not searched: cloud, web: DVC does not open .* is not a git repository"):
        find_digest(served.project, served.digests["red"])


def test_nothing_there_has_it(served):
    with pytest.raises(NotFoundError, match=rf"in the project, DVC's remote web \({served.url}\); not searched: cloud"):
        find_digest(served.project, NOTHING)


def test_folders_that_no_commit_names_are_listed(served):
    """A remote that can be listed, as S3 can: DVC's own database on a file system in memory."""
    system = MemoryFileSystem(global_store=False)
    database = HashFileDB(system, "/shelf/files/md5")
    for path in (served.remote / "files/md5").glob("??/*"):
        system.makedirs(f"/shelf/files/md5/{path.parent.name}", exist_ok=True)
        system.pipe_file(f"/shelf/files/md5/{path.parent.name}/{path.name}", path.read_bytes())
    remote = RemoteStore("memory", "memory://shelf", database)
    [tree] = [md5 for md5 in named_trees(served.root) if remote.holds(md5)]
    assert dict(remote.trees([tree])) == dict(remote.other_trees(set())) == dict(Store(None, served.remote).trees())
    assert list(remote.other_trees({tree})) == []
    [web] = open_remotes(served.root, {"web": served.url})[0]
    assert list(web.other_trees(set())) == []


def test_what_no_lock_file_names_is_copied_from_the_remote(served, tmp_path):
    store = Store("web", served.remote)
    [web] = open_remotes(served.root, {"web": served.url})[0]
    md5 = next(iter(dict(store.trees()).values())).popitem()[1]
    run(served.root, "sh", "-ec", web.bring(md5, str(tmp_path / "copy")))
    assert (tmp_path / "copy").read_bytes() == store.read(md5)


def test_the_command_says_whom_it_asks_apart_from_the_answer(served, monkeypatch):
    monkeypatch.chdir(served.root)
    result = CliRunner().invoke(app, ["find", served.digests["red"], "--json"], catch_exceptions=False)
    assert [each["place"] for each in json.loads(result.stdout)] == ["DVC's remote web"]
    assert f"asking DVC's remote web ({served.url})" in result.stderr
