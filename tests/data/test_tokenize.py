import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treering.config.corpora import CurationConfig, TokenizerConfig
from treering.data.corpus.corpus import Corpus
from treering.data.corpus.text_tokenizer import load_tokenizer, train_tokenizer
from treering.data.curate.pipeline import curate
from treering.data.tokenize.curated import read_documents
from treering.data.tokenize.stage import tokenize
from treering.errors import UserError

CONFIG = TokenizerConfig(vocabulary_size=600)
CURATION = CurationConfig()


def quiet(_: str) -> None:
    pass


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def made(tiny_in: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    tiny = tiny_in(tmp_path_factory.mktemp("made"))
    tiny.rows[0]["text"] += " The river says <|endoftext|> and flows on."
    tiny.sources = tiny.corpora()
    curate(tiny.sources, tiny.config, tiny.project, quiet)
    tokenize(tiny.sources, CONFIG, CURATION, tiny.project, quiet)
    return tiny


@pytest.fixture
def tokenized(made: Any, tiny: Any) -> Any:
    """A copy of what was made once, for a test to change."""
    shutil.copytree(made.project.root, tiny.project.root, dirs_exist_ok=True)
    tiny.sources = made.sources
    return tiny


def test_every_token_is_the_documents(tokenized: Any) -> None:
    project = tokenized.project
    tokenizer = load_tokenizer(project.tokenizer)
    assert tokenizer.token_to_id("<|endoftext|>") == 0
    for split in ("train", "heldout"):
        for name in ("own", "pages"):
            lines = (project.curated / split / f"{name}.jsonl").read_text().splitlines()
            corpus = Corpus.open(project.corpus(name, split))
            assert corpus.num_documents == len(lines)
            for number, row in enumerate(map(json.loads, lines)):
                start, end = corpus.document_offsets[number : number + 2].tolist()
                tokens = corpus.tokens(start, end)
                assert tokens[-1] == 0
                assert 0 not in tokens[:-1]
                assert tokenizer.decode(tokens[:-1].tolist()) == row["text"]
                assert {key: corpus.document(number)[key] for key in ("id", "source", "offset", "licence")} == {
                    key: row[key] for key in ("id", "source", "offset", "licence")
                }


@pytest.mark.slow
def test_megatron_opens_the_corpus(tokenized: Any) -> None:
    indexed = pytest.importorskip("megatron.core.datasets.indexed_dataset")
    directory = tokenized.project.corpus("own")
    corpus = Corpus.open(directory)
    theirs = indexed.IndexedDataset(str(directory / "corpus"), multimodal=False, mmap=True)
    assert np.array_equal(np.concatenate([theirs[i] for i in range(len(theirs))]), corpus.tokens(0, corpus.num_tokens))
    assert np.array_equal(np.cumsum(theirs.sequence_lengths), corpus.document_offsets[1:])


def test_the_manifest_says_where_it_comes_from(tokenized: Any) -> None:
    manifest = Corpus.open(tokenized.project.corpus("pages")).manifest
    assert manifest["source"] == ["pkg:pypi/tiny-docs@1.0"]
    assert manifest["licence"] == "MIT"
    assert manifest["tokenizer"]["end_of_document"] == 0
    assert manifest["tokenizer"]["digest"].startswith("sha256:")
    assert manifest["curation"][0]["step"] == "extract"
    assert (
        manifest["curation"][-1]["kept"]
        == manifest["num_documents"] + Corpus.open(tokenized.project.corpus("pages", "heldout")).num_documents
    )


def test_twice_the_same_bytes(tokenized: Any) -> None:
    first = tree(tokenized.project.corpora)
    tokenize(tokenized.sources, CONFIG, CURATION, tokenized.project, quiet)
    assert tree(tokenized.project.corpora) == first
    assert len(first) == 1 + 4 * 4


def test_a_renamed_corpus_keeps_its_digest(tokenized: Any) -> None:
    project = tokenized.project
    before = Corpus.open(project.corpus("own")).digest
    (project.raw / "own").rename(project.raw / "mine")
    renamed = [tokenized.sources[0].model_copy(update={"name": "mine"}), tokenized.sources[1]]
    curate(renamed, tokenized.config, project, quiet)
    tokenize(renamed, CONFIG, CURATION, project, quiet)
    assert not project.corpus("own").exists()
    assert Corpus.open(project.corpus("mine")).digest == before


def test_too_little_text_for_the_vocabulary() -> None:
    with pytest.raises(UserError, match=r"found text for \d+ entries, expected 600"):
        train_tokenizer(["a few words"], CONFIG)


def test_what_is_missing_is_named(tiny: Any) -> None:
    with pytest.raises(UserError, match=r"own\.jsonl does not exist.*treering curate"):
        tokenize(tiny.corpora(), CONFIG, CURATION, tiny.project, quiet)
    with pytest.raises(UserError, match=r"tokenizer\.json does not exist.*treering tokenize"):
        load_tokenizer(tiny.project.tokenizer)


@pytest.mark.parametrize("content", [b"{", b"\xff\n", b"[1]", b'{"id": "x", "text": 3}'])
def test_damaged_curated_documents_are_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "own.jsonl"
    good = b'{"id": "a", "text": "b", "source": "s", "offset": 0, "licence": "MIT"}\n'
    path.write_bytes(good + content)
    with pytest.raises(
        UserError, match=rf"own\.jsonl is damaged at byte {len(good)} .*`treering curate` makes it anew"
    ):
        list(read_documents(path))
