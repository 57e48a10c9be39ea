"""Where sources are cut: every cut gives the same documents."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus_documents import read_corpus

from treering.config.corpora import CorpusConfig
from treering.data.sources.documents import Intake, RawDocument
from treering.data.sources.raw import source_of

ROWS = [{"text": f"{number} " * (number % 7)} | ({"id": f"own-{number}"} if number % 3 else {}) for number in range(50)]


def write(folder: Path, form: str) -> CorpusConfig:
    if form == "parquet":
        schema = pa.schema([("id", pa.string()), ("text", pa.string())])
        pq.write_table(pa.Table.from_pylist(ROWS, schema), folder / "a.parquet", row_group_size=6)
        pq.write_table(pa.table({"text": ["b"]}), folder / "b.parquet")
        return CorpusConfig(name="own", licence="MIT", parquet="*.parquet")
    lines = [json.dumps(row) for row in ROWS]
    lines[20:20] = ["", "  "]
    (folder / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (folder / "b.jsonl").write_text('{"text": "b"}\n\n', encoding="utf-8")
    (folder / "c.jsonl").touch()
    return CorpusConfig(name="own", licence="MIT", jsonl="*.jsonl")


def read(corpus: CorpusConfig, folder: Path, shard_bytes: int) -> tuple[list[RawDocument], int]:
    intake = Intake()
    return list(read_corpus(corpus, folder, intake, shard_bytes)), intake.num_files_read


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_every_cut_gives_the_same_documents(tmp_path: Path, form: str) -> None:
    corpus = write(tmp_path, form)
    expected = read(corpus, tmp_path, 1 << 40)
    assert len(expected[0]) == 51
    counts = set()
    for shard_bytes in (1, 10, 37, 100, 333, 1000, 5000):
        num_files, shards = source_of(corpus, tmp_path, shard_bytes)
        counts.add(len(list(shards)))
        assert num_files == expected[1] == {"jsonl": 3, "parquet": 2}[form]
        assert read(corpus, tmp_path, shard_bytes) == expected
    assert len(counts) >= 3


def test_shards_of_lines_have_about_the_size_that_was_asked_for(tmp_path: Path) -> None:
    corpus = write(tmp_path, "jsonl")
    shards = list(source_of(corpus, tmp_path, 200)[1])
    assert sum(piece.num_bytes for shard in shards for piece in shard) == sum(
        path.stat().st_size for path in tmp_path.iterdir()
    )
    assert all(200 <= shard[0].num_bytes < 250 for shard in shards[:-1])
    text = (tmp_path / "a.jsonl").read_bytes()
    for shard in shards[1:-1]:
        assert text[shard[0].begin - 1 : shard[0].begin] == b"\n"


def test_a_compressed_file_is_one_piece_and_small_files_are_joined(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"{number}.jsonl.zst").write_bytes(
            pa.compress(json.dumps({"text": str(number)}).encode(), codec="zstd", asbytes=True)
        )
    corpus = CorpusConfig(name="own", licence="MIT", jsonl="*.jsonl.zst")
    size = (tmp_path / "0.jsonl.zst").stat().st_size
    names = [[piece.name[0] for piece in shard] for shard in source_of(corpus, tmp_path, 2 * size)[1]]
    assert names == [["0", "1"], ["2", "3"], ["4", "5"]]
    assert [len(shard) for shard in source_of(corpus, tmp_path, 1)[1]] == [1] * 6


def test_a_wheel_is_cut_between_its_files(tmp_path: Path, wheel_builder: Any) -> None:
    files = {f"pkg/m{number}.py": b"#" * 400 for number in range(8)}
    wheel = wheel_builder(tmp_path, "pkg", "1.0", files)
    corpus = CorpusConfig(name="code", licence="MIT", kind="code", reader="python", wheels=(wheel,))
    assert [len(shard) for shard in source_of(corpus, tmp_path, 1200)[1]] == [3, 3, 2]
    assert read(corpus, tmp_path, 1200) == read(corpus, tmp_path, 1 << 40)
