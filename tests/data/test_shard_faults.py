"""Shards whose sources change or fail while the stage runs, and what a shard's name depends on."""

import gzip
import json
import os
import platform
import shutil
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prose_text import make_text

from treering.config.corpora import CorpusConfig
from treering.data.curate import ingest, language, shards
from treering.data.curate.engines import ProcessEngine
from treering.data.curate.pipeline import curate
from treering.data.sources import raw
from treering.data.sources.fetch import fetch
from treering.errors import EvidenceError, StoreError, TreeringError, UserError
from treering.files import read_bytes


def run(tiny: Any, corpora: list[CorpusConfig], shard_bytes: int = 1 << 30) -> dict[str, Any]:
    return curate(corpora, tiny.config, tiny.project, lambda _: None, engine=ProcessEngine(), shard_bytes=shard_bytes)


def records(tiny: Any) -> list[Path]:
    return list((tiny.project.root / ".treering" / "curate" / "shards").glob("*/record.json"))


@pytest.mark.parametrize("after", [0, 5])
@pytest.mark.parametrize(("corpus", "pattern"), [(0, "own.jsonl"), (1, "*.whl")])
def test_a_file_that_changes_while_the_stage_runs_is_a_fault(
    tiny: Any, monkeypatch: pytest.MonkeyPatch, corpus: int, pattern: str, after: int
) -> None:
    chosen = tiny.corpora()[corpus]
    [path] = (tiny.project.raw / chosen.name).glob(pattern)
    whole = path.read_bytes()

    def changing(*arguments: Any) -> Iterator[Any]:
        documents = raw.read_shard(*arguments)
        yield from (next(documents) for _ in range(after))
        found = path.stat()
        other = path.with_name("other")
        other.write_bytes(whole)
        os.utime(other, ns=(found.st_atime_ns, found.st_mtime_ns))
        other.replace(path)  # of the same size and time: only the inode is another
        yield from documents

    monkeypatch.setattr(ingest, "read_shard", changing)
    with pytest.raises(UserError, match=rf"corpus {chosen.name}: .*{path.name} was changed while .*`treering fetch`"):
        run(tiny, [chosen])
    assert records(tiny) == []


