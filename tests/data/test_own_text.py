"""Your own data as it comes: which files are meant, what becomes a document, and what an error names."""

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus_documents import read_corpus

from treering.config.canonical import digest_bytes, digest_file
from treering.config.corpora import CorpusConfig, CurationConfig
from treering.data.curate.pipeline import curate
from treering.data.sources.documents import Intake, RawDocument
from treering.data.sources.fetch import fetch
from treering.data.sources.own_files import joined_digest
from treering.errors import EvidenceError, NotFoundError, UserError
from treering.project import NO_TASKS, Project

ROWS = [
    {"text": "first"},
    {"id": "two", "text": "second", "source": "https://e.org", "licence": "MIT"},
    {"id": 3, "text": "x"},
]


def lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def zst(data: bytes) -> bytes:
    return pa.compress(data, codec="zstd", asbytes=True)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "texts").mkdir()
    return Project(tmp_path)


def taken(project: Project, **source: Any) -> list[RawDocument]:
    corpus = CorpusConfig(name="own", licence="CC0-1.0", **source)
    fetch([corpus], project, say=lambda _: None)
    return list(read_corpus(corpus, project.raw / "own", Intake()))


@pytest.mark.parametrize(("ending", "packed"), [("", bytes), (".gz", gzip.compress), (".zst", zst)])
def test_json_lines_plain_or_compressed(project: Project, ending: str, packed: Callable[[bytes], bytes]) -> None:
    path = project.root / f"texts/own.jsonl{ending}"
    path.write_bytes(packed(lines(ROWS)))
    assert taken(project, jsonl=f"texts/own.jsonl{ending}") == [
        RawDocument(f"own.jsonl{ending}:1", "first", digest_file(path), 0, "CC0-1.0"),
        RawDocument("two", "second", "https://e.org", 1, "MIT"),
        RawDocument("3", "x", digest_file(path), 2, "CC0-1.0"),
    ]


def test_several_frames_in_one_file(project: Project) -> None:
    (project.root / "texts/a.jsonl.zst").write_bytes(zst(lines(ROWS[:1])) + zst(lines(ROWS[1:])))
    assert [each.text for each in taken(project, jsonl="texts/a.jsonl.zst")] == ["first", "second", "x"]


@pytest.mark.parametrize(
    ("given", "ids"),
    [
        ("texts", ["a.jsonl:1", "deep/b.jsonl.gz:1"]),
        ("texts/", ["a.jsonl:1", "deep/b.jsonl.gz:1"]),
        ("texts/*.jsonl", ["a.jsonl:1"]),
        ("texts/**/*.jsonl*", ["a.jsonl:1", "deep/b.jsonl.gz:1"]),
        ("texts/deep", ["b.jsonl.gz:1"]),
        ("*/[a-b].jsonl", ["texts/a.jsonl:1"]),
    ],
)
def test_a_folder_or_a_pattern_names_files(project: Project, given: str, ids: list[str]) -> None:
    (project.root / "texts/deep").mkdir()
    (project.root / "texts/a.jsonl").write_bytes(lines(ROWS[:1]))
    (project.root / "texts/deep/b.jsonl.gz").write_bytes(gzip.compress(lines(ROWS[:1]), mtime=0))
    (project.root / "texts/.hidden.jsonl").write_bytes(b"{")
    (project.root / "texts/notes.md").write_text("no data")
    assert [each.id for each in taken(project, jsonl=given)] == ids


def test_a_linked_folder_is_read_once(project: Project, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "b.jsonl").write_bytes(lines(ROWS[:1]))
    (elsewhere / "back").symlink_to(project.root / "texts")
    (project.root / "texts/a.jsonl").write_bytes(lines(ROWS[:1]))
    (project.root / "texts/more").symlink_to(elsewhere)
    assert [each.id for each in taken(project, jsonl="texts")] == ["a.jsonl:1", "more/b.jsonl:1"]


def test_a_pattern_that_finds_less_now_leaves_nothing_behind(project: Project) -> None:
    for name in ("a", "b"):
        (project.root / f"texts/{name}.jsonl").write_bytes(lines(ROWS[:1]))
    assert len(taken(project, jsonl="texts")) == 2
    (project.root / "texts/a.jsonl").unlink()
    assert [each.id for each in taken(project, jsonl="texts")] == ["b.jsonl:1"]


