"""A vocabulary beyond 65,536 entries: from text through corpus, data order and batch, and back to text."""

import itertools
import json

import numpy as np
import pytest
import text_project

from treering.audit.documents.batch import step_batch
from treering.data.corpus.corpus import Corpus
from treering.data.corpus.indexed import TokenFile
from treering.data.corpus.text_tokenizer import load_tokenizer
from treering.runlog.find import find_runs

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SIZE = 70_000
"""Entries, of which those of the text's words come last."""


def write_pair(folder):
    """GPT-2's pair: bytes, pairs of letters, words of four letters, and at last the words of the text."""
    pairs = ["".join(pair) for pair in itertools.product(LETTERS, repeat=2)]
    merges = [(pair[0], pair[1]) for pair in pairs]
    cuts = {word: 2 if word[:2] < word[1:] else 1 for word in text_project.WORDS["letters"]}  # the first merge wins
    words = [(word[:cut], word[cut:]) for word, cut in cuts.items()]
    byte_letters = [chr(number) for number in range(0x21, 0x7F)] + ["Ġ"]
    rest = SIZE - 1 - len(byte_letters) - len(merges) - len(words)
    merges += [*itertools.islice(itertools.product(pairs, repeat=2), rest), *words]
    entries = ["<end>", *byte_letters, *("".join(merge) for merge in merges)]
    folder.mkdir()
    (folder / "encoder.json").write_text(json.dumps({entry: number for number, entry in enumerate(entries)}))
    (folder / "vocab.bpe").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges))


@pytest.mark.slow
@pytest.mark.trainer
def test_every_token_of_a_batch_leads_back_to_its_text(zygote, tmp_path):
    write_pair(tmp_path / "own")
    project = text_project.lay(
        tmp_path,
        text_project.experiment(
            "wide",
            seed=7,
            tokenizer={"file": "own", "vocabulary_size": SIZE, "end_of_document": "<end>"},
            model={"num_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "padded_vocab_size": 70_016},
            optimizer={"peak_learning_rate": 0.003, "min_learning_rate": 0.0003},
            schedule={"train_tokens": 512, "global_batch_size": 8},
            parallel={"micro_batch_size": 4},
            checkpoint={"every_steps": 2},
        ),
    )
    corpus = Corpus.open(project.corpus("letters"))
    pair = TokenFile.open(corpus.directory / "corpus.bin", corpus.directory / "corpus.idx")
    assert corpus.manifest["token_width_bytes"] == 4
    assert pair.tokens.dtype == np.int32
    assert (np.asarray(pair.tokens) > 1 << 16).mean() > 0.4
    assert load_tokenizer(project.tokenizer).encode("bal gut").ids[-1] == SIZE - 1
    rows = {
        name: {row["id"]: row["text"] for row in map(json.loads, (project.curated / f"train/{name}.jsonl").open())}
        for name in text_project.WORDS
    }
    zygote.train(project, tmp_path / "runs", config="wide.yaml")
    (run,) = find_runs(tmp_path / "runs")
    begun, ended = 0, 0
    for step in (1, 2):
        batch = step_batch(run, step, project)
        assert batch.content_bound
        for document in (document for sample in batch.samples for document in sample.documents):
            text = rows[document.corpus][document.document]
            assert document.text in f"{text}<end>"
            begun += document.start == 0 and text.startswith(document.text)
            ended += f"{text}<end>".endswith(document.text)
    assert min(begun, ended) > 1
