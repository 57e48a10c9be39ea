"""The index of n-grams: equal to brute force whoever builds it, whole or not there, never quietly wrong."""

import json
import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from corpus_writer import write_corpus
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from treering.config.canonical import digest_file
from treering.config.corpora import TokenizerConfig
from treering.data.corpus.corpus import Corpus
from treering.data.corpus.text import Detokenizer
from treering.data.corpus.text_tokenizer import load_tokenizer, train_tokenizer
from treering.data.corpus.token_bytes import Spelling
from treering.data.ngram_index import build as ngram_build
from treering.data.ngram_index.build import build_index
from treering.data.ngram_index.hashes import ngram_hashes
from treering.data.ngram_index.index import NgramIndex, index_directory
from treering.data.words import words
from treering.errors import EvidenceError, NotFoundError, StoreError, UserError

FILES = ("entries.bin", "blocks.bin")
WORDS = ["Ox", "ox", "naïve", "nai\u0308ve", "日本", "İ", "ΟΔΟΣ", "x_1", "٣", "ß", "🌲"]
PIECES = [*WORDS, "—", ". ", "'", "\n", "\u200b", "a", " "]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Documents of up to 300 words in several scripts; every third ends in one boilerplate, some are said twice."""
    root, chance = tmp_path_factory.mktemp("ngrams"), random.Random(5)
    spoken = [*WORDS, *(f"w{number}" for number in range(30))]
    boilerplate = " ".join(f"b{number}" for number in range(16))
    texts = [
        " ".join(chance.choices(spoken, k=chance.randint(1, 300))) + (f" {boilerplate}" if number % 3 == 0 else "")
        for number in range(200)
    ]
    texts = [f"{text}, {text}" if number % 5 == 1 else text for number, text in enumerate(texts)]
    config = TokenizerConfig(vocabulary_size=300)
    tokenizer_path = root / "tokenizer.json"
    train_tokenizer(texts, config).save(str(tokenizer_path))
    rows = [
        {"id": f"d{number}", "text": text, "source": "test", "offset": number, "licence": "CC0-1.0"}
        for number, text in enumerate(texts)
    ]
    cut_by = {"digest": digest_file(tokenizer_path), "end_of_document": 0}
    about = {"name": "mixed", "tokenizer": cut_by, "licence": "CC0-1.0"}
    write_corpus(root / "mixed", rows, load_tokenizer(tokenizer_path), 0, about)
    return Corpus.open(root / "mixed"), Detokenizer(tokenizer_path), texts


@pytest.fixture
def small_parts(monkeypatch):
    """Many parts and many runs, as a large corpus has them."""
    monkeypatch.setattr(ngram_build, "_PART_TOKENS", 3_000)
    monkeypatch.setattr(ngram_build, "_FEWEST_RUN_TOKENS", 1_000)
    monkeypatch.setattr(ngram_build, "_MOST_RUN_TOKENS", 4_000)
    monkeypatch.setattr(ngram_build, "_BATCH_TOKENS", 700)


def ngrams(text, length=13):
    found = words(text)
    return [tuple(found[start : start + length]) for start in range(len(found) - length + 1)]


@given(st.lists(st.lists(st.sampled_from(PIECES) | st.characters(), max_size=40).map("".join), max_size=6))
def test_hashes_are_equal_where_ngrams_are(texts):
    hashes, numbers = ngram_hashes(texts, 2)
    truth = [(ngram, number) for number, text in enumerate(texts) for ngram in ngrams(text, 2)]
    assert numbers.tolist() == [number for _ngram, number in truth]
    by_ngram = dict(zip((ngram for ngram, _number in truth), hashes.tolist(), strict=True))
    assert [by_ngram[ngram] for ngram, _number in truth] == hashes.tolist()
    assert len(set(by_ngram.values())) == len(by_ngram)


@given(data=st.data())
def test_tokens_are_spelled_as_their_tokenizer_decodes_them(corpus, data):
    tokenizer = Tokenizer.from_file(str(corpus[1]._path))
    spelling = Spelling.of(tokenizer)
    documents = data.draw(st.lists(st.lists(st.integers(0, 420), max_size=30), min_size=1, max_size=5))
    tokens = np.array([token for document in documents for token in document], dtype=np.uint16)
    ends = np.cumsum([len(document) for document in documents])
    assert spelling.texts(tokens, ends) == tokenizer.decode_batch(documents, skip_special_tokens=True)


def test_added_tokens_are_spelled_as_they_are():
    tokenizer = train_tokenizer(["a b c"], TokenizerConfig(vocabulary_size=257))
    tokenizer.add_tokens(["né €"])
    number = tokenizer.token_to_id("né €")
    assert Spelling.of(tokenizer).texts(np.array([number]), np.array([1])) == ["né €"]


@pytest.mark.slow
@pytest.mark.usefixtures("small_parts")
def test_an_index_equals_brute_force_whoever_builds_it(corpus, tmp_path):
    corpus, text_of, texts = corpus
    facts = {workers: build_index(corpus, text_of, tmp_path / str(workers), workers=workers) for workers in (1, 2, 3)}
    directories = {workers: index_directory(tmp_path / str(workers), corpus.digest) for workers in facts}
    assert {path.name for directory in directories.values() for path in directory.iterdir()} == {*FILES, "index.json"}
    for name in FILES:
        assert len({(directory / name).read_bytes() for directory in directories.values()}) == 1
    index = NgramIndex(directories[3], corpus)
    assert index.facts == facts[3]
    assert index._layout.num_parts > 8
    holders = {}
    for number, text in enumerate(texts):
        for ngram in set(ngrams(text)):
            holders.setdefault(ngram, []).append(number)
    assert index.facts.num_entries == sum(map(len, holders.values()))
    asked = [" ".join(ngram) for ngram in holders]
    hashes, _ = ngram_hashes([*asked, " ".join(map(str, range(13)))], 13)
    assert len(hashes) == len(asked) + 1
    places = list(zip(*(array.tolist() for array in index.lookup(hashes)), strict=True))
    assert [index.documents(*place).tolist() for place in places[:-1]] == list(holders.values())
    assert places[-1][1] == 0
    first, count = max(places, key=lambda place: place[1])
    assert index.documents(first, 5).tolist() == index.documents(first, count).tolist()[:5]


def test_lookups_across_blocks(corpus, monkeypatch, tmp_path):
    for module in ("index", "build"):
        monkeypatch.setattr(f"treering.data.ngram_index.{module}.BLOCK_ENTRIES", 7)
    corpus, text_of, texts = corpus
    build_index(corpus, text_of, tmp_path, workers=1)
    index = NgramIndex(index_directory(tmp_path, corpus.digest), corpus)
    assert list(index.check()) == []
    hashes, _ = ngram_hashes([texts[0]], 13)
    truth = [[n for n, text in enumerate(texts) if ngram in set(ngrams(text))] for ngram in ngrams(texts[0])[-4:]]
    first, counts = index.lookup(hashes)
    assert [index.documents(*place).tolist() for place in zip(first[-4:], counts[-4:], strict=True)] == truth
    assert len(truth[-1]) == 67  # the boilerplate spans blocks


@pytest.mark.parametrize("seed", range(40))
def test_a_changed_byte_is_never_a_wrong_answer(seed, corpus, tmp_path):
    corpus, text_of, texts = corpus
    build_index(corpus, text_of, tmp_path, workers=1)
    directory, chance = index_directory(tmp_path, corpus.digest), random.Random(seed)
    path = directory / chance.choice([*FILES, "index.json"])
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)
    with pytest.raises(EvidenceError, match=r"`treering index --force` builds it anew"):
        NgramIndex(directory, corpus).lookup(ngram_hashes(texts, 13)[0])


def test_an_index_that_is_not_whole_or_of_another_version_is_refused(corpus, tmp_path, monkeypatch):
    corpus, text_of, _texts = corpus
    build_index(corpus, text_of, tmp_path, workers=1)
    directory = index_directory(tmp_path, corpus.digest)
    document = json.loads((directory / "index.json").read_text())
    with monkeypatch.context() as patch:
        patch.setattr("unicodedata.unidata_version", "99.0")
        with pytest.raises(EvidenceError, match=r"built from unicode \d+\.\d+\.\d+, expected 99.0"):
            NgramIndex(directory)
    os.truncate(directory / "entries.bin", document["facts"]["num_entries"] * 8 - 8)
    with pytest.raises(EvidenceError, match=r"entries.bin: found \d+ bytes, expected \d+ bytes; `treering"):
        NgramIndex(directory)
    (directory / "entries.bin").unlink()
    with pytest.raises(EvidenceError, match=r"entries.bin: no such file"):
        NgramIndex(directory)
    (directory / "index.json").write_text(json.dumps(document["facts"]))
    with pytest.raises(EvidenceError, match=r"format 1, expected 2; `treering index --force` builds it anew"):
        NgramIndex(directory)


_KILLED = """
import multiprocessing, os, signal, sys
from pathlib import Path
from treering.data.corpus.corpus import Corpus
from treering.data.ngram_index.build import build_index
from treering.data.corpus.text import Detokenizer

