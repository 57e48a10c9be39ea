import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from corpus_writer import write_corpus

from treering.config.corpora import TokenizerConfig
from treering.data.corpus import manifest as manifests
from treering.data.corpus.corpus import Corpus, token_digest
from treering.data.corpus.text_tokenizer import load_tokenizer, train_tokenizer
from treering.errors import EvidenceError, NotFoundError

NUM_DOCUMENTS = 40


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    texts = [" ".join(f"word{n * k % 97}" for n in range(20 + k)) for k in range(NUM_DOCUMENTS)]
    config = TokenizerConfig(vocabulary_size=300)
    train_tokenizer(texts, config).save(str(folder / "tokenizer.json"))
    rows = [
        {"id": f"doc-{k}", "text": text, "source": "https://example.org", "offset": k, "licence": "MIT"}
        for k, text in enumerate(texts)
    ]
    about: dict[str, Any] = {"name": "tiny", "licence": "MIT", "curation": []}
    write_corpus(folder / "tiny", rows, load_tokenizer(folder / "tokenizer.json"), 0, about)
    return folder / "tiny"


@pytest.fixture
def directory(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "tiny"))


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_open_gives_tokens_and_documents(directory: Path) -> None:
    corpus = Corpus.open(directory)
    offsets = corpus.document_offsets
    assert (corpus.name, corpus.num_documents, len(offsets)) == ("tiny", NUM_DOCUMENTS, NUM_DOCUMENTS + 1)
    assert offsets[-1] == corpus.num_tokens
    for number in range(NUM_DOCUMENTS):
        row, tokens = corpus.document(number), corpus.tokens(int(offsets[number]), int(offsets[number + 1]))
        assert row == {
            "id": f"doc-{number}",
            "source": "https://example.org",
            "offset": number,
            "licence": "MIT",
            "tokens": len(tokens),
            "digest": token_digest(tokens),
        }
        assert tokens[-1] == 0
        assert 0 not in tokens[:-1]
    assert corpus.verify() == []


def test_token_digest_is_over_uint32() -> None:
    import hashlib

    expected = hashlib.sha256(bytes([1, 0, 0, 0, 255, 255, 0, 0])).hexdigest()
    assert token_digest(np.array([1, 65535], dtype=np.uint16)) == f"sha256:{expected}"


def test_out_of_range(directory: Path) -> None:
    corpus = Corpus.open(directory)
    with pytest.raises(IndexError, match="document 40 of 40"):
        corpus.document(40)
    with pytest.raises(IndexError, match="of "):
        corpus.tokens(0, corpus.num_tokens + 1)


def test_manifest_is_complete(directory: Path) -> None:
    manifest = json.loads((directory / "manifest.json").read_text())
    assert manifest["digest"] == manifests.manifest_digest(manifest)
    entry = manifest["files"]["corpus.bin"]
    assert entry["size"] == 2 * manifest["num_tokens"] == (directory / "corpus.bin").stat().st_size
    assert (len(entry["chunks"]), entry["chunks"][0]) == (1, entry["sha256"])
    assert len(entry["dvc_md5"]) == 32
    assert manifest["token_width_bytes"] == 2


def test_identity_is_content(directory: Path) -> None:
    path = directory / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "name": "renamed"}))
    assert Corpus.open(Path(shutil.move(directory, directory.parent / "elsewhere"))).digest == manifest["digest"]


@pytest.mark.parametrize("key", ["num_tokens", "licence", "digest", "files"])
def test_an_edited_manifest_is_refused(directory: Path, key: str) -> None:
    path = directory / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: "other"}))
    with pytest.raises(EvidenceError, match="the manifest says"):
        Corpus.open(directory)


def test_what_is_missing_is_named(directory: Path) -> None:
    with pytest.raises(NotFoundError, match="no such directory"):
        Corpus.open(directory / "none")
    (directory / "corpus.idx").unlink()
    with pytest.raises(EvidenceError, match=r"corpus\.idx is missing"):
        Corpus.open(directory)
    (directory / "manifest.json").write_text("{")
    with pytest.raises(EvidenceError, match="unreadable"):
        Corpus.open(directory)
    (directory / "manifest.json").write_text("{}")
    with pytest.raises(EvidenceError, match="schema version 1"):
        Corpus.open(directory)
    (directory / "manifest.json").unlink()
    with pytest.raises(EvidenceError, match=r"manifest\.json: no such file"):
        Corpus.open(directory)


