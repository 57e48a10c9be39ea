"""Your own data on a real S3 server: curated to the same bytes as from files, and errors that name the object."""

import gzip
import json
from hashlib import md5, sha256
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prose_text import make_text
from web_archive import archive, crawl, page

from treering import objects
from treering.config.corpora import CorpusConfig, CurationConfig
from treering.config.load import load_experiment
from treering.data.curate.engines import ProcessEngine
from treering.data.curate.pipeline import curate
from treering.data.sources.fetch import fetch
from treering.errors import EvidenceError, NotFoundError, StoreError, UserError
from treering.objects import ObjectStore
from treering.project import Project
from treering.setup.stage_code import data_record

pytestmark = pytest.mark.slow

CONFIG = CurationConfig(num_processes=1)


def lines(seeds, **fields):
    return "".join(json.dumps({"text": make_text(seed), **fields}) + "\n" for seed in seeds).encode()


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """The same data as files, of every form that S3 is read in."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "letters/deep").mkdir(parents=True)
    (folder / "tables").mkdir()
    (folder / "letters/b.jsonl").write_bytes(lines(range(12)))
    (folder / "letters/a.jsonl.gz").write_bytes(gzip.compress(lines(range(20, 28), licence="MIT"), mtime=0))
    with pa.CompressedOutputStream(folder / "letters/deep/c.jsonl.zst", "zstd") as file:
        file.write(lines(range(8, 20)))
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"
    answers = {f"/{seed}": head + page(make_text(seed)) for seed in range(50, 60)}
    (folder / "web").mkdir()
    (folder / "web/crawl.warc.gz").write_bytes(archive(crawl(answers)))
    (folder / "letters/README.md").write_text("not data")
    table = pa.table({"body": [make_text(seed) for seed in range(30, 45)], "id": [f"t{n}" for n in range(15)]})
    pq.write_table(table, folder / "tables/t.parquet", row_group_size=4)
    return folder


@pytest.fixture
def put(texts, s3_url):
    """The data in S3."""
    store = ObjectStore(s3_url)
    for path in texts.rglob("*.*"):
        store.put(path.relative_to(texts).as_posix(), path.read_bytes())
    return store


def corpora(place):
    return [
        CorpusConfig(name="letters", licence="CC0-1.0", jsonl=f"{place}/letters"),
        CorpusConfig(name="tables", licence="MIT", parquet=f"{place}/tables/*.parquet", text_field="body"),
        CorpusConfig(name="web", licence="CC0-1.0", warc=f"{place}/web", kind="html"),
    ]


def quiet(_text):
    pass


def made(project, place):
    fetch(corpora(place), project, say=quiet)
    curate(corpora(place), CONFIG, project, quiet, engine=ProcessEngine(), shard_bytes=2000)
    files = (path for path in sorted(project.curated.rglob("*")) if path.is_file())
    return {path.relative_to(project.curated).as_posix(): path.read_bytes() for path in files}


@pytest.mark.usefixtures("put")
def test_the_result_is_that_of_the_same_files(texts, s3_url, tmp_path):
    expected = made(Project(tmp_path / "local"), texts)
    project = Project(tmp_path / "stored")
    found = made(project, s3_url)
    read = {name: json.loads(found.pop(f"objects/{name}.json")) for name in ("letters", "tables", "web")}
    assert found == expected
    assert read["letters"]["url"] == f"{s3_url}/letters"
    assert [each["name"] for each in read["letters"]["objects"]] == ["a.jsonl.gz", "b.jsonl", "deep/c.jsonl.zst"]
    for each in (*read["letters"]["objects"], *read["tables"]["objects"], *read["web"]["objects"]):
        [path] = texts.rglob(each["name"].rpartition("/")[2])
        content = path.read_bytes()
        assert each["digest"] == f"sha256:{sha256(content).hexdigest()}"
        assert (each["size"], each["state"]) == (len(content), md5(content, usedforsecurity=False).hexdigest())
    raw = sorted(path.relative_to(project.raw).as_posix() for path in project.raw.rglob("*.*"))
    assert raw == ["letters/objects.json", "tables/objects.json", "web/objects.json"]


def test_a_changed_object_is_named_and_what_was_finished_is_kept(put, texts, s3_url, tmp_path):
    project, said = Project(tmp_path / "stored"), []
    fetch(corpora(s3_url), project, say=quiet)
    put.put("letters/deep/c.jsonl.zst", (texts / "letters/deep/c.jsonl.zst").read_bytes() + b"\0")
    named = (
        rf"{s3_url}/letters/deep/c\.jsonl\.zst: changed since it was listed: found [\d,]+ bytes, [0-9a-f]+, expected "
    )
    with pytest.raises(
        EvidenceError, match=rf"{named}[\d,]+ bytes, [0-9a-f]+; `treering fetch` lists the objects again"
    ):
        curate(corpora(s3_url), CONFIG, project, quiet, engine=ProcessEngine(), shard_bytes=2000)
    put.remove(["letters/deep/c.jsonl.zst"])
    with pytest.raises(
        EvidenceError, match=r"c\.jsonl\.zst: changed since it was listed: found other content, or none"
    ):
        curate(corpora(s3_url), CONFIG, project, quiet, engine=ProcessEngine(), shard_bytes=2000)
    fetch(corpora(s3_url), project, say=quiet)
    curate(corpora(s3_url), CONFIG, project, said.append, engine=ProcessEngine(), shard_bytes=2000)
    assert "resumed          2 shards that an interrupted run had finished" in said
    record = json.loads((project.curated / "objects/letters.json").read_text())
    assert [each["name"] for each in record["objects"]] == ["a.jsonl.gz", "b.jsonl"]


def test_an_object_that_is_replaced_while_it_is_read(put, s3_url, monkeypatch):
    monkeypatch.setattr(objects, "_BLOCK", 1000)
    store = ObjectStore(f"{s3_url}/letters")
    [wanted] = store.listed("b.jsonl")
    blocks = store._blocks(wanted, "list it again")
    assert len(next(blocks)) == 1000
    put.put("letters/b.jsonl", lines(range(12, 24)))
    with pytest.raises(EvidenceError, match=r"letters/b\.jsonl: changed since it was listed: .*; list it again"):
        list(blocks)


def test_the_pipeline_notices_a_change(put, s3_url, tmp_path):
    experiment = SimpleNamespace(corpora=corpora(s3_url)[:1])
    first = data_record(experiment, Project(tmp_path))
    assert data_record(experiment, Project(tmp_path)) == first
    put.put("letters/b.jsonl", lines(range(12, 24)))
    second = data_record(experiment, Project(tmp_path))
    assert first.keys() == second.keys() == {"letters"}
    assert first != second
    put.remove(["letters/b.jsonl", "letters/a.jsonl.gz", "letters/deep/c.jsonl.zst"])
    assert data_record(experiment, Project(tmp_path)) == {"letters": "missing"}


def test_a_pinned_list(put, s3_url, tmp_path):
    project, said = Project(tmp_path), []
    corpus = corpora(s3_url)[0]
    fetch([corpus], project, say=said.append)
    digest = said[0].rpartition("sha256:")[2]
    assert said[0].startswith("fetch            letters: 3 objects in S3, 0.0 MB, listed, sha256:")
    pinned = corpus.model_copy(update={"sha256": digest})
    fetch([pinned], project, say=quiet)
    put.put("letters/b.jsonl", b"{}")
    with pytest.raises(
        EvidenceError, match=rf"letters: the list of its objects has digest .*, expected sha256:{digest}"
    ):
        fetch([pinned], project, say=quiet)


def test_refusals_name_the_place_and_the_remedy(put, s3_url, tmp_path, monkeypatch):
    project = Project(tmp_path)

    def taken(url, **rest):
        return fetch([CorpusConfig(name="x", licence="MIT", jsonl=url)], project, say=quiet, **rest)

    with pytest.raises(
        NotFoundError, match=rf"corpus x: jsonl: {s3_url}/none holds no object with the ending \.jsonl,"
    ):
        taken(f"{s3_url}/none")
    with pytest.raises(NotFoundError, match=r"none/\*\.jsonl matches no object, expected an object, a prefix or a"):
        taken(f"{s3_url}/none/*.jsonl")
    with pytest.raises(StoreError, match=r"s3://nowhere/x: the store: .*; expected a bucket or folder that exists"):
        taken("s3://nowhere/x")
    with pytest.raises(UserError, match="fetch --from: corpus x is in S3"):
        taken(s3_url, source=tmp_path)
    with pytest.raises(UserError, match=r"corpus letters: .*objects\.json cannot be read .*run `treering fetch` first"):
        curate(corpora(s3_url), CONFIG, project, quiet)
    taken(f"{s3_url}/letters/b.jsonl")
    with pytest.raises(
        UserError, match=rf"objects\.json lists {s3_url}/letters/b\.jsonl, expected the objects of {s3_url}"
    ):
        curate([CorpusConfig(name="x", licence="MIT", jsonl=f"{s3_url}/letters")], CONFIG, project, quiet)
    put.put("broken/a.jsonl", b'{"text": 1}\n')
    taken(f"{s3_url}/broken")
    with pytest.raises(UserError, match=r"corpus x: a\.jsonl, line 1: text is 1, expected a string"):
        curate([CorpusConfig(name="x", licence="MIT", jsonl=f"{s3_url}/broken")], CONFIG, project, quiet)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(StoreError, match=r"check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY"):
        taken(s3_url)


@pytest.mark.parametrize("form", ["dataset", "megatron"])
def test_only_text_is_read_from_s3(form):
    with pytest.raises(ValueError, match="a path: S3 holds jsonl, parquet, warc and wet"):
        CorpusConfig(name="x", licence="MIT", **{form: "s3://bucket/x"})
    with pytest.raises(ValueError, match="a path or s3://BUCKET/PREFIX"):
        CorpusConfig(name="x", licence="MIT", jsonl="gs://bucket/x")


@pytest.mark.usefixtures("put")
def test_a_project_begins_on_s3(s3_url, tmp_path, treering, monkeypatch):
    folder = tmp_path / "new"
    folder.mkdir()
    monkeypatch.chdir(folder)
    code, _, err = treering("init", "--data", f"{s3_url}/letters", "--licence", "CC0-1.0", "--minimal")
    assert (code, "name the objects by a pattern in quotes" in err) == (2, True)
    pattern = f"{s3_url}/letters/**/*.jsonl"
    code, _, err = treering("init", "--data", pattern, "--licence", "CC0-1.0", "--minimal")
    assert (code, err) == (0, "")
    [config] = (folder / "experiments").glob("*.yaml")
    [corpus] = load_experiment(config, ()).corpora
    assert (corpus.jsonl, corpus.stored) == (pattern, True)
