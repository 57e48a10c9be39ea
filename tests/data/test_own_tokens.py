"""Your own Megatron pairs: every document as it is, some held out, and what is refused."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treering.config.corpora import CorpusConfig, CurationConfig, TokenizerConfig
from treering.data.corpus.corpus import Corpus, token_digest
from treering.data.corpus.indexed import TokenFile, index_bytes
from treering.data.corpus.text_tokenizer import train_tokenizer
from treering.data.curate.pipeline import curate
from treering.data.sources.fetch import fetch
from treering.data.tokenize.stage import tokenize
from treering.errors import TreeringError, UserError
from treering.project import NO_TASKS, Project

SIZE = 300
CURATION = CurationConfig(heldout={"fraction": 0.2})
CORPUS = CorpusConfig(name="own", licence="MIT", megatron="tokens/own_text_document")


def quiet(_: str) -> None:
    pass


@pytest.fixture
def project(tmp_path: Path) -> Project:
    texts = [f"word{number} and {number * 37} more of {number % 7}" for number in range(400)] * 2
    (tmp_path / "tokens").mkdir()
    train_tokenizer(texts, TokenizerConfig(vocabulary_size=SIZE)).save(str(tmp_path / "tokens/tokenizer.json"))
    return Project(tmp_path)


def lay(project: Project, documents: list[np.ndarray], width: int = 2) -> None:
    stem = project.root / "tokens/own_text_document"
    Path(f"{stem}.bin").write_bytes(b"".join(each.astype(f"<u{width}").tobytes() for each in documents))
    Path(f"{stem}.idx").write_bytes(index_bytes(np.array([len(each) for each in documents], np.int32), width))


def documents(count: int = 40) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.integers(0, SIZE, rng.integers(1, 50)) for _ in range(count)]


def made(project: Project, **config: Any) -> dict[str, Corpus]:
    tokenizer = TokenizerConfig(**{"file": "tokens/tokenizer.json", "vocabulary_size": SIZE, **config})
    fetch([CORPUS], project, say=quiet)
    curate([CORPUS], CURATION, project, quiet)
    tokenize([CORPUS], tokenizer, CURATION, project, quiet)
    return {split: Corpus.open(project.corpus("own", split)) for split in ("train", "heldout")}


@pytest.mark.parametrize("width", [2, 4])
def test_every_document_is_in_one_split_and_keeps_its_number(project: Project, width: int) -> None:
    texts = documents()
    lay(project, texts, width)
    corpora = made(project)
    rows = {split: [corpus.document(n) for n in range(corpus.num_documents)] for split, corpus in corpora.items()}
    numbers = {split: [int(row["id"]) for row in found] for split, found in rows.items()}
    assert sorted(numbers["train"] + numbers["heldout"]) == list(range(40))
    assert len(numbers["heldout"]) == 9, "about a fifth of 40, by the hash of the number"
    for split, corpus in corpora.items():
        assert corpus.verify() == []
        assert corpus.manifest["token_width_bytes"] == 2, "as narrow as the vocabulary allows"
        for place, row in enumerate(rows[split]):
            assert corpus.document_tokens(place).tolist() == texts[int(row["id"])].tolist()
            assert (row["offset"], row["licence"]) == (int(row["id"]), "MIT")
            assert row["digest"] == token_digest(texts[int(row["id"])])
    assert made(project)["train"].digest == corpora["train"].digest
    assert (project.tasks / NO_TASKS).exists()


def test_tokens_of_a_large_vocabulary_have_four_bytes(project: Project) -> None:
    texts = [np.array([70_000 + number, 5, 65_536][: 1 + number % 3]) for number in range(12)]
    lay(project, texts, 4)
    with pytest.raises(UserError, match=r"vocabulary_size: found 80000, expected 300, the entries of"):
        made(project, vocabulary_size=80_000)
    raw = (project.root / "tokens/tokenizer.json").read_text()
    more = ",".join(f'"w{number}":{number}' for number in range(SIZE, 80_000))
    (project.root / "tokens/tokenizer.json").write_text(re.sub(r'("vocab":\s*\{)', rf"\1{more},", raw, count=1))
    corpora = made(project, vocabulary_size=80_000)
    assert corpora["train"].manifest["token_width_bytes"] == 4
    found = [corpus.document_tokens(n).tolist() for corpus in corpora.values() for n in range(corpus.num_documents)]
    assert sorted(found) == sorted(each.tolist() for each in texts)
    pair = TokenFile.open(project.corpus("own") / "corpus.bin", project.corpus("own") / "corpus.idx")
    assert pair.tokens.dtype == np.int32
    index = project.corpus("own") / "corpus.idx"
    raw = bytearray(index.read_bytes())
    raw[34] ^= 1  # the length of the first document
    index.write_bytes(bytes(raw))
    (damage,) = corpora["train"].verify()
    assert (damage.file, damage.documents) == ("corpus.idx", (0,))


def test_documents_of_several_sequences_are_whole(project: Project) -> None:
    lay(project, [np.array([1, 2]), np.array([3]), np.array([4, 5, 6])])
    path = project.root / "tokens/own_text_document.idx"
    raw = bytearray(path.read_bytes())
    raw[18:34] = np.array([3, 3], "<i8").tobytes()
    path.write_bytes(bytes(raw[: 34 + 36]) + np.array([0, 2, 3], "<i8").tobytes())
    corpora = made(project)
    found = [corpus.tokens(0, corpus.num_tokens).tolist() for corpus in corpora.values()]
    assert sorted(found) == [[1, 2, 3], [4, 5, 6]]


def short(project: Project) -> None:
    path = project.root / "tokens/own_text_document.bin"
    path.write_bytes(path.read_bytes()[:-2])


def empty(project: Project) -> None:
    lay(project, [np.array([1]), np.array([], dtype=int), np.array([2])])


def one(project: Project) -> None:
    lay(project, [np.array([1])])


def outside(project: Project) -> None:
    lay(project, [np.array([1]), np.array([2, SIZE])])


def foreign(project: Project) -> None:
    (project.root / "tokens/own_text_document.idx").write_bytes(b"no index")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (short, r"own_text_document\.bin: found \d+ bytes, expected \d+ by own_text_document\.idx"),
        (empty, r"own_text_document\.idx: document 1 has no token, expected at least one"),
        (one, "found 1 documents, expected at least 2"),
        (outside, r"own_text_document\.bin: document 1 holds token 300, expected tokens from 0 to 299"),
        (foreign, r"own_text_document\.idx: "),
    ],
)
def test_a_pair_that_does_not_fit_is_named(project: Project, change: Any, message: str) -> None:
    lay(project, documents())
    change(project)
    with pytest.raises(TreeringError, match=message):
        made(project)
    assert not project.corpora.exists()


@pytest.mark.parametrize("ending", [".bin", ".idx"])
def test_a_pair_that_changed_after_the_fetch(project: Project, ending: str) -> None:
    lay(project, documents())
    made(project)
    path = project.root / f"tokens/own_text_document{ending}"
    raw = bytearray(path.read_bytes())
    raw[-2 if ending == ".bin" else 0] ^= 1  # another token of the vocabulary, or no index any more
    path.write_bytes(bytes(raw))
    tokenizer = TokenizerConfig(file="tokens/tokenizer.json", vocabulary_size=SIZE)
    with pytest.raises(TreeringError, match=rf"document{ending} is missing, or was changed after `treering fetch`"):
        tokenize([CORPUS], tokenizer, CURATION, project, quiet)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"file": "no.json"}, r"no\.json does not exist, expected a tokenizer"),
        ({"vocabulary_size": 301}, "found 301, expected 300, the entries of"),
        ({"end_of_document": "<eos>"}, "the tokenizer lacks '<eos>', expected a token of that text; name a token of"),
    ],
)
def test_a_tokenizer_of_your_own_that_does_not_fit(project: Project, config: dict[str, Any], message: str) -> None:
    lay(project, documents())
    with pytest.raises(UserError, match=message):
        made(project, **config)


def test_tokens_need_a_fetch(project: Project) -> None:
    lay(project, documents())
    tokenizer = TokenizerConfig(file="tokens/tokenizer.json", vocabulary_size=SIZE)
    with pytest.raises(UserError, match=r"tokens\.json does not describe tokens/own.*; run `treering fetch` first"):
        tokenize([CORPUS], tokenizer, CURATION, project, quiet)


def test_text_beside_tokens_is_cut_by_the_same_tokenizer(project: Project, prose: Any) -> None:
    lay(project, documents())
    rows = "".join(json.dumps({"text": prose(seed)}) + "\n" for seed in range(40))
    (project.root / "own.jsonl").write_text(rows)
    both = [CorpusConfig(name="text", licence="MIT", jsonl="own.jsonl"), CORPUS]
    curation = CURATION.model_copy(update={"num_processes": 1})
    fetch(both, project, say=quiet)
    curate(both, curation, project, quiet)
    tokenize(both, TokenizerConfig(file="tokens/tokenizer.json", vocabulary_size=SIZE), curation, project, quiet)
    found = [Corpus.open(project.corpus(name)).manifest["tokenizer"] for name in ("text", "own")]
    assert found[0] == found[1]
    assert (project.tasks / "cloze.jsonl").exists()