@pytest.mark.parametrize("number", [0, 17, NUM_DOCUMENTS - 1])
def test_one_byte_of_the_tokens_names_its_document(directory: Path, number: int) -> None:
    start = int(Corpus.open(directory).document_offsets[number])
    flip(directory / "corpus.bin", 2 * start + 3)
    [damage] = Corpus.open(directory).verify()
    assert (damage.file, damage.chunk, damage.start) == ("corpus.bin", 0, 0)
    assert damage.end == (directory / "corpus.bin").stat().st_size
    assert (damage.documents, damage.ids) == ((number,), (f"doc-{number}",))


def test_chunks_are_told_apart(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chunk = 64
    monkeypatch.setattr(manifests, "CHUNK_BYTES", chunk)
    monkeypatch.setattr("treering.data.corpus.corpus.CHUNK_BYTES", chunk)
    manifest = json.loads((directory / "manifest.json").read_text())
    manifest["files"] = {name: manifests.describe_file(directory / name) for name in manifest["files"]}
    manifests.write_manifest(directory / "manifest.json", manifest)
    offsets = Corpus.open(directory).document_offsets
    for number in (3, 30):
        flip(directory / "corpus.bin", 2 * int(offsets[number]))
    found = Corpus.open(directory).verify()
    assert [damage.chunk for damage in found] == [2 * int(offsets[number]) // chunk for number in (3, 30)]
    assert [damage.documents for damage in found] == [(3,), (30,)]
    assert all(damage.end - damage.start == chunk for damage in found)


def test_a_truncated_file_names_what_it_lost(directory: Path) -> None:
    path = directory / "corpus.bin"
    lost = int(Corpus.open(directory).document_offsets[38])
    path.write_bytes(path.read_bytes()[: 2 * lost])
    [damage] = Corpus.open(directory).verify()
    assert damage.ids == ("doc-38", "doc-39")


@pytest.mark.parametrize("name", ["corpus.bin", "corpus.idx", "documents.parquet"])
def test_bytes_after_the_end_are_damage(directory: Path, name: str) -> None:
    with (directory / name).open("ab") as file:
        file.write(b"xx")
    [damage] = Corpus.open(directory).verify()
    assert (damage.documents, damage.reason.split(",")[0]) == ((), "found 2 bytes after the end")


@pytest.mark.parametrize("position", [34 + 4 * 9, 34 + 4 * NUM_DOCUMENTS + 8 * 9, 34 + 12 * NUM_DOCUMENTS + 8 * 9])
def test_one_byte_of_the_index_names_its_document(directory: Path, position: int) -> None:
    flip(directory / "corpus.idx", position)
    [damage] = Corpus.open(directory).verify()
    assert (damage.file, damage.documents) == ("corpus.idx", (9,))
    with pytest.raises(EvidenceError, match=r"corpus\.idx"):
        _ = Corpus.open(directory).document_offsets


def test_a_damaged_table_names_no_document(directory: Path) -> None:
    flip(directory / "documents.parquet", 40)
    flip(directory / "corpus.bin", 5)
    found = Corpus.open(directory).verify()
    assert [(damage.file, damage.documents) for damage in found] == [("corpus.bin", ()), ("documents.parquet", ())]
    (directory / "documents.parquet").write_bytes(b"no parquet")
    with pytest.raises(EvidenceError, match=r"documents\.parquet: unreadable"):
        Corpus.open(directory).document(0)


@pytest.mark.parametrize("garbage", [b"[1]", b"\xff", b"[" * 100_000, b'{"a":1,"a":1}'])
def test_a_file_that_is_not_a_manifest(directory: Path, garbage: bytes) -> None:
    (directory / "manifest.json").write_bytes(garbage)
    with pytest.raises(EvidenceError, match=r"manifest\.json: (unreadable|found schema version None, expected)"):
        Corpus.open(directory)


def test_a_changed_manifest_names_both_digests_and_what_helps(directory: Path) -> None:
    path = directory / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "licence": "another"}))
    with pytest.raises(
        EvidenceError, match="it was changed after it was written; `dvc checkout` restores it"
    ) as caught:
        Corpus.open(directory)
    error = caught.value
    assert (error.file, error.expected, error.remedy) == (path, manifest["digest"], "`dvc checkout`")
    assert error.found == manifests.manifest_digest({**manifest, "licence": "another"})


def test_a_table_of_other_columns_is_refused(directory: Path) -> None:
    path = directory / "documents.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["licence"]), path)
    with pytest.raises(EvidenceError, match="found 40 rows of id, source, offset, tokens, digest, expected 40 of id, "):
        Corpus.open(directory).document(3)