def test_an_absolute_path(project: Project, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "own.jsonl").write_bytes(lines(ROWS[:1]))
    assert [each.id for each in taken(project, jsonl=str(elsewhere / "*.jsonl"))] == ["own.jsonl:1"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_parquet(project: Project, kind: pa.DataType) -> None:
    path = project.root / "texts/own.parquet"
    columns = {"content": pa.array(["first", "second"], kind), "id": [7, None], "stars": [1, 2]}
    pq.write_table(pa.table(columns), path)
    assert taken(project, parquet="texts", text_field="content") == [
        RawDocument("7", "first", digest_file(path), 0, "CC0-1.0"),
        RawDocument("own.parquet:2", "second", digest_file(path), 1, "CC0-1.0"),
    ]


def test_a_data_set_on_disk_in_the_order_of_its_shards(project: Project) -> None:
    rows = {"text": [f"text {number}" for number in range(30)], "label": list(range(30))}
    folder = project.root / "texts/set"
    datasets.Dataset.from_dict(rows).save_to_disk(folder, num_shards=3)
    documents = taken(project, dataset="texts/set")
    assert [each.text for each in documents] == rows["text"]
    assert documents[10].id == "data-00001-of-00003.arrow:1"


def test_a_data_set_of_several_splits_asks_for_one(project: Project) -> None:
    made = datasets.Dataset.from_dict({"text": ["a"]})
    datasets.DatasetDict(train=made, test=made).save_to_disk(project.root / "texts/set")
    with pytest.raises(UserError, match=r"holds the splits test, train, expected one split; .*: texts/set/test"):
        taken(project, dataset="texts/set")
    assert [each.text for each in taken(project, dataset="texts/set/train")] == ["a"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"jsonl": "texts/no.jsonl"}, r"jsonl: .*texts/no\.jsonl does not exist, expected a JSON Lines file, a folder"),
        ({"jsonl": "texts/*.json"}, r"matches no file \(.*texts holds a\.parquet, a\.txt\)"),
        ({"jsonl": "texts"}, r"holds no file with the ending \.jsonl, \.jsonl\.gz, \.jsonl\.zst \(.*a\.txt\)"),
        ({"jsonl": "gone/*.jsonl"}, r"gone/\*\.jsonl does not exist"),
        ({"dataset": "texts"}, r"dataset: .*texts holds no file \(.*, expected the folder of a data set"),
        ({"dataset": "texts/a.txt"}, "is a file, expected the folder of a data set"),
        ({"megatron": "texts/a"}, r"is no pair: .*a\.bin and .*a\.idx is missing, expected the path of a pair"),
    ],
)
def test_what_is_not_there_is_named(project: Project, source: dict[str, str], message: str) -> None:
    (project.root / "texts/a.txt").touch()
    (project.root / "texts/a.parquet").touch()
    with pytest.raises(NotFoundError, match=f"^corpus own: .*{message}"):
        taken(project, **source)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.jsonl.gz",
            gzip.compress(lines(ROWS[:1] * 99), mtime=0)[:-9],
            r"a\.jsonl\.gz: damaged or cut off \(Compressed file ended",
        ),
        ("a.jsonl.gz", b"no gzip", r"a\.jsonl\.gz: damaged or cut off \(Not a gzipped file"),
        ("a.jsonl.gz", gzip.compress(lines(ROWS), mtime=0)[:12] + b"xxxx", r"a\.jsonl\.gz: damaged or cut off"),
        ("a.jsonl.zst", zst(lines(ROWS * 99))[:-9], r"a\.jsonl\.zst: damaged or cut off \(Truncated compressed stream"),
        ("a.jsonl.zst", b"no zstd", r"a\.jsonl\.zst: damaged or cut off \(ZSTD decompress failed"),
        ("a.jsonl", b'[\n{"text": "x"}\n]\n', r"a\.jsonl, line 1: not valid JSON .* expected one object a line"),
        ("a.jsonl", b'[{"text": "x"}]\n', r"a\.jsonl, line 1: found list, expected one object a line"),
        ("a.jsonl", b'{"content": "x", "n": 1}\n', r"a\.jsonl, line 1: field 'text' is missing .found 'content', 'n'"),
        ("a.jsonl", b'{"text": "x"}\n{"text": ["x"]}\n', r"a\.jsonl, line 2: text is \['x'\], expected a string"),
        ("a.jsonl", lines([{"id": "a", "text": "x"}] * 2), r"a\.jsonl, line 2: found id 'a' twice.*ids are made then"),
        ("a.jsonl", b'{"id": "a.jsonl:2", "text": "x"}\n{"text": "y"}\n', r"line 2: found id 'a\.jsonl:2' twice"),
    ],
)
def test_bad_json_lines(project: Project, name: str, content: bytes, message: str) -> None:
    (project.root / "texts" / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        taken(project, jsonl=f"texts/{name}")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"body": ["x"]}, r"a\.parquet: field 'text' is missing .found 'body'., .* name its field: text_field"),
        ({"text": [1]}, r"a\.parquet, row 1: text is 1, expected a string"),
        ({"text": ["x", None]}, r"a\.parquet, row 2: text is None, expected a string"),
        ({"text": ["x"], "id": [1.5]}, r"a\.parquet, row 1: id is 1\.5, expected a non-empty string"),
        ({"text": ["x", "y"], "id": ["a", "a"]}, r"a\.parquet, row 2: found id 'a' twice"),
    ],
)
def test_bad_parquet(project: Project, columns: dict[str, Any], message: str) -> None:
    pq.write_table(pa.table(columns), project.root / "texts/a.parquet")
    with pytest.raises(UserError, match=message):
        taken(project, parquet="texts/a.parquet")