@pytest.mark.parametrize("change", ["size", "time", "removed"])
def test_a_file_that_changed_after_the_cut_is_not_read(tiny: Any, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    [own, _] = tiny.corpora()
    path = tiny.project.raw / "own" / "own.jsonl"
    inputs = shards.Shard.inputs

    def changed(shard: shards.Shard, *arguments: Any, **named: Any) -> dict[str, Any]:
        if change == "size":
            path.write_bytes(path.read_bytes() + b"\n")
        elif change == "time":
            os.utime(path, ns=(1, 1))
        else:
            path.unlink()
        return inputs(shard, *arguments, **named)

    monkeypatch.setattr(shards.Shard, "inputs", changed)
    monkeypatch.setattr(ingest, "read_shard", lambda *_: pytest.fail("it was read"))
    with pytest.raises(UserError, match=r"own\.jsonl was changed while"):
        run(tiny, [own])


def test_a_file_that_could_be_read_only_after_the_cut_is_a_fault(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    [own, _] = tiny.corpora()
    path = tiny.project.raw / "own" / "own.jsonl"
    content = path.read_bytes()
    path.unlink()
    path.symlink_to(path.with_name("missing"))
    monkeypatch.setattr(raw, "own_names", lambda *_: ["own.jsonl"])
    inputs = shards.Shard.inputs

    def appear(shard: shards.Shard, *arguments: Any, **named: Any) -> dict[str, Any]:
        path.with_name("missing").write_bytes(content)
        return inputs(shard, *arguments, **named)

    monkeypatch.setattr(shards.Shard, "inputs", appear)
    with pytest.raises(UserError, match=r"own\.jsonl was changed while"):
        run(tiny, [own])
    assert records(tiny) == []


def test_a_shards_name_depends_on_all_that_decides_it(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = shards.code_version.__wrapped__()
    seen: set[str] = set()

    def noted(path: Path) -> bytes:
        seen.add("/".join(path.parts[path.parts.index("treering") :][-2:]))
        return read_bytes(path)

    monkeypatch.setattr("treering.data.curate.shards.read_bytes", noted)
    assert shards.code_version.__wrapped__() == whole
    wanted = {"corpus/table.py", "config/yaml_text.py", "config/canonical.py", "treering/objects.py"}
    assert seen >= wanted | {"curate/language.py"}
    for name in ("lxml-html-clean", "pyyaml"):
        monkeypatch.setattr(
            "treering.data.curate.shards.version", lambda each, name=name: "0" if each == name else version(each)
        )
        assert shards.code_version.__wrapped__() != whole
    monkeypatch.setattr("treering.data.curate.shards.version", version)
    monkeypatch.setattr(platform, "python_version", lambda: "3.0.0")
    assert shards.code_version.__wrapped__() != whole


@pytest.mark.parametrize(
    "fault", [MemoryError("full"), OSError(28, "No space left on device"), TreeringError("broken")]
)
def test_a_fault_of_the_machine_blames_no_document(
    tiny: Any, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    def judge(*_: Any) -> Any:
        raise fault

    monkeypatch.setattr(ingest, "judge", judge)
    with pytest.raises(type(fault), match=r"^full$|^\[Errno 28\] No space left on device$|^broken$"):
        run(tiny, tiny.corpora())
    assert records(tiny) == []


def test_a_missing_language_model_blames_no_document(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language, "model_path", lambda: tiny.project.root / "none.ftz")
    monkeypatch.setattr(ingest, "read_shard", lambda *_: pytest.fail("a document was read"))
    language._model.cache_clear()
    try:
        with pytest.raises(TreeringError, match=r"^\S*none\.ftz: not the language model .*No such file.*--force-rein"):
            run(tiny, tiny.corpora())
    finally:
        language._model.cache_clear()


@pytest.mark.parametrize(
    "fault", [UserError("gone"), StoreError("gone"), EvidenceError("gone", found=1), OSError(5, "gone")]
)
def test_no_fault_behind_the_cap_counts(tiny: Any, monkeypatch: pytest.MonkeyPatch, fault: Exception) -> None:
    folder = tiny.project.raw / "capped"
    folder.mkdir(parents=True)
    texts = [[make_text(700 + 100 * number + each) for each in range(12)] for number in range(2)]
    for name, each in zip("ab", texts, strict=True):
        with gzip.open(folder / f"{name}.jsonl.gz", "wt") as file:
            file.write("".join(json.dumps({"text": text}) + "\n" for text in each))

    def read_shard(corpus: Any, directory: Path, pieces: Any, *rest: Any) -> Any:
        if pieces[0].name == "b.jsonl.gz":
            raise fault
        return raw.read_shard(corpus, directory, pieces, *rest)

    monkeypatch.setattr(ingest, "read_shard", read_shard)
    size = sum(len(text.encode()) for text in texts[0])

    def asked(cap: int) -> list[CorpusConfig]:
        return [CorpusConfig(name="capped", licence="MIT", jsonl="*.jsonl.gz", max_megabytes=cap / 1e6)]

    assert run(tiny, asked(size), 1)["corpora"]["capped"]["taken"]["documents"] == 12
    with pytest.raises(type(fault), match="gone") as found:
        run(tiny, asked(size + 1), 1)
    assert vars(found.value) == vars(fault)


def test_equal_shards_of_two_corpora_are_not_called_resumed(tiny: Any) -> None:
    [own, _] = tiny.corpora()
    (tiny.project.raw / "copy").mkdir()
    for name in ("own", "copy"):
        rows = "".join(json.dumps({"text": make_text(each)}) + "\n" for each in range(30))
        (tiny.project.raw / name / "own.jsonl").write_text(rows)
    copy = own.model_copy(update={"name": "copy", "max_megabytes": None})
    with pytest.raises(UserError, match="corpus copy: 0 near-duplicate clusters are left"):
        run(tiny, [own, copy])
    assert len(records(tiny)) == 1
    lines: list[str] = []
    with pytest.raises(UserError, match="corpus copy: 0 near-duplicate clusters are left"):
        curate([own, copy], tiny.config, tiny.project, lines.append, engine=ProcessEngine())
    assert "resumed          2 shards that an interrupted run had finished" in lines
    shutil.rmtree(tiny.project.root / ".treering")
    lines.clear()
    with pytest.raises(UserError, match="corpus copy: 0 near-duplicate clusters are left"):
        curate([own, copy], tiny.config, tiny.project, lines.append, engine=ProcessEngine())
    assert not [line for line in lines if "resumed" in line]


def test_of_equal_shards_that_end_together_one_stays(tmp_path: Path) -> None:
    first, second = shards.begin(tmp_path), shards.begin(tmp_path)
    for each in (first, second):
        (each / "rows").write_bytes(b"x")
    place = tmp_path / "shard"
    shards.keep(first, place, {"inputs": {}})
    inode = place.stat().st_ino
    shards.keep(second, place, {"inputs": {}})
    assert (place.stat().st_ino, sorted(tmp_path.iterdir())) == (inode, [place])
    (place / "rows").write_bytes(b"damaged")
    third = shards.begin(tmp_path)
    (third / "rows").write_bytes(b"x")
    shards.keep(third, place, {"inputs": {}})
    assert shards.read_record(place) is not None
    assert (place / "rows").read_bytes() == b"x"


def test_a_string_of_parquet_that_is_not_utf8_is_named_with_its_row(tiny: Any) -> None:
    folder = tiny.project.raw / "p"
    folder.mkdir(parents=True)
    buffers = pa.array([b"ok", b"ok", b"bad \xff"], pa.binary()).buffers()
    text = pa.StringArray.from_buffers(3, buffers[1], buffers[2])
    pq.write_table(pa.table({"text": text}), folder / "p.parquet")
    with pytest.raises(UserError, match=r"^corpus p: p\.parquet, row 3: text is not UTF-8 \(.*0xff.*\), expected text"):
        run(tiny, [CorpusConfig(name="p", licence="MIT", parquet="p.parquet")])


def test_a_file_name_that_is_not_utf8_is_refused(tiny: Any) -> None:
    for folder in (tiny.project.root / "texts", tiny.project.raw / "s"):
        folder.mkdir(parents=True)
        Path(os.fsdecode(os.fsencode(folder) + b"/te\xffxt.jsonl")).write_text('{"text": "a"}\n')
    corpus = CorpusConfig(name="s", licence="MIT", jsonl="texts")
    named = r"^corpus s: the name of file b'te\\xffxt\.jsonl' is not UTF-8, .*rename the file$"
    with pytest.raises(UserError, match=named):
        fetch([corpus], tiny.project, say=lambda _: None)
    with pytest.raises(UserError, match=named):
        run(tiny, [corpus])