def progress(what, done, total):
    if what.startswith("sort"):
        print(*(child.pid for child in multiprocessing.active_children()), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    build_index(Corpus.open(Path(sys.argv[1])), Detokenizer(Path(sys.argv[2])), Path(sys.argv[3]), progress, 2)
"""


def test_a_killed_builder_leaves_no_index_and_no_process(corpus, tmp_path):
    corpus, text_of, _texts = corpus
    script = tmp_path / "builder.py"
    script.write_text(_KILLED)
    command = [sys.executable, script, corpus.directory, text_of._path, tmp_path / "index"]
    with (tmp_path / "out").open("w") as out:  # a pipe would be waited for as long as a worker holds it
        assert subprocess.run(command, stdout=out, check=False).returncode == -signal.SIGKILL
    workers = [int(pid) for pid in (tmp_path / "out").read_text().split()]
    assert workers
    deadline = time.monotonic() + 300
    while (left := [pid for pid in workers if Path(f"/proc/{pid}").exists()]) and time.monotonic() < deadline:
        time.sleep(0.01)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left
    with pytest.raises(NotFoundError, match="no index of corpus mixed"):
        NgramIndex(index_directory(tmp_path / "index", corpus.digest), corpus)
    (tmp_path / "index" / ".of-another-corpus.building").mkdir()
    build_index(corpus, text_of, tmp_path / "index", workers=1)
    found = {path.name for path in (tmp_path / "index").iterdir()}
    assert found == {"lock", index_directory(tmp_path, corpus.digest).name}


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupted_build_leaves_the_old_index_and_nothing_else(workers, corpus, tmp_path):
    corpus, text_of, _texts = corpus
    before = build_index(corpus, text_of, tmp_path, workers=1)

    def interrupt(what, _done, _total):
        if what.startswith("index"):
            raise KeyboardInterrupt("while the index is built")

    with pytest.raises(KeyboardInterrupt, match="while the index is built"):
        build_index(corpus, text_of, tmp_path, interrupt, workers)
    assert not multiprocessing.active_children()
    directory = index_directory(tmp_path, corpus.digest)
    assert {path.name for path in tmp_path.iterdir()} == {"lock", directory.name}
    assert NgramIndex(directory, corpus).facts == before


@pytest.mark.slow
@pytest.mark.usefixtures("small_parts")
def test_a_killed_worker_is_named(corpus, tmp_path):
    corpus, text_of, _texts = corpus

    def kill(what, _done, _total):
        if what.startswith("index"):
            for child in multiprocessing.active_children():
                child.kill()

    with pytest.raises(StoreError, match=r"a worker process was killed.*`treering index --workers 1`"):
        build_index(corpus, text_of, tmp_path, kill, 2)
    assert {path.name for path in tmp_path.iterdir()} == {"lock"}


def test_a_full_disk_a_second_builder_and_a_file_in_the_way(corpus, tmp_path):
    corpus, text_of, _texts = corpus

    def second(what, _done, _total):
        if what.startswith("index"):
            with pytest.raises(UserError, match="another process builds an index there"):
                build_index(corpus, text_of, tmp_path, workers=1)

    build_index(corpus, text_of, tmp_path / "0", workers=1)
    build_index(corpus, text_of, tmp_path, second, workers=1)
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="File exists"):
        build_index(corpus, text_of, tmp_path / "file", workers=1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(StoreError, match=r"File too large; building takes twice the index's size"):
            build_index(corpus, text_of, tmp_path / "full", workers=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_damaged_corpus_is_not_indexed(corpus, tmp_path):
    corpus, text_of, _texts = corpus
    content = (corpus.directory / "corpus.bin").read_bytes()
    (corpus.directory / "corpus.bin").write_bytes(bytes([content[0] ^ 1]) + content[1:])
    try:
        with pytest.raises(EvidenceError, match=r"corpus.bin: bytes 0 to .*`dvc checkout` restores them"):
            build_index(corpus, text_of, tmp_path, workers=1)
    finally:
        (corpus.directory / "corpus.bin").write_bytes(content)
    assert {path.name for path in tmp_path.iterdir()} == {"lock"}