def test_a_damaged_parquet_file(project: Project) -> None:
    pq.write_table(pa.table({"text": ["x" * 99]}), project.root / "texts/a.parquet")
    whole = (project.root / "texts/a.parquet").read_bytes()
    for content in (whole[:-7], b"", b"PAR1"):
        (project.root / "texts/a.parquet").write_bytes(content)
        with pytest.raises(UserError, match=r"a\.parquet: damaged or cut off .*, expected a whole file"):
            taken(project, parquet="texts/a.parquet")


def test_a_damaged_data_set(project: Project) -> None:
    folder = project.root / "texts/set"
    datasets.Dataset.from_dict({"text": ["x" * 9999]}).save_to_disk(folder)
    (shard,) = folder.glob("*.arrow")
    whole = shard.read_bytes()
    shard.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"arrow: damaged or cut off"):
        taken(project, dataset="texts/set")
    shard.unlink()
    with pytest.raises(UserError, match=r"state\.json: names data-.*arrow, which is not in the folder"):
        taken(project, dataset="texts/set")
    (folder / "state.json").write_text("{}")
    with pytest.raises(UserError, match=r"state\.json: unreadable"):
        taken(project, dataset="texts/set")


def test_another_path_in_the_config_is_fetched_first(project: Project) -> None:
    (project.root / "texts/a.jsonl").write_bytes(lines(ROWS))
    taken(project, jsonl="texts/a.jsonl")
    other = CorpusConfig(name="own", licence="CC0-1.0", jsonl="texts/b.jsonl")
    with pytest.raises(UserError, match=r"does not hold texts/b\.jsonl; run `treering fetch` first"):
        list(read_corpus(other, project.raw / "own", Intake()))


def test_the_order_of_files_is_not_in_their_digest() -> None:
    files = [("a", "sha256:1"), ("b", "sha256:2")]
    assert joined_digest(files) == joined_digest(files[::-1]) != joined_digest([("a", "sha256:2"), ("b", "sha256:1")])


def test_your_own_data_is_pinned_by_the_digest_that_fetch_prints(project: Project) -> None:
    for name in ("a", "b"):
        (project.root / f"texts/{name}.jsonl").write_bytes(lines(ROWS[:1]))
    each = digest_bytes(lines(ROWS[:1]))
    both = digest_bytes(f"a.jsonl\0{each}\nb.jsonl\0{each}\n".encode())
    said: list[str] = []
    corpus = CorpusConfig(name="own", licence="MIT", jsonl="texts", sha256=both.removeprefix("sha256:"))
    fetch([corpus], project, say=said.append)
    assert said == [f"fetch            own: 2 files, 0.0 MB, your own, {both}"]
    assert len(taken(project, jsonl="texts/a.jsonl", sha256=each.removeprefix("sha256:"))) == 1
    (project.root / "texts/b.jsonl").write_bytes(lines(ROWS))
    with pytest.raises(EvidenceError, match=f"corpus own: your own data has digest sha256:.*, expected {both}"):
        fetch([corpus], project, say=said.append)


def test_data_in_a_folder_that_a_stage_empties_is_refused(project: Project) -> None:
    path = project.raw / "mine" / "own.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(lines(ROWS))
    with pytest.raises(UserError, match=r"own\.jsonl is in a folder that Treering replaces; move your data"):
        taken(project, jsonl="data/raw/mine/own.jsonl")
    assert path.exists()


def test_what_a_stage_made_of_the_data_is_not_the_data(project: Project) -> None:
    (project.root / "data").mkdir()
    (project.root / "data/own.jsonl").write_bytes(lines(ROWS[:1]))
    for _ in range(2):
        assert [each.id for each in taken(project, jsonl="data")] == ["own.jsonl:1"]


def test_text_without_a_passage_for_any_task_is_curated_all_the_same(project: Project) -> None:
    chance = random.Random(1)
    words = ["the", "and", "of", "to", "with", *(f"word{number}" for number in range(100))]
    lists = [{"text": " ".join(chance.choices(words, k=60))} for _ in range(60)]  # no sentence ends
    (project.root / "texts/lists.jsonl").write_bytes(lines(lists))
    corpus = CorpusConfig(name="lists", licence="CC0-1.0", jsonl="texts/lists.jsonl")
    curation = CurationConfig.model_validate({"seed": 1, "prose": {"min_characters": 128, "languages": []}})
    said: list[str] = []
    fetch([corpus], project, say=said.append)
    summary = curate([corpus], curation, project, said.append)
    assert summary["tasks"] == {"lambada": 0, "cloze": 0}
    assert all(summary["corpora"]["lists"]["documents"][split] for split in ("train", "heldout"))
    assert [path.name for path in project.tasks.iterdir()] == [NO_TASKS]
    assert any(each.startswith("no items         for lambada, cloze: ") for each in said)
